/**
 * Which of a set of ports a request is forwarded to.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { chooseTarget, type TargetPort, type TargetSet, targetsOf } from "./target.ts";

const target = (id: string): TargetPort => ({ machine: { tenantId: "tenant-1", id }, port: 80 });

test("a set of one is its port, whatever is open there", () => {
  const one: TargetSet = [target("a")];
  assert.equal(
    chooseTarget(one, () => 1_000),
    one[0],
  );
});

test("of several ports the least busy one is chosen, of equals the first", () => {
  const three: TargetSet = [target("a"), target("b"), target("c")];
  for (const [open, chosen] of [
    [{ a: 0, b: 0, c: 0 }, "a"],
    [{ a: 1, b: 0, c: 0 }, "b"],
    [{ a: 2, b: 2, c: 1 }, "c"],
    [{ a: 1, b: 2, c: 1 }, "a"],
    [{ a: 5, b: 4, c: 3 }, "c"],
  ] as const)
    assert.equal(chooseTarget(three, (id) => open[id as "a"]).machine.id, chosen, JSON.stringify(open));
});

test("requests that stay open are spread evenly over the ports", () => {
  const two: TargetSet = [target("a"), target("b")];
  const open = new Map<string, number>();
  for (let request = 0; request < 10; request += 1) {
    const { machine } = chooseTarget(two, (id) => open.get(id) ?? 0);
    open.set(machine.id, (open.get(machine.id) ?? 0) + 1);
  }
  assert.deepEqual(Object.fromEntries(open), { a: 5, b: 5 });
});

test("a machine's host name leads to its first published port", () => {
  const access = { kind: "machine", id: "mach-1", tenantId: "tenant-1", isPublic: true, isSuspended: false } as const;
  const targets = targetsOf({ ...access, shareHash: null, requestsPerSecond: 1, burst: 1 });
  assert.deepEqual(
    targets.map(({ machine: { tenantId, id }, port }) => ({ tenantId, id, port })),
    [{ tenantId: "tenant-1", id: "mach-1", port: null }],
  );
});
