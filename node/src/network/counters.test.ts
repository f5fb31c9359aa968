/**
 * Counters of interfaces, as the kernel prints them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { receivedIn } from "./counters.ts";

const DEVICES = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo: 4660000   52 0 0 0 0 0 0 4660000 52 0 0
xflo1-00a: 7 1 0 0 0 0 0 0 1 1 0 0
flo1-00a: 123456789012       3    0    0    0     0          0         0      446       5    0    0
flo1-00ab:       0       0    0    0    0     0          0         0      446       5    0    0
`;

test("what an interface has received is the first number of its line", () => {
  const expected = { lo: 4_660_000, "flo1-00a": 123_456_789_012, "flo1-00ab": 0, "flo1-00": undefined };
  for (const [name, bytes] of Object.entries(expected)) assert.equal(receivedIn(DEVICES, name), bytes, name);
});
