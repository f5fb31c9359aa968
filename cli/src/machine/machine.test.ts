/**
 * The pure parts of the machine verbs: finding a machine by what a user typed, request bodies of create and
 * exec, and how a machine is displayed.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { MachineInfo } from "@flotilla/sdk";
import { Failure } from "../failure.ts";
import { renderFacts } from "../table.ts";
import { createRequest } from "./create.ts";
import { execRequest } from "./exec.ts";
import { pickMachine } from "./find.ts";
import { leftText } from "./placement.ts";
import { explain } from "./start.ts";
import { treeOf } from "./tree.ts";
import { machineFacts, machineRow } from "./view.ts";

const CREATED = "2026-07-22T20:00:00.000Z";
const NOW = Date.parse(CREATED) + 180_000;
const id = (digits: string): string => `mach-${digits.padEnd(32, "0")}`;

const machine = (facts: Partial<MachineInfo>): MachineInfo => ({
  id: id("abcd"),
  name: "web",
  source: { type: "image", reference: "local/busybox" },
  state: "stopped",
  resources: { cpus: 4, memoryMb: 8192, diskGb: 20 },
  network: { mode: "open" },
  env: {},
  secretEnvNames: [],
  ephemeral: false,
  createdAt: CREATED,
  updatedAt: CREATED,
  autoStopSeconds: null,
  lastActivityAt: null,
  ttlSeconds: null,
  atEnd: "delete",
  restart: "always",
  disruption: "migrate",
  workdir: null,
  pauseReason: null,
  unresponsiveSince: null,
  suspendedAt: null,
  ready: false,
  readyAt: null,
  ports: [],
  url: null,
  arch: null,
  error: null,
  labels: {},
  createdBy: null,
  parentMachineId: null,
  forkable: false,
  branchable: false,
  hooks: null,
  public: false,
  command: null,
  nodeId: null,
  nodeLabels: {},
  startTimings: null,
  capabilities: {
    ...{ exec: false, branch: false, branchBatch: false, nestedBranch: false, maxBranchBatch: 0 },
    ...{ fork: false, forkBatch: false, nestedFork: false, maxForkBatch: 0 },
  },
  ...facts,
});

const MACHINES = [
  machine({ id: id("abcd1"), name: "web" }),
  machine({ id: id("abcd2"), name: "db" }),
  machine({ id: id("ffff"), name: "abcd1" }),
];

test("a machine is found by its whole id, its name, or the beginning of its id, in this order", () => {
  assert.equal(pickMachine(MACHINES, id("abcd1")).name, "web");
  assert.equal(pickMachine(MACHINES, "db").id, id("abcd2"));
  assert.equal(pickMachine(MACHINES, "abcd1").id, id("ffff"), "a name wins over another's beginning");
  assert.equal(pickMachine(MACHINES, "abcd2").name, "db");
  assert.equal(pickMachine(MACHINES, "mach-ffff").name, "abcd1");
});

test("a name that matches several machines or none lists the machines", () => {
  assert.throws(() => pickMachine(MACHINES, "abcd"), /fits 2 machines: web, db/);
  assert.throws(() => pickMachine(MACHINES, "abc"), /no machine called "abc"/, "three digits are too short");
  assert.throws(
    () => pickMachine(MACHINES, "wbe"),
    (error) => error instanceof Failure && /there is: web, db, abcd1/.test(error.advice ?? ""),
  );
  assert.throws(
    () => pickMachine([], "web"),
    (error) => error instanceof Failure && /there are no machines/.test(error.advice ?? ""),
  );
});

test("create sends what was given and leaves the rest to the server's defaults", () => {
  const source = { type: "image", reference: "alpine" };
  assert.deepEqual(createRequest("alpine", {}), { source });
  assert.deepEqual(createRequest("alpine", { name: "web", memory: 512, port: [80], autoStop: 60, label: { a: "b" } }), {
    source,
    name: "web",
    resources: { cpus: undefined, memoryMb: 512, diskGb: undefined },
    ports: [{ port: 80 }],
    autoStopSeconds: 60,
    labels: { a: "b" },
  });
});

test("allowed networks and hosts block all others, and exclude --network", () => {
  assert.deepEqual(createRequest("a", { network: "blocked" }).network, { mode: "blocked" });
  assert.deepEqual(createRequest("a", { hook: { fork: "date >/made", stop: "sync" } }).hooks, {
    fork: { command: ["sh", "-c", "date >/made"] },
    stop: { command: ["sh", "-c", "sync"] },
  });
  assert.deepEqual(createRequest("a", { allowCidr: ["10.0.0.0/8"] }).network, {
    mode: "allowCidrs",
    cidrs: ["10.0.0.0/8"],
    hosts: [],
  });
  assert.throws(() => createRequest("a", { network: "open", allowHost: ["x"] }), /exclude each other/);
});

test("exec sends the command as it was written, and input only when there is some", () => {
  assert.deepEqual(execRequest(["sh", "-c", "a | b"], {}, null), { command: ["sh", "-c", "a | b"] });
  assert.deepEqual(execRequest(["a | b"], {}, null), { command: "a | b" });
  assert.deepEqual(execRequest(["cat"], { cwd: "/w", env: { A: "" }, user: "1", timeout: 5, background: true }, ""), {
    command: "cat",
    cwd: "/w",
    env: { A: "" },
    user: "1",
    timeoutSeconds: 5,
    background: true,
    stdin: "",
  });
});

test("a machine's row says its state, and whether it is ready", () => {
  assert.deepEqual(machineRow(machine({}), NOW), ["web", "stopped", "local/busybox", "4", "8 GB", "3 min", id("abcd")]);
  assert.equal(machineRow(machine({ state: "started" }), NOW)[1], "started, not ready");
  assert.equal(machineRow(machine({ state: "started", ready: true }), NOW)[1], "started");
});

test("everything about a machine is shown as a list of facts", () => {
  const facts = machineFacts(
    machine({
      state: "started",
      ready: true,
      readyAt: "2026-07-22T20:02:50.000Z",
      network: { mode: "allowCidrs", cidrs: ["10.0.0.0/8"], hosts: ["example.org"] },
      ports: [{ port: 80, hostPort: 40_001 }],
      env: { A: "b" },
      hooks: { fork: { command: ["true"] }, stop: { command: ["sync"], timeoutSecs: 5 } },
      ephemeral: true,
      ttlSeconds: 7200,
      nodeId: "node-1",
    }),
    NOW,
  );
  assert.deepEqual(renderFacts(facts), [
    "name         web",
    `id           ${id("abcd")}`,
    "state        started, ready since 10 s",
    "image        local/busybox",
    "size         4 CPUs, 8 GB memory, 20 GB disk",
    "network      only 10.0.0.0/8, example.org",
    "ports        80 (on the node: 40001)",
    "environment  A=b",
    "hooks        fork, stop",
    "lifetime     deleted once stopped, deleted 2 h after creation",
    `created      3 min ago (${CREATED})`,
    "node         node-1",
  ]);
});

test("a machine in error shows the reason, without control characters", () => {
  const facts = machineFacts(machine({ state: "error", error: "image \x1b[31mnot\x1b[0m found" }), NOW);
  assert.match(renderFacts(facts)[2] ?? "", /^state +error: image not found$/);
});

test("the duration of a start is shown by phase, without phases that did not happen", () => {
  assert.deepEqual(explain({ vm: "prepared", diskMs: 1.25, bootMs: 20, totalMs: 61 }, 74.04), [
    "disk                    1.3 ms",
    "virtual machine        20.0 ms  a prepared one",
    "all on the node        61.0 ms",
    "as seen from here      74.0 ms",
  ]);
  assert.deepEqual(explain(null, 5), ["as seen from here       5.0 ms"]);
});

test("an explanation counts the nodes that each filter left, and says so when none is excluded", () => {
  const nodes = ["a", "b", "c"].map((nodeId) => ({ nodeId, filter: null, reason: null, score: null }));
  const filters = (status: number, labels: number) => [
    { name: "status" as const, left: status },
    { name: "cordon" as const, left: status },
    { name: "labels" as const, left: labels },
  ];
  assert.equal(leftText({ nodes, filters: filters(3, 3) }), "nodes: 3, no filter excludes one");
  assert.equal(leftText({ nodes, filters: filters(2, 0) }), "nodes: 3; 2 left by status, 0 left by labels");
});

test("a tree has each machine and checkpoint below what it was made of, and marks the one that was asked for", () => {
  const of = (name: string, parent: string | null, state: MachineInfo["state"] = "started") =>
    machine({ id: id(name), name, state, parentMachineId: parent === null ? null : id(parent) });
  const machines = [of("root", null, "stopped"), of("a", "root"), of("orphan", "gone"), of("b", "root"), of("aa", "a")];
  const checkpoints = [
    { id: "ckpt-1", machineId: id("a"), name: "before", status: "available" as const },
    { id: "ckpt-2", machineId: id("a"), name: null, status: "creating" as const },
    { id: "ckpt-3", machineId: id("gone"), name: "elsewhere", status: "failed" as const },
  ];
  const memory = [{ machineId: id("a"), ownBytes: 12_300_000, sharedBytes: 70e6 }];
  assert.deepEqual(treeOf({ machines, memory, checkpoints }, id("b")), [
    "root  stopped",
    "  a  started  12 MB of memory its own, 70 MB shared",
    "    before  checkpoint, available",
    "    ckpt-2  checkpoint, creating",
    "    aa  started",
    "  b  started  <",
    "orphan  started",
  ]);
});
