/**
 * One Ctrl-C that arrives several times is one request; a second press insists.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { SAME_MS, StopRequests } from "./stop-requests.ts";

test("signals that arrive together are one request, and a later one insists", () => {
  const requests = new StopRequests();
  const times = [5, 5, 5 + SAME_MS - 1, 5 + SAME_MS, 5 + 3 * SAME_MS];
  assert.deepEqual(
    times.map((now) => requests.take(now)),
    ["ask", "same", "same", "insist", "insist"],
  );
});
