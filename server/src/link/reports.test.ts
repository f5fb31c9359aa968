/**
 * Reports of nodes are read with suspicion.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MACHINE_ID, report } from "../../test/support/machine.ts";
import { Misfit, parseHeartbeat, parseObservedMachine } from "./reports.ts";

test("a report that fits is taken as it is", () => {
  const seen = report({
    state: "running",
    bootId: "boot-1",
    hostPorts: [{ port: 80, hostPort: 3000 }],
    timings: { vm: "prepared", bootMs: 5 },
    reasonCode: "image_not_found",
  });
  assert.deepEqual(parseObservedMachine(seen, MACHINE_ID), seen);
});

test("a reason code that is missing or unknown is none: nodes of other versions say other things", () => {
  for (const reasonCode of [undefined, null, "image_eaten", 7, {}])
    assert.equal(parseObservedMachine({ ...report(), reasonCode }, MACHINE_ID).reasonCode, null);
});

test("an answer about another machine is refused", () => {
  assert.throws(() => parseObservedMachine(report(), `mach-${"b".repeat(32)}`), Misfit);
});

test("what the database cannot hold is taken out, and what is endless is cut", () => {
  const seen = parseObservedMachine(report({ reason: `a\0b${"x".repeat(100_000)}`, generation: 1e300 }), MACHINE_ID);
  assert.equal(seen.reason?.startsWith("abx"), true);
  assert.ok((seen.reason?.length ?? 0) <= 4000);
  assert.ok(seen.generation <= 2_147_483_647);
});

test("whatever a node sends is refused with words or has the agreed shape", () => {
  fc.assert(
    fc.property(fc.anything(), (body) => {
      try {
        const { machines, events } = parseHeartbeat(body);
        assert.ok(Array.isArray(machines) && Array.isArray(events));
      } catch (error) {
        assert.match(String(error), /heartbeat does not fit/);
      }
    }),
  );
});
