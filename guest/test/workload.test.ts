/**
 * The machine's workload in the agent: started once, its output received by whichever host is connected, and
 * never blocked for long by a missing host.
 */
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { WORKLOAD_WINDOW_BYTES } from "@flotilla/contract/guest/frame";
import type { Guest, GuestWorkload } from "@flotilla/node/guest/guest";
import { outcome, request, startAgent, type TestAgent, until } from "./agent.ts";
import { Line } from "./line.ts";

async function withAgent(body: (agent: TestAgent, directory: string) => Promise<void>): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), "flotilla-workload-"));
  const agent = startAgent({ hasCgroup: true });
  try {
    await body(agent, directory);
  } finally {
    const code = await agent.end();
    rmSync(directory, { recursive: true });
    assert.equal(agent.log(), "");
    assert.equal(code, 0);
  }
}

async function configured(agent: TestAgent, more: { readonly user?: string } = {}): Promise<Guest> {
  const guest = await agent.connect(new Line(agent.socket));
  await guest.configure({
    hostname: "box",
    machineId: "0".repeat(32),
    now: 1,
    entropy: new Uint8Array(32),
    env: { GREETING: "hello" },
    workdir: "/usr",
    user: more.user ?? "",
    rootDevice: null,
    rootBytes: null,
    nameservers: [],
    address: null,
  });
  return guest;
}

interface ReceivedOutput {
  readonly workload: GuestWorkload;
  text: string;
  readonly ends: number[];
  /** Bytes that the guest dropped. */
  dropped: number;
}

/** Receives the workload's output and acknowledges it if `isAcknowledging`. */
function receive(guest: Guest, argv: readonly string[], { offset = 0, isAcknowledging = true } = {}): ReceivedOutput {
  let next = offset;
  const received: ReceivedOutput = {
    text: "",
    ends: [],
    dropped: 0,
    workload: guest.workload({
      argv,
      offset,
      onOutput: (at, bytes) => {
        received.dropped += at - next;
        next = at + bytes.byteLength;
        received.text += bytes.toString();
        if (isAcknowledging) received.workload.acknowledge(next, bytes.byteLength);
      },
      onEnd: (exitCode) => received.ends.push(exitCode),
    }),
  };
  return received;
}

test("a workload has the machine's environment and directory, no input, and its exit code is reported", () =>
  withAgent(async (agent) => {
    const guest = await configured(agent);
    const received = receive(guest, ["sh", "-c", "echo $GREETING $PWD; cat; echo oh >&2; exit 3"]);
    await received.workload.started;
    await until(() => received.ends.length > 0);
    assert.deepEqual([received.text, received.ends], ["hello /usr\noh\n", [3]]);
  }));

test("a missing program ends the workload with a message; before configure a workload is refused", () =>
  withAgent(async (agent) => {
    const early = receive(await agent.connect(new Line(agent.socket)), ["true"]);
    await assert.rejects(early.workload.started, /the guest is not configured yet/);
    const received = receive(await configured(agent), ["/no/such"]);
    await received.workload.started;
    await until(() => received.ends.length > 0);
    assert.deepEqual(received.ends, [255]);
    assert.match(received.text, /^executable file '\/no\/such' not found in \$PATH: No such file or directory\n$/);
  }));

test("a reconnecting host gets the output it missed, nothing twice, and starts nothing again", () =>
  withAgent(async (agent, directory) => {
    const path = join(directory, "go");
    const script = `echo start >> ${directory}/starts; echo 1; until [ -e ${path} ]; do sleep 0.02; done; echo 2; echo 3`;
    const first = await configured(agent);
    const before = receive(first, ["sh", "-c", script]);
    await until(() => before.text === "1\n");
    // The previous host had received the first line and acknowledged only one byte.
    first.close();
    const second = await agent.connect(new Line(agent.socket));
    assert.equal((await outcome(second.exec(request(["touch", path])))).exitCode, 0);
    second.close();
    const third = await agent.connect(new Line(agent.socket));
    const after = receive(third, ["sh", "-c", `echo again >> ${directory}/starts`], { offset: 2 });
    await until(() => after.ends.length > 0);
    assert.deepEqual([after.text, after.ends, after.dropped], ["2\n3\n", [0], 0]);
    assert.equal(readFileSync(`${directory}/starts`, "utf8"), "start\n");
    third.close();
    // Its end is reported on every request.
    const fourth = receive(await agent.connect(new Line(agent.socket)), ["true"], { offset: 6 });
    await until(() => fourth.ends.length > 0);
    assert.deepEqual([fourth.text, fourth.ends], ["", [0]]);
  }));

test("a host that asks again over the same connection gets the rest once, whatever was on its way", () =>
  withAgent(async (agent) => {
    const guest = await configured(agent);
    const expected = Array.from({ length: 200_000 }, (_, at) => `${at + 1}\n`).join("");
    let text = "";
    let ends = 0;
    const ask = (): void => {
      let isOver = false;
      const from = text.length;
      const workload = guest.workload({
        argv: ["seq", "1", "200000"],
        offset: from,
        onOutput: (offset, bytes) => {
          if (isOver) return;
          assert.equal(offset, text.length);
          text += bytes.toString();
          workload.acknowledge(text.length, bytes.byteLength);
          // More may be in the same piece that was read.
          isOver = text.length - from > 100_000;
          if (isOver) ask();
        },
        onEnd: () => void (isOver || (ends += 1)),
      });
      workload.started.catch(() => undefined);
    };
    ask();
    await until(() => ends > 0);
    assert.equal(text === expected, true, `${text.length} of ${expected.length} bytes`);
  }));

test("a host that acknowledged nothing gets everything again", () =>
  withAgent(async (agent) => {
    const first = await configured(agent);
    const before = receive(first, ["sh", "-c", "echo a; echo b"], { isAcknowledging: false });
    await until(() => before.ends.length > 0);
    first.close();
    const after = receive(await agent.connect(new Line(agent.socket)), ["true"]);
    await until(() => after.ends.length > 0);
    assert.equal(after.text, "a\nb\n");
  }));

test("a workload without a host continues, and its newest output is kept", () =>
  withAgent(async (agent, directory) => {
    const done = join(directory, "done");
    const first = await configured(agent);
    const script = `seq 1 200000; echo last; touch ${done}`;
    const before = receive(first, ["sh", "-c", script], { isAcknowledging: false });
    await until(() => before.text.length === WORKLOAD_WINDOW_BYTES);
    first.close();
    await until(() => existsSync(done));
    const after = receive(await agent.connect(new Line(agent.socket)), ["true"]);
    await until(() => after.ends.length > 0);
    assert.match(after.text, /\n199999\n200000\nlast\n$/);
    assert.equal(after.text.length, WORKLOAD_WINDOW_BYTES);
    assert.ok(after.dropped > 500_000, `${after.dropped}`);
  }));

test("a host that stops acknowledging gets no more than the window, and commands continue", () =>
  withAgent(async (agent) => {
    const guest = await configured(agent);
    const received = receive(guest, ["yes"], { isAcknowledging: false });
    await until(() => received.text.length === WORKLOAD_WINDOW_BYTES);
    for (let round = 0; round < 3; round += 1) {
      assert.equal((await outcome(guest.exec(request(["echo", "fine"])))).stdout, "fine\n");
    }
    assert.equal(received.text.length, WORKLOAD_WINDOW_BYTES);
    received.workload.acknowledge(WORKLOAD_WINDOW_BYTES, WORKLOAD_WINDOW_BYTES);
    await until(() => received.text.length === 2 * WORKLOAD_WINDOW_BYTES);
  }));

test("an acknowledged flood arrives completely, while commands are answered", () =>
  withAgent(async (agent) => {
    const guest = await configured(agent);
    const received = receive(guest, ["sh", "-c", "seq 1 1000000"]);
    const echoes = Array.from({ length: 20 }, () => outcome(guest.exec(request(["echo", "fine"]))));
    for (const { stdout } of await Promise.all(echoes)) assert.equal(stdout, "fine\n");
    await until(() => received.ends.length > 0);
    assert.equal(received.dropped, 0);
    assert.equal(received.text.length, 6_888_896);
    assert.ok(received.text.endsWith("999999\n1000000\n"));
  }));

test("output of a workload's children after its end is still sent", () =>
  withAgent(async (agent) => {
    const guest = await configured(agent);
    const received = receive(guest, ["sh", "-c", "(sleep 0.3; echo child) & echo parent; exit 4"]);
    await until(() => received.text.includes("child"));
    assert.deepEqual([received.text, received.ends], ["parent\nchild\n", [4]]);
  }));

test("another user than root may open its outputs by name", { skip: process.getuid?.() !== 0 && "needs root" }, () =>
  withAgent(async (agent) => {
    const guest = await configured(agent, { user: "65534" });
    const received = receive(guest, ["sh", "-c", "id -u > /dev/stdout; echo err > /dev/stderr"]);
    await until(() => received.ends.length > 0);
    assert.deepEqual([received.text, received.ends], ["65534\nerr\n", [0]]);
  }),
);

test("output of a workload during a shutdown is sent", () =>
  withAgent(async (agent) => {
    // It ends before the host has read everything.
    agent.socket.on("error", () => {});
    const guest = await configured(agent);
    // Nothing runs for a moment, as in a guest after a warm-up.
    await outcome(guest.exec(request(["true"])));
    const script = "trap 'sleep 0.3; seq 1 20000; echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    const received = receive(guest, ["sh", "-c", script]);
    await until(() => received.text === "ready\n");
    await guest.shutDown();
    // A busy host: when it reads and answers, everything has been written.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
    await until(() => received.ends.length > 0);
    assert.match(received.text, /\n20000\nbye\n$/);
    assert.deepEqual(received.ends, [7]);
  }));
