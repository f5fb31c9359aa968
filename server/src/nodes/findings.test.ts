/**
 * What is found of a fleet.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { FINDING_CODES, type FleetFinding } from "@flotilla/contract/nodes";
import { type FleetState, findingsOf } from "./findings.ts";

const NOW = Date.parse("2030-01-01T00:00:00Z");
const ago = (ms: number): number => NOW - ms;
const YEAR_MS = 365 * 24 * 3_600_000;

const NODE: FleetState["nodes"][number] = {
  id: "a",
  address: "parked:a",
  status: "ready",
  totalCpus: 8,
  totalMemoryMb: 16_000,
  availableMemoryMb: 8_000,
  totalDiskGb: 100,
  availableDiskGb: 50,
  labels: { accelerator: "kvm", acceleratorReason: "a guest boots with it" },
  registeredAt: ago(YEAR_MS),
  lastHeartbeatAt: ago(2_000),
  cordonedAt: null,
  maintenanceAt: null,
  lostAt: null,
  heldAt: null,
  heldReason: null,
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
const AUTHORITY = { fingerprint: "f".repeat(64), createdAt: ago(YEAR_MS), expiresAt: ago(-YEAR_MS) };

/** The codes of all findings of these tests. */
const seen = new Set<string>();
function findings(state: FleetState): readonly FleetFinding[] {
  const all = findingsOf(state);
  for (const { code } of all) seen.add(code);
  return all;
}

const FLEET: FleetState = {
  servers: [],
  nodes: [NODE],
  authorities: [AUTHORITY],
  answers: new Map([["a", 1]]),
  now: NOW,
};
const findingsWith = (node: Partial<typeof NODE>, more: Partial<FleetState> = {}) =>
  findings({ ...FLEET, nodes: [{ ...NODE, ...node }], ...more });
const texts = (all: readonly FleetFinding[]): string[] =>
  all
    .filter(({ severity }) => severity !== "ok")
    .map(({ severity, subject, message }) => `${severity} ${subject.kind} ${subject.id ?? ""}: ${message}`);

test("a node that reports and answers is fine, with its free resources, its images and its accelerator", () => {
  const [node] = findingsWith({});
  assert.deepEqual([node?.severity, node?.code, node?.subject.id], ["ok", "node_ready", "a"]);
  assert.equal(
    node?.message,
    "ready, 1 image, 8000 of 16000 MB and 50 of 100 GB free, kvm, 0.1.0, link 3, certificate for 20 h",
  );
  assert.deepEqual(texts(findingsWith({})), []);
});

test("machines in VMMs of a program that is not installed any more are counted, and a node that has not reported says nothing", () => {
  assert.deepEqual(texts(findingsWith({ outdatedVmms: ["mach-1", "mach-2"] })), [
    "warn node a: 2 machines run in a VMM of another program than the installed one",
  ]);
  assert.deepEqual(texts(findingsWith({ outdatedVmms: null })), []);
});

test("a fleet without nodes, a silent node and one without memory or disk need action, and each finding says which", () => {
  for (const [checks, expected] of [
    [findings({ ...FLEET, nodes: [] }), ["bad fleet : no node"]],
    [
      findingsWith({ status: "unreachable", lastHeartbeatAt: ago(180_000) }),
      [/^bad node a: unreachable, last seen 3 ?min/],
    ],
    [findingsWith({ availableMemoryMb: 600 }), ["bad node a: 600 of 16000 MB of memory are free"]],
    [findingsWith({ clockAheadMs: -300_000 }), ["bad node a: its clock is 5 min behind"]],
    [findingsWith({ certificateExpiresAt: ago(-3_600_000) }), ["bad node a: its certificate expires in 60 min"]],
    [findingsWith({ availableDiskGb: 1 }), ["bad node a: 1 of 100 GB of its disk are free"]],
  ] as const) {
    const shown = texts(checks);
    assert.equal(shown.length, expected.length, shown.join("; "));
    for (const [index, text] of shown.entries()) assert.match(text, new RegExp(expected[index] ?? ""));
    for (const { action } of checks.filter(({ severity }) => severity === "bad")) assert.notEqual(action, "");
  }
});

test("a node whose processes wait for memory needs action, and one that is short of processors or disk deserves a look", () => {
  const none = { some: 0, full: 0 };
  const calm = { cpu: { some: 60, full: 0 }, memory: { some: 30, full: 5 }, io: { some: 95, full: 20 } };
  assert.deepEqual(texts(findingsWith({ pressure: calm })), []);
  assert.deepEqual(texts(findingsWith({ pressure: null })), []);
  assert.deepEqual(texts(findingsWith({ pressure: { ...calm, memory: { some: 40, full: 12 } } })), [
    "bad node a: all its processes waited for memory for 12 % of the last minute",
  ]);
  assert.deepEqual(
    texts(findingsWith({ pressure: { cpu: { some: 91, full: 0 }, memory: none, io: { some: 95, full: 50 } } })),
    [
      "warn node a: processes waited for a processor for 91 % of the last minute",
      "warn node a: all its processes waited for the disk for 50 % of the last minute",
    ],
  );
});

test("what an operator chose, and what passes, is shown without a need for action", () => {
  assert.deepEqual(texts(findingsWith({ cordonedAt: ago(0) })), ["warn node a: cordoned"]);
  assert.deepEqual(texts(findingsWith({ unknownMachines: ["m-1", "m-2"] })), [
    "warn node a: 2 unknown machines: m-1, m-2",
  ]);
  assert.deepEqual(texts(findingsWith({ status: "drained" })), ["warn node a: drained"]);
  assert.deepEqual(texts(findingsWith({ status: "revoked" })), ["warn node a: revoked"]);
  const silent = new Map([["a", "connection refused"]]);
  assert.deepEqual(texts(findingsWith({}, { answers: silent })), [
    "warn node a: it reports, and does not answer this server: connection refused",
  ]);
  assert.deepEqual(texts(findingsWith({ lastHeartbeatAt: null })), ["warn node a: never reported"]);
});

test("nodes of which nothing is replaced are one finding that needs action, with the reason", () => {
  const silent = {
    ...NODE,
    status: "unreachable",
    heldAt: ago(1_000),
    heldReason: "2 of 3 nodes do not report",
  } as const;
  const held = (nodes: FleetState["nodes"]) =>
    findings({ ...FLEET, nodes }).filter(({ code }) => code === "replacement_held");
  const [found, ...others] = held([NODE, { ...silent, id: "b" }, { ...silent, id: "c" }]);
  assert.deepEqual(others, []);
  assert.equal(found?.severity, "bad");
  assert.equal(found.message, "NOTHING IS REPLACED of 2 nodes: 2 of 3 nodes do not report");
  assert.match(found.action, /flotilla node replace-lost/);
  assert.deepEqual(held([NODE, { ...silent, lostAt: ago(500) }]), []);
  assert.deepEqual(held([{ ...silent, status: "ready" }]), []);
});

test("a node under maintenance raises no alarm while it is away", () => {
  const away = { status: "unreachable", maintenanceAt: ago(3_600_000), cordonedAt: ago(3_600_000) } as const;
  assert.deepEqual(texts(findingsWith({ ...away, lastHeartbeatAt: ago(180_000) })), [
    "warn node a: under maintenance for 60 min, last seen 3 min ago",
  ]);
  assert.deepEqual(texts(findingsWith({ ...away, status: "ready" })), ["warn node a: under maintenance for 60 min"]);
});

test("the last error of a node is shown: a recent one deserves a look, an old one is only said", () => {
  const failed = (at: number) => findingsWith({ lastError: { at, message: "the journal could not be written" } });
  assert.deepEqual(texts(failed(ago(300_000))), [
    "warn node a: last error 5 min ago: the journal could not be written",
  ]);
  assert.deepEqual(texts(failed(ago(YEAR_MS))), []);
  assert.match(failed(ago(YEAR_MS))[1]?.message ?? "", /^last error 365 d ago: the journal/);
});

test("each server and its version is listed; one release apart is said, and more than one needs action", () => {
  const server = { id: "s", host: "one", release: "0.1.0", linkVersion: 3, startedAt: ago(7_200_000), seenAt: ago(0) };
  const same = findingsWith({}, { servers: [server] });
  assert.equal(
    `${same[0]?.subject.kind} ${same[0]?.subject.id}: ${same[0]?.message}`,
    "server one: 0.1.0, link 3, up for 2 h",
  );
  assert.deepEqual(texts(same), []);
  const next = { ...server, host: "two", release: "0.2.0", linkVersion: 4 };
  assert.deepEqual(texts(findingsWith({}, { servers: [server, next] })), [
    "warn fleet : versions 0.1.0 (server one, node a); 0.2.0 (server two)",
  ]);
  // As the servers' database has it; this host's clock may differ.
  const silent = { ...server, host: "dead", seenAt: ago(25_000) };
  assert.deepEqual(texts(findingsWith({}, { servers: [server, silent] })), [
    "warn server dead: 0.1.0, link 3, silent for 25 s",
  ]);
  assert.deepEqual(texts(findingsWith({}, { servers: [silent] })), []);
  assert.deepEqual(texts(findingsWith({ linkVersion: 2 }, { servers: [next] })), [
    "bad fleet : versions more than one release apart: link 4, and node a has 2",
  ]);
});

test("an authority that expires soon needs action, and one that was replaced names the nodes that still need it", () => {
  const of = (...authorities: readonly (typeof AUTHORITY)[]) => findingsWith({}, { authorities });
  const name = `bad authority ${AUTHORITY.fingerprint}`;
  assert.deepEqual(texts(of({ ...AUTHORITY, expiresAt: ago(-3_600_000) })), [`${name}: expires in 60 min`]);
  assert.deepEqual(texts(of({ ...AUTHORITY, expiresAt: ago(1) })), [`${name}: has expired`]);
  const early = { ...AUTHORITY, createdAt: ago(-2 * YEAR_MS), expiresAt: ago(-12 * YEAR_MS) };
  assert.deepEqual(texts(of(early)), [`${name}: is not valid yet: it was made by a clock that was ahead`]);
  const replaced = { ...AUTHORITY, fingerprint: "e".repeat(64) };
  const waiting = findingsWith({ status: "unreachable" }, { authorities: [AUTHORITY, replaced] });
  assert.match(waiting.at(-1)?.action ?? "", /when these nodes have reported: a$/);
  assert.match(of(AUTHORITY, replaced).at(-1)?.action ?? "", /`flotilla authority rm e/);
});

test("nodes are judged also when the authorities cannot be read", () => {
  const all = findingsWith({ availableDiskGb: 1 }, { authorities: "they were encrypted with another key" });
  assert.deepEqual(
    all.map(({ code }) => code),
    ["disk_short", "authorities_unreadable"],
  );
  assert.equal(all[1]?.action, "they were encrypted with another key");
});

test("a status that says no more than that the node is away hides what it reported before", () => {
  const away = findingsWith({ status: "unreachable", availableDiskGb: 1, availableMemoryMb: 1 });
  assert.deepEqual(texts(away), ["bad node a: unreachable, last seen 2 s ago"]);
});

test("every code of the contract is found in one of these tests", () => {
  assert.deepEqual(
    FINDING_CODES.filter((code) => !seen.has(code)),
    [],
  );
});
