/**
 * Messages of the link are read with suspicion, and with patience for other versions.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { absentMachine } from "./absent.ts";
import * as readers from "./generated.ts";
import { InvalidMessage } from "./read.ts";

const { readDesiredMachine, readExecStart, readHeartbeat, readImageProgress, readNodeImage, readObservedMachine } =
  readers;

const MACHINE_ID = `mach-${"a".repeat(32)}`;
const RESOURCES = {
  totalCpus: 2,
  totalMemoryMb: 1000,
  availableMemoryMb: 500,
  totalDiskGb: 10,
  availableDiskGb: 5,
  usedCpus: 0.25,
  usedMemoryMb: 500,
  usedDiskGb: 5,
  pressure: null,
};
const SPEC = {
  machineId: MACHINE_ID,
  tenantId: "tenant-1",
  hostname: "test",
  image: { reference: "local/busybox", arch: null },
  cpus: 1,
  memoryMb: 256,
  diskGb: 1,
  network: { mode: "open" },
  env: { A: "1" },
  workdir: "/srv",
  command: ["sh", "-c", "true"],
  ports: [{ port: 80 }],
  restart: "never",
  disruption: "migrate",
  health: {
    ...{ type: "http", path: "/healthz?deep=1", port: 80, command: null, host: "web.example.com:8443" },
    ...{ intervalMs: 10_000, timeoutMs: 5_000, retries: 3 },
  },
  hooks: { fork: { command: ["date"], timeoutMs: 60_000 }, stop: { command: ["sync"], timeoutMs: 1_000 } },
};
const DESIRED = { generation: 1, state: "running", spec: SPEC };

test("a report that fits is read as it is", () => {
  const seen = {
    ...absentMachine(MACHINE_ID, 3),
    state: "running",
    bootId: "boot-1",
    hostPorts: [{ port: 80, hostPort: 3000 }],
    timings: { vm: "prepared", bootMs: 5 },
    reasonCode: "image_not_found",
    health: { status: "unhealthy", since: 7, reason: "nothing listens on port 80" },
  };
  assert.deepEqual(readObservedMachine(seen), seen);
  const heartbeat = { bootId: "agent-1", isComplete: true, resources: RESOURCES, machines: [seen], events: [] };
  const link = { version: 1, lowest: 1 };
  const absent = {
    runs: null,
    images: null,
    sentAt: null,
    release: null,
    lastError: null,
    outdatedVmms: null,
    canFence: false,
    incomingMoves: [],
  };
  const read = { ...heartbeat, link, ...absent };
  assert.deepEqual(readHeartbeat(heartbeat), read, "a node that names no version has the first");
});

test("a desired machine that fits is read as it is", () => {
  assert.deepEqual(readDesiredMachine(DESIRED), DESIRED);
  assert.deepEqual(readDesiredMachine({ generation: 2, state: "absent" }), {
    generation: 2,
    state: "absent",
    spec: null,
  });
});

test("a reason code that is missing or unknown is none, because other versions have other codes", () => {
  for (const reasonCode of [undefined, null, "image_eaten", 7, {}])
    assert.equal(readObservedMachine({ ...absentMachine(MACHINE_ID, 1), reasonCode }).reasonCode, null);
});

test("unknown fields are dropped, and a field that a version added has its default", () => {
  const { restart: _restart, disruption: _disruption, health: _health, ...older } = SPEC;
  const read = readDesiredMachine({ ...DESIRED, spec: { ...older, colour: "red" }, mood: 1 });
  assert.deepEqual(read, { ...DESIRED, spec: { ...older, restart: "always", disruption: "restart", health: null } });
  assert.equal(readNodeImage({ ...IMAGE, colour: "red" }).tenantId, null);
});

const IMAGE = {
  reference: "local/a",
  digest: "sha256:1",
  sizeBytes: 1,
  architecture: "amd64",
  os: "linux",
  layerCount: 1,
  lastUsedAt: null,
};

test("text that the database cannot hold is cleaned, and numbers and lists without end are cut", () => {
  const seen = readObservedMachine({
    ...absentMachine(MACHINE_ID, 1),
    reason: `a\0b\ud800${"x".repeat(100_000)}`,
    generation: 1e300,
    hostPorts: Array.from({ length: 1000 }, () => ({ port: 80, hostPort: 1e9 })),
  });
  assert.equal(seen.reason?.slice(0, 4), "ab\ufffdx");
  assert.equal(seen.reason?.length, 1_999);
  assert.equal(seen.generation, 2_000_000_000);
  assert.equal(seen.hostPorts.length, 64);
  assert.deepEqual(seen.hostPorts[0], { port: 80, hostPort: 65_535 });
});

test("a command, an environment or a number out of bounds is refused on the node", () => {
  const bad: unknown[] = [
    { ...DESIRED, generation: 0 },
    { ...DESIRED, generation: 1.5 },
    { ...DESIRED, spec: { ...SPEC, memoryMb: 1e9 } },
    { ...DESIRED, spec: { ...SPEC, workdir: "relative" } },
    { ...DESIRED, spec: { ...SPEC, hooks: { fork: { command: ["date"], timeoutMs: 60_001 } } } },
    { ...DESIRED, spec: { ...SPEC, hooks: { stop: { command: "sync", timeoutMs: 1_000 } } } },
    { ...DESIRED, spec: { ...SPEC, hooks: "sync" } },
    { ...DESIRED, spec: { ...SPEC, env: { "A=B": "c" } } },
    { ...DESIRED, spec: { ...SPEC, env: { A: "nul\0" } } },
    { ...DESIRED, spec: { ...SPEC, env: { A: "x".repeat(600_000) } } },
    { ...DESIRED, spec: { ...SPEC, env: Object.fromEntries(numbers(9).map((n) => [`A${n}`, "x".repeat(60_000)])) } },
    { ...DESIRED, spec: { ...SPEC, command: numbers(11).map(() => "x".repeat(100_000)) } },
    { ...DESIRED, spec: { ...SPEC, image: { reference: "--help", arch: null } } },
    ...["relative", "/a b", "/a\r\nb"].map((path) => ({
      ...DESIRED,
      spec: { ...SPEC, health: { ...SPEC.health, path } },
    })),
    ...["", "a b", "a\r\nb: c"].map((host) => ({ ...DESIRED, spec: { ...SPEC, health: { ...SPEC.health, host } } })),
    { ...DESIRED, spec: { ...SPEC, health: { ...SPEC.health, intervalMs: 0 } } },
    { ...DESIRED, spec: { ...SPEC, ports: numbers(17).map((port) => ({ port: port + 1 })) } },
  ];
  for (const body of bad)
    assert.throws(() => readDesiredMachine(body), InvalidMessage, JSON.stringify(body).slice(0, 90));
});

const numbers = (length: number): number[] => Array.from({ length }, (_, index) => index);

test("a variable called __proto__ is a variable", () => {
  const env = JSON.parse('{"__proto__": "x"}') as object;
  assert.deepEqual(Object.entries(readExecStart({ argv: ["env"], env }).env), [["__proto__", "x"]]);
});

test("a check that says only what it checks has the defaults", () => {
  const spec = { ...SPEC, health: { type: "tcp", port: 80 } };
  assert.deepEqual(readDesiredMachine({ ...DESIRED, spec }).spec?.health, {
    ...{ type: "tcp", path: null, port: 80, command: null, host: null },
    ...{ intervalMs: 10_000, timeoutMs: 5_000, retries: 3 },
  });
});

test("a line of an image is read by its kind", () => {
  assert.deepEqual(readImageProgress({ kind: "failed", message: "no", reasonCode: "image_refused" }), {
    kind: "failed",
    message: "no",
    reasonCode: "image_refused",
  });
  assert.deepEqual(readImageProgress({ kind: "done", image: IMAGE }), {
    kind: "done",
    image: { ...IMAGE, tenantId: null, exposedPort: null },
  });
  assert.throws(() => readImageProgress({ kind: "odd" }), /ImageProgress.kind: expected one of progress, done, failed/);
});

test("any value is refused as InvalidMessage, or read again as itself", () => {
  const shapes = fc.record(
    {
      machineId: fc.constant(MACHINE_ID),
      generation: fc.nat(),
      state: fc.constantFrom("running", "odd"),
      reason: fc.anything(),
    },
    { requiredKeys: [] },
  );
  for (const read of Object.values(readers)) {
    fc.assert(
      fc.property(fc.oneof(fc.anything(), shapes), (value) => {
        try {
          const message = read(value);
          assert.deepEqual(read(structuredClone(message)), message);
        } catch (error) {
          assert.ok(error instanceof InvalidMessage, String(error));
        }
      }),
      { numRuns: 50 },
    );
  }
});
