/**
 * Hosts that disconnect and reconnect: the agent's side of a channel whose host was killed, and invalid
 * bytes.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { encodeFrame, FRAME_EXTRA_BYTES, HOST_FRAMES } from "@flotilla/contract/guest/frame";
import { FieldWriter } from "@flotilla/contract/guest/messages";
import type { GuestExec } from "@flotilla/node/guest/guest";
import fc from "fast-check";
import { outcome, request, startAgent, type TestAgent, until } from "./agent.ts";
import { Line } from "./line.ts";

async function withAgent(body: (agent: TestAgent) => Promise<void>, expectedLog: RegExp = /^$/): Promise<void> {
  const agent = startAgent({ hasCgroup: true });
  try {
    await body(agent);
  } finally {
    const code = await agent.end();
    assert.match(agent.log(), expectedLog);
    assert.equal(code, 0);
  }
}

const complaint = /^(flotilla agent: received invalid bytes from the host; waiting for a hello\n)*$/;
/** Garbage may be a valid request to warm up with an invalid configuration. */
const complaintOrWarmUp =
  /^(flotilla agent: (received invalid bytes from the host; waiting for a hello|cannot warm up: .*)\n)*$/;

const ALL = [...Object.values(HOST_FRAMES), 0x55];
/** A machine with its own environment, so that a warm-up gets as far as its commands. */
const CONFIGURATION = new FieldWriter()
  .u32("request", 1)
  .text("hostname", "h")
  .text("machineId", "a".repeat(32))
  .u64("now", 1)
  .bytes("entropy", Buffer.alloc(32, 1))
  .text("workdir", "/")
  .text("user", "")
  .text("environment", `A=${"x".repeat(60_000)}`)
  .end();

function isRunning(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

/** Ignores the result of a command whose channel will be lost. */
function abandon(exec: GuestExec): GuestExec {
  exec.stdout.resume();
  exec.stderr.resume();
  return exec;
}

test("after a host was killed in the middle of any frame, the next one works", () =>
  withAgent(async (agent) => {
    const payload = new FieldWriter().texts("argument", ["touch", "/never"]).end();
    const frames = [
      encodeFrame({ type: HOST_FRAMES.exec, channel: 7 }, payload),
      encodeFrame({ type: HOST_FRAMES.exec, channel: 7, flags: 1 }, payload),
      encodeFrame({ type: HOST_FRAMES.stdin, channel: 1 }, randomBytes(65_536)),
    ];
    for (const frame of frames) {
      const cuts = [1, 2, 5, 9, 11, 12, 13, frame.length >> 1, frame.length - 1];
      for (const cut of cuts) {
        const line = new Line(agent.socket);
        const host = await agent.connect(line);
        assert.equal((await outcome(host.exec(request(["echo", "one"])))).stdout, "one\n");
        line.write(frame.subarray(0, cut));
        await new Promise((resolve) => line.end(resolve));
        host.close();
        const next = new Line(agent.socket);
        const guest = await agent.connect(next);
        assert.equal((await outcome(guest.exec(request(["echo", "two"])))).stdout, "two\n", `cut at ${cut}`);
        guest.close();
      }
    }
  }, complaint));

test("incomplete input never reaches a command, not even completed with zeros", async () => {
  const directory = mkdtempSync(join(tmpdir(), "flotilla-reconnect-"));
  await withAgent(async (agent) => {
    const line = new Line(agent.socket);
    const host = await agent.connect(line);
    const exec = abandon(host.exec(request(["sh", "-c", `trap '' TERM; cat > ${directory}/got`], { hasStdin: true })));
    await exec.pid;
    exec.stdin.write("whole");
    const got = () => (existsSync(join(directory, "got")) ? readFileSync(join(directory, "got"), "utf8") : "");
    await until(() => got() === "whole");
    const frame = encodeFrame({ type: HOST_FRAMES.stdin, channel: 1 }, Buffer.from("half of this is lost"));
    line.write(frame.subarray(0, FRAME_EXTRA_BYTES + 5));
    host.close();
    const guest = await agent.connect(new Line(agent.socket));
    await guest.sync();
    assert.equal(got(), "whole");
  }, complaint);
  rmSync(directory, { recursive: true });
});

test("commands of a lost host are killed, background commands continue, and the machine stays configured", () =>
  withAgent(async (agent) => {
    const host = await agent.connect(new Line(agent.socket));
    await host.configure({
      hostname: "box",
      machineId: "0".repeat(32),
      now: 1,
      entropy: new Uint8Array(32),
      env: { KEPT: "yes" },
      workdir: "/usr",
      user: "",
      rootDevice: null,
      rootBytes: null,
      nameservers: [],
      address: null,
    });
    const lost = [
      abandon(host.exec(request(["sleep", "100"]))),
      abandon(host.exec(request(["sh", "-c", "setsid sleep 100; :"]))),
      abandon(host.exec(request(["sleep", "100"], { terminal: { cols: 80, rows: 24 } }))),
      host.exec(request(["yes"])),
    ];
    const background = host.exec(request(["sleep", "100"], { isBackground: true }));
    const pids = await Promise.all(lost.map((exec) => exec.pid));
    const backgroundPid = await background.pid;
    await until(() => (lost[3]?.stdout.readableLength ?? 0) > 200_000);
    host.close();
    for (const exec of lost) await assert.rejects(exec.exit, /channel to the guest agent is lost: the host closed it/);
    assert.equal(await host.closed, "the host closed it");
    const guest = await agent.connect(new Line(agent.socket));
    assert.equal(guest.hello.isConfigured, true);
    await until(() => pids.every((pid) => !isRunning(pid)));
    assert(isRunning(backgroundPid));
    process.kill(backgroundPid);
    assert.equal((await outcome(guest.exec(request(["sh", "-c", "echo $KEPT $PWD"])))).stdout, "yes /usr\n");
  }));

test("a host that connects while the agent is writing finds its answer", () =>
  withAgent(async (agent) => {
    for (let round = 0; round < 20; round++) {
      const host = await agent.connect(new Line(agent.socket));
      const floods = Array.from({ length: 4 }, () => abandon(host.exec(request(["yes"]))));
      await Promise.all(floods.map((exec) => exec.pid));
      host.close();
    }
    const guest = await agent.connect(new Line(agent.socket));
    await guest.sync();
  }));

/** What no host sends: any frames of these types with the content of others, and bytes between them. */
function garbageOf(types: readonly number[]): fc.Arbitrary<Uint8Array[]> {
  const frame = fc
    .record({
      type: fc.constantFrom(...types),
      channel: fc.constantFrom(0, 1, 2, 256, 257, 0xffff_ffff),
      flags: fc.constantFrom(0, 1),
      payload: fc.oneof(
        fc.uint8Array({ maxLength: 64 }),
        fc.constant(new FieldWriter().u32("request", 1).end()),
        fc.constant(CONFIGURATION),
        fc.constant(new FieldWriter().text("argument", "true").end()),
        fc.constant(new FieldWriter().text("argument", "cat").u32("hasStdin", 1).end()),
        fc.constant(new FieldWriter().u32("stream", 1).u32("bytes", 0xffff_ffff).end()),
        fc.constant(new FieldWriter().u32("request", 1).text("argument", "yes").u64("offset", 0).end()),
        fc.constant(
          new FieldWriter()
            .u64("offset", 2 ** 52)
            .u32("bytes", 0xffff_ffff)
            .end(),
        ),
        fc.constant(new FieldWriter().u32("cols", 1).u32("rows", 70_000).text("argument", "true").end()),
      ),
    })
    .map(({ payload, ...header }) => encodeFrame(header, payload));
  return fc.array(fc.oneof(fc.uint8Array({ maxLength: 100 }), frame), { minLength: 1, maxLength: 12 });
}

test("after any garbage from a host, the next host can use the agent", () =>
  withAgent(async (agent) => {
    await fc.assert(
      fc.asyncProperty(garbageOf(ALL.filter((type) => type !== HOST_FRAMES.shutDown)), async (pieces) => {
        const line = new Line(agent.socket);
        const host = await agent.connect(line);
        for (const piece of pieces) line.write(piece);
        host.close();
        const next = await agent.connect(new Line(agent.socket));
        await next.sync();
        assert.equal((await outcome(next.exec(request(["echo", "fine"])))).stdout, "fine\n");
        next.close();
      }),
      { numRuns: 150 },
    );
  }, complaintOrWarmUp));

test("an agent that shuts down asks its commands to end and refuses new ones", async () => {
  const agent = startAgent();
  const guest = await agent.connect();
  const exec = guest.exec(request(["sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"]));
  await new Promise((resolve) => exec.stdout.once("data", resolve));
  await guest.shutDown();
  assert.equal((await exec.exit).exitCode, 9);
  assert.match(await guest.closed, /closed/);
  assert.equal(await agent.end(), 0);
});

test("whatever was sent before and after a request to shut down, the agent ends", async () => {
  const shutDown = encodeFrame({ type: HOST_FRAMES.shutDown, channel: 0 }, new FieldWriter().u32("request", 9).end());
  await fc.assert(
    fc.asyncProperty(garbageOf(ALL), garbageOf(ALL), async (before, after) => {
      const agent = startAgent({ hasCgroup: true });
      const ended = once(agent.socket, "close");
      // Also after its host has left.
      agent.socket.on("error", () => undefined).resume();
      const host = await agent.connect(new Line(agent.socket));
      agent.socket.write(Buffer.concat(before));
      host.close();
      const isLost = await agent.connect(new Line(agent.socket)).then(
        () => false,
        () => true,
      );
      // What came before may have been a request to shut down.
      if (!isLost) agent.socket.write(Buffer.concat([shutDown, ...after]));
      await ended;
      const code = await agent.end();
      assert.match(agent.log(), complaintOrWarmUp);
      assert.equal(code, 0);
    }),
    { numRuns: 30 },
  );
});
