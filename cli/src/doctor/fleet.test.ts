/**
 * What `doctor --fleet` finds.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fleetChecks, type FleetFacts } from "./fleet.ts";

const NOW = Date.parse("2030-01-01T00:00:00Z");
const ago = (ms: number): string => new Date(NOW - ms).toISOString();
const YEAR_MS = 365 * 24 * 3_600_000;

const NODE: FleetFacts["nodes"][number] = {
  id: "a",
  address: "parked:a",
  smolvmAddress: "parked:a",
  status: "ready",
  totalCpus: 8,
  availableCpus: 8,
  totalMemoryMb: 16_000,
  availableMemoryMb: 8_000,
  totalDiskGb: 100,
  availableDiskGb: 50,
  labels: { accelerator: "kvm", acceleratorReason: "a guest boots with it" },
  registeredAt: ago(YEAR_MS),
  lastHeartbeatAt: ago(2_000),
  cordonedAt: null,
  maintenanceAt: null,
  replacement: null,
  linkVersion: 3,
  release: "0.1.0",
  lastError: null,
  clockAheadMs: 4,
  unknownMachines: [],
  outdatedVmms: [],
  certificateExpiresAt: ago(-20 * 3_600_000),
  runtime: null,
  usedCpus: 0,
  usedMemoryMb: 0,
  usedDiskGb: 0,
  pressure: null,
};
const AUTHORITY = { fingerprint: "f".repeat(64), isSigning: true, createdAt: ago(YEAR_MS), expiresAt: ago(-YEAR_MS) };

const checksOf = (node: Partial<typeof NODE>, more: Partial<FleetFacts> = {}) =>
  fleetChecks({
    servers: [],
    nodes: [{ ...NODE, ...node }],
    authorities: [AUTHORITY],
    images: [{ nodeId: "a" }],
    now: NOW,
    ...more,
  });
const found = (checks: ReturnType<typeof checksOf>): string[] =>
  checks.filter(({ status }) => status !== "ok").map(({ name, status, value }) => `${status} ${name}: ${value}`);

test("a node that reports and answers is fine, with its free resources, its images and its accelerator", () => {
  const [node] = checksOf({});
  assert.equal(node?.status, "ok");
  assert.equal(
    node.value,
    "ready, 1 image, 8000 of 16000 MB and 50 of 100 GB free, kvm, 0.1.0, link 3, certificate for 20 h",
  );
  assert.deepEqual(found(checksOf({})), []);
});

test("machines in VMMs of a program that is not installed any more are counted, and a node that has not reported says nothing", () => {
  assert.deepEqual(found(checksOf({ outdatedVmms: ["mach-1", "mach-2"] })), [
    "warn node a: 2 machines run in a VMM of another program than the installed one",
  ]);
  assert.deepEqual(found(checksOf({ outdatedVmms: null })), []);
});

test("a fleet without nodes, a silent node and one without memory or disk need action, and each finding says which", () => {
  for (const [checks, expected] of [
    [fleetChecks({ servers: [], nodes: [], authorities: [], images: [], now: NOW }), ["bad nodes: none"]],
    [
      checksOf({ status: "unreachable", lastHeartbeatAt: ago(180_000) }),
      [/^bad node a: unreachable, last seen 3 ?min/],
    ],
    [checksOf({ availableMemoryMb: 600 }), ["bad node a: 600 of 16000 MB of memory are free"]],
    [checksOf({ clockAheadMs: -300_000 }), ["bad node a: its clock is 5 min behind"]],
    [checksOf({ certificateExpiresAt: ago(-3_600_000) }), ["bad node a: its certificate expires in 60 min"]],
    [checksOf({ availableDiskGb: 1 }), ["bad node a: 1 of 100 GB of its disk are free"]],
  ] as const) {
    const texts = found(checks);
    assert.equal(texts.length, expected.length, texts.join("; "));
    for (const [index, text] of texts.entries()) assert.match(text, new RegExp(expected[index] ?? ""));
    for (const { meaning } of checks.filter(({ status }) => status === "bad")) assert.notEqual(meaning, "");
  }
});

test("a node whose processes wait for memory needs action, and one that is short of processors or disk deserves a look", () => {
  const none = { some: 0, full: 0 };
  const calm = { cpu: { some: 60, full: 0 }, memory: { some: 30, full: 5 }, io: { some: 95, full: 20 } };
  assert.deepEqual(found(checksOf({ pressure: calm })), []);
  assert.deepEqual(found(checksOf({ pressure: null })), []);
  assert.deepEqual(found(checksOf({ pressure: { ...calm, memory: { some: 40, full: 12 } } })), [
    "bad node a: all its processes waited for memory for 12 % of the last minute",
  ]);
  assert.deepEqual(
    found(checksOf({ pressure: { cpu: { some: 91, full: 0 }, memory: none, io: { some: 95, full: 50 } } })),
    [
      "warn node a: processes waited for a processor for 91 % of the last minute",
      "warn node a: all its processes waited for the disk for 50 % of the last minute",
    ],
  );
});

test("what an operator chose, and what passes, is shown without a need for action", () => {
  assert.deepEqual(found(checksOf({ cordonedAt: ago(0) })), ["warn node a: cordoned"]);
  assert.deepEqual(found(checksOf({ unknownMachines: ["m-1", "m-2"] })), ["warn node a: 2 unknown machines: m-1, m-2"]);
  assert.deepEqual(found(checksOf({ status: "drained" })), ["warn node a: drained"]);
  assert.deepEqual(found(checksOf({ status: "revoked" })), ["warn node a: revoked"]);
  assert.deepEqual(found(checksOf({}, { images: null })), ["warn node a: no image in its answer"]);
  assert.deepEqual(found(checksOf({ lastHeartbeatAt: null })), ["warn node a: never reported"]);
});

test("nodes of which nothing is replaced are one finding that needs action, with the reason", () => {
  const replacement = { decision: "held", decidedAt: ago(1_000), reason: "2 of 3 nodes do not report" } as const;
  const silent = { ...NODE, status: "unreachable", replacement } as const;
  const checks = checksOf({}, { nodes: [NODE, { ...silent, id: "b" }, { ...silent, id: "c" }] });
  const held = checks.filter(({ name }) => name === "replacement");
  assert.deepEqual(found(held), ["bad replacement: NOTHING IS REPLACED of 2 nodes: 2 of 3 nodes do not report"]);
  assert.match(held[0]?.meaning ?? "", /flotilla node replace-lost/);
  const replaced = { ...silent, replacement: { ...replacement, decision: "replaced", reason: null } } as const;
  assert.deepEqual(
    checksOf({}, { nodes: [NODE, replaced] }).filter(({ name }) => name === "replacement"),
    [],
  );
});

test("a node under maintenance raises no alarm while it is away", () => {
  const away = { status: "unreachable", maintenanceAt: ago(3_600_000), cordonedAt: ago(3_600_000) } as const;
  assert.deepEqual(found(checksOf({ ...away, lastHeartbeatAt: ago(180_000) })), [
    "warn node a: under maintenance for 60 min, last seen 3 min ago",
  ]);
  assert.deepEqual(found(checksOf({ ...away, status: "ready" })), ["warn node a: under maintenance for 60 min"]);
});

test("the last error of a node is shown: a recent one deserves a look, an old one is only said", () => {
  const failed = (at: string) => checksOf({ lastError: { at, message: "the journal could not be written" } });
  assert.deepEqual(found(failed(ago(300_000))), [
    "warn node a: last error 5 min ago: the journal could not be written",
  ]);
  assert.deepEqual(found(failed(ago(YEAR_MS))), []);
  assert.match(failed(ago(YEAR_MS))[1]?.value ?? "", /^last error 365 d ago: the journal/);
});

test("each server and its version is listed; one release apart is said, and more than one needs action", () => {
  const server = { id: "s", host: "one", release: "0.1.0", linkVersion: 3, startedAt: ago(7_200_000), seenAt: ago(0) };
  const same = checksOf({}, { servers: [server] });
  assert.equal(`${same[0]?.name}: ${same[0]?.value}`, "server one: 0.1.0, link 3, up for 2 h");
  assert.deepEqual(found(same), []);
  const next = { ...server, host: "two", release: "0.2.0", linkVersion: 4 };
  assert.deepEqual(found(checksOf({}, { servers: [server, next] })), [
    "warn versions: 0.1.0 (server one, node a); 0.2.0 (server two)",
  ]);
  // As the servers' database has it; this host's clock may differ.
  const silent = { ...server, host: "dead", seenAt: ago(25_000) };
  assert.deepEqual(found(checksOf({}, { servers: [server, silent] })), [
    "warn server dead: 0.1.0, link 3, silent for 25 s",
  ]);
  assert.deepEqual(found(checksOf({}, { servers: [silent] })), []);
  assert.deepEqual(found(checksOf({ linkVersion: 2 }, { servers: [next] })), [
    "bad versions: more than one release apart: link 4, and node a has 2",
  ]);
});

test("an authority that expires soon needs action, and one that was replaced names the nodes that still need it", () => {
  const soon = { ...AUTHORITY, expiresAt: ago(-3_600_000) };
  assert.match(found(checksOf({}, { authorities: [soon] }))[0] ?? "", /^bad authority ffffffffffff: expires in 60 min/);
  const early = { ...AUTHORITY, createdAt: ago(-2 * YEAR_MS), expiresAt: ago(-12 * YEAR_MS) };
  assert.match(found(checksOf({}, { authorities: [early] }))[0] ?? "", /^bad authority ffffffffffff: is not valid yet/);
  const replaced = { ...AUTHORITY, isSigning: false };
  const checks = checksOf({ status: "unreachable" }, { authorities: [AUTHORITY, replaced] });
  assert.match(checks.at(-1)?.meaning ?? "", /when these nodes have reported: a$/);
  assert.match(checksOf({}, { authorities: [AUTHORITY, replaced] }).at(-1)?.meaning ?? "", /`flotilla authority rm f/);
});
