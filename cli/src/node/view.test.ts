/**
 * How nodes are displayed.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { NodeInfo } from "@flotilla/sdk";
import { NODE_HEADS, nodeFacts, nodeRow } from "./view.ts";

const NOW = Date.parse("2026-09-01T12:00:00Z");
const ago = (ms: number): string => new Date(NOW - ms).toISOString();
const NODE: NodeInfo = {
  ...{ id: "a", address: "parked:a", smolvmAddress: "parked:a", status: "ready", runtime: "qemu" },
  ...{
    totalCpus: 8,
    availableCpus: 6,
    usedCpus: 1.5,
    totalMemoryMb: 16_000,
    availableMemoryMb: 8_000,
    usedMemoryMb: 8_000,
  },
  ...{ totalDiskGb: 100, availableDiskGb: 50, usedDiskGb: 50, labels: { zone: "east" }, registeredAt: ago(3_600_000) },
  ...{
    lastHeartbeatAt: ago(2_000),
    cordonedAt: null,
    maintenanceAt: null,
    replacement: null,
    linkVersion: 3,
    release: "0.1.0",
  },
  ...{
    lastError: null,
    clockAheadMs: 4,
    certificateExpiresAt: null,
    unknownMachines: [],
    outdatedVmms: [],
    pressure: null,
  },
};
const none = { some: 0, full: 0 };

test("the list shows the highest pressure of a node, and says where it is unknown", () => {
  const shown = (pressure: NodeInfo["pressure"]) => nodeRow({ ...NODE, pressure }, NOW)[NODE_HEADS.indexOf("PRESSURE")];
  assert.equal(shown(null), "unknown");
  assert.equal(shown({ cpu: none, memory: none, io: { some: 0.3, full: 0 } }), "none");
  assert.equal(shown({ cpu: { some: 62.5, full: 0 }, memory: none, io: { some: 9, full: 3 } }), "cpu 63 %");
  assert.equal(shown({ cpu: none, memory: none, io: { some: 9, full: 3 } }), "disk 9 %");
});

test("everything about a node leaves out what does not apply", () => {
  const facts = (node: Partial<NodeInfo>) =>
    Object.fromEntries(nodeFacts({ ...NODE, ...node }, NOW).filter(([, value]) => value !== null));
  assert.equal(facts({})["last error"], undefined);
  assert.equal(facts({})["clock"], "4 ms ahead of the server's");
  assert.equal(facts({ clockAheadMs: -3 })["clock"], "3 ms behind the server's");
  assert.match(facts({})["pressure"] ?? "", /^not reported/);
  const busy = facts({
    status: "unreachable",
    maintenanceAt: ago(60_000),
    lastError: { at: ago(120_000), message: "no disk" },
    pressure: { cpu: { some: 62.5, full: 0 }, memory: { some: 31, full: 20 }, io: none },
  });
  assert.equal(busy["status"], "unreachable, maintenance");
  assert.equal(busy["last error"], "2 min ago: no disk");
  assert.equal(
    busy["pressure"],
    "of the last minute, some process waited for a processor 63 % (all 0 %), memory 31 % (all 20 %), the disk 0 % (all 0 %)",
  );
});

test("a node of which nothing is replaced says so, and one whose machines are made elsewhere too", () => {
  const of = (replacement: NodeInfo["replacement"]): NodeInfo => ({ ...NODE, status: "unreachable", replacement });
  const held = of({ decision: "held", decidedAt: ago(5_000), reason: "2 of 6 nodes do not report" });
  assert.equal(nodeRow(held, NOW)[NODE_HEADS.indexOf("STATUS")], "unreachable, NOT REPLACED");
  assert.equal(Object.fromEntries(nodeFacts(held, NOW))["machines"], "NOT REPLACED: 2 of 6 nodes do not report");
  const replaced = of({ decision: "replaced", decidedAt: ago(5_000), reason: null });
  assert.equal(nodeRow(replaced, NOW)[NODE_HEADS.indexOf("STATUS")], "unreachable, replaced");
});
