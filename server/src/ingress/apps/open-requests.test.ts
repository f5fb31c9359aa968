/**
 * How open requests of instances are counted.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { OpenRequests } from "./open-requests.ts";

function counted() {
  const ended: string[] = [];
  return { open: new OpenRequests((appId, machineId) => ended.push(`${appId} ${machineId}`)), ended };
}

test("a request counts once, from its first hold to the end of its last, and each end counts once", () => {
  const { open, ended } = counted();
  const request = open.request("web", "m1");
  assert.equal(open.in("m1"), 0);
  const choosing = request.hold();
  const connection = request.hold();
  assert.equal(open.in("m1"), 1);
  choosing();
  choosing();
  assert.equal(open.in("m1"), 1);
  assert.deepEqual(ended, []);
  connection();
  assert.equal(open.in("m1"), 0);
  assert.deepEqual(ended, ["web m1"]);
});

test("requests are listed by instance, and summed by app", () => {
  const { open, ended } = counted();
  const ends = [
    open.request("web", "m1"),
    open.request("web", "m1"),
    open.request("web", "m2"),
    open.request("api", "m3"),
  ];
  const [first] = ends.map((request) => request.hold());
  assert.deepEqual(
    open.list((_, machineId) => machineId !== "m3"),
    { m1: 2, m2: 1 },
  );
  assert.deepEqual(
    open.list((appId) => appId === "none"),
    {},
  );
  assert.deepEqual(
    [...open.byApp()],
    [
      ["web", 3],
      ["api", 1],
    ],
  );
  first?.();
  assert.deepEqual([open.in("m1"), ended], [1, []]);
});
