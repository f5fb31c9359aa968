/**
 * Commands that outlive their host: the next one continues them where their output and input had been
 * received.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { CHANNELS_MAX, encodeFrame, HOST_FRAMES, KEPT_OUTPUT_BYTES } from "@flotilla/contract/guest/frame";
import { FieldWriter } from "@flotilla/contract/guest/messages";
import { connectGuest } from "@flotilla/node/guest/client";
import type { Guest, GuestExec, ResumedExec } from "@flotilla/node/guest/guest";
import { type AgentOptions, outcome, request, startAgent, type TestAgent, until } from "./agent.ts";
import { Line } from "./line.ts";

async function withAgent(body: (agent: TestAgent) => Promise<void>, options: AgentOptions = {}): Promise<void> {
  const agent = startAgent({ hasCgroup: true, ...options });
  try {
    await body(agent);
  } finally {
    const code = await agent.end();
    assert.equal(agent.log(), "");
    assert.equal(code, 0);
  }
}

/**
 * Hosts that keep commands. Each drops its line as a killed agent does: what is in the socket stays there.
 */
const host = (agent: TestAgent): Promise<Guest> =>
  connectGuest(new Line(agent.socket), { helloTimeoutMs: 20_000, keepsCommands: true });

const keyOf = (): string => randomBytes(16).toString("hex");

/** What a caller has received of a command, over all hosts. */
class Received {
  readonly stdout: Buffer[] = [];
  readonly stderr: Buffer[] = [];
  stdoutOffset = 0;
  stderrOffset = 0;
  #onMore = (): void => undefined;

  follow(exec: GuestExec): void {
    exec.stdout.on("data", (chunk: Buffer) => {
      this.stdout.push(chunk);
      this.stdoutOffset += chunk.byteLength;
      this.#onMore();
    });
    exec.stderr.on("data", (chunk: Buffer) => {
      this.stderr.push(chunk);
      this.stderrOffset += chunk.byteLength;
    });
  }

  /** Resolves in the turn in which this much more has arrived. */
  more(bytes: number): Promise<void> {
    const wanted = this.stdoutOffset + bytes;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onMore = () => {
      if (this.stdoutOffset >= wanted) resolve();
    };
    this.#onMore();
    return promise;
  }

  get text(): string {
    return Buffer.concat(this.stdout).toString();
  }
}

async function resume(guest: Guest, resumeKey: string, received: Received): Promise<ResumedExec> {
  const { stdoutOffset, stderrOffset } = received;
  const resumed = guest.resume?.({ resumeKey, stdoutOffset, stderrOffset });
  assert(resumed);
  received.follow(resumed.exec);
  await resumed.stdinOffset;
  return resumed;
}

function isRunning(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

const numbers = (count: number): string => Array.from({ length: count }, (_, at) => `${at + 1}\n`).join("");

test("a command that prints without pause loses and repeats no byte over many lost hosts", () =>
  withAgent(async (agent) => {
    const resumeKey = keyOf();
    const received = new Received();
    let guest = await host(agent);
    const script = "seq 1 200000; seq 1 20 >&2; seq 1 200000";
    let exec = guest.exec(request(["sh", "-c", script], { resumeKey }));
    received.follow(exec);
    for (let round = 0; round < 8; round += 1) {
      await received.more(50_000);
      guest.close();
      guest = await host(agent);
      ({ exec } = await resume(guest, resumeKey, received));
    }
    assert.equal((await exec.exit).exitCode, 0);
    assert(received.text === numbers(200_000).repeat(2), "every number once, in order");
    assert.equal(Buffer.concat(received.stderr).toString(), numbers(20));
  }));

test("input continues where the guest has received it", () =>
  withAgent(async (agent) => {
    const resumeKey = keyOf();
    const received = new Received();
    const input = randomBytes(1_500_000);
    let guest = await host(agent);
    let exec = guest.exec(request(["cat"], { hasStdin: true, resumeKey }));
    received.follow(exec);
    exec.stdin.write(input);
    for (let round = 0; round < 5; round += 1) {
      await received.more(20_000);
      guest.close();
      guest = await host(agent);
      const resumed = await resume(guest, resumeKey, received);
      ({ exec } = resumed);
      const offset = await resumed.stdinOffset;
      assert(offset >= received.stdoutOffset && offset <= input.byteLength);
      exec.stdin.write(input.subarray(offset));
    }
    exec.stdin.end();
    assert.equal((await exec.exit).exitCode, 0);
    assert(Buffer.concat(received.stdout).equals(input));
  }));

test("input that arrives after a command has ended, and before it is released, is dropped without an answer", () =>
  withAgent(async (agent) => {
    const line = new Line(agent.socket);
    const guest = await connectGuest(line, { helloTimeoutMs: 20_000, keepsCommands: true });
    const exec = guest.exec(request(["true"], { hasStdin: true, resumeKey: keyOf() }));
    assert.equal((await exec.exit).exitCode, 0);
    // A host sends this before it has read the end of the command.
    line.write(encodeFrame({ type: HOST_FRAMES.stdin, channel: 1 }, randomBytes(65_536)));
    assert.equal((await outcome(guest.exec(request(["echo", "next"])))).stdout, "next\n");
    exec.release?.();
    assert.equal((await outcome(guest.exec(request(["echo", "last"])))).stdout, "last\n");
    guest.close();
  }));

test("a terminal continues, with what was printed and typed while it had no host", () =>
  withAgent(async (agent) => {
    const resumeKey = keyOf();
    const received = new Received();
    const guest = await host(agent);
    const exec = guest.exec(request(["sh"], { terminal: { cols: 80, rows: 24 }, resumeKey }));
    received.follow(exec);
    exec.stdin.write("stty -echo; PS1=; sleep 0.3; echo one\n");
    await exec.pid;
    guest.close();
    const next = await host(agent);
    const resumed = await resume(next, resumeKey, received);
    resumed.exec.stdin.write("echo tw''o; exit 7\n");
    assert.equal((await resumed.exec.exit).exitCode, 7);
    assert.match(received.text, /one\r\ntwo\r\n$/);
  }));

test("a command that ended without a host is kept until it was released", () =>
  withAgent(async (agent) => {
    const [first, second] = [keyOf(), keyOf()];
    const received = new Received();
    let guest = await host(agent);
    const exec = guest.exec(request(["sh", "-c", "echo before; sleep 0.2; echo after; exit 5"], { resumeKey: first }));
    received.follow(exec);
    await received.more(1);
    guest.close();
    const pid = await exec.pid;
    await until(() => !isRunning(pid));
    // Also after it was reported to a host that died before its caller had it.
    for (let round = 0; round < 2; round += 1) {
      guest = await host(agent);
      const late = new Received();
      late.stdoutOffset = "before\n".length;
      const resumed = await resume(guest, first, late);
      assert.equal((await resumed.exec.exit).exitCode, 5);
      assert.equal(late.text, "after\n");
      if (round === 0) guest.close();
      else resumed.exec.release?.();
    }
    // A release is sent with the next command.
    assert.equal((await outcome(guest.exec(request(["echo", "x"], { resumeKey: second })))).stdout, "x\n");
    guest.close();
    guest = await host(agent);
    assert.throws(() => guest.resume?.({ resumeKey: first, stdoutOffset: 0, stderrOffset: 0 }), /no such command/);
    const again = await resume(guest, second, new Received());
    assert.equal((await again.exec.exit).exitCode, 0);
  }));

test("commands end that no host resumes, those without a name, and all of them for a host that keeps none", () =>
  withAgent(
    async (agent) => {
      const start = async (guest: Guest, more = {}): Promise<number> => {
        const exec = guest.exec(request(["sleep", "100"], more));
        exec.exit.catch(() => undefined);
        return await exec.pid;
      };
      let guest = await host(agent);
      const [nameless, waiting] = [await start(guest), await start(guest, { resumeKey: keyOf() })];
      guest.close();
      guest = await host(agent);
      await until(() => !isRunning(nameless));
      await until(() => !isRunning(waiting));
      // The channel that it had is free again, and its end does not violate the protocol.
      for (let at = 0; at < CHANNELS_MAX + 5; at += 1) await outcome(guest.exec(request(["true"])));
      const kept = await start(guest, { resumeKey: keyOf() });
      guest.close();
      guest = await agent.connect(new Line(agent.socket));
      await until(() => !isRunning(kept));
      guest.close();
    },
    { resumeMs: 500 },
  ));

test("what is not kept any more, or was never written, is refused, and the command ends", () =>
  withAgent(async (agent) => {
    const offsets = [0, KEPT_OUTPUT_BYTES * 4, 2 ** 52];
    for (const stdoutOffset of offsets) {
      const resumeKey = keyOf();
      let guest = await host(agent);
      const exec = guest.exec(
        request(["sh", "-c", `head -c ${KEPT_OUTPUT_BYTES * 2} /dev/zero; sleep 100`], { resumeKey }),
      );
      const received = new Received();
      received.follow(exec);
      await received.more(KEPT_OUTPUT_BYTES * 2);
      const pid = await exec.pid;
      guest.close();
      guest = await host(agent);
      const resumed = guest.resume?.({ resumeKey, stdoutOffset, stderrOffset: 0 });
      assert(resumed);
      await assert.rejects(resumed.stdinOffset, /no longer has the output/);
      await assert.rejects(resumed.exec.exit, /no longer has the output/);
      await until(() => !isRunning(pid));
      assert.equal((await outcome(guest.exec(request(["echo", "fine"])))).stdout, "fine\n");
      guest.close();
    }
  }));

test("output while there is no host blocks the command, and costs the guest no more than what it keeps", () =>
  withAgent(async (agent) => {
    const keys = Array.from({ length: 20 }, keyOf);
    let guest = await host(agent);
    const execs = keys.map((resumeKey) => guest.exec(request(["sh", "-c", "seq 1 300000"], { resumeKey })));
    for (const exec of execs) exec.exit.catch(() => undefined);
    await Promise.all(execs.map((exec) => exec.pid));
    guest.close();
    guest = await host(agent);
    const before = await agent.residentKb();
    for (const resumeKey of keys) {
      const received = new Received();
      const { exec } = await resume(guest, resumeKey, received);
      assert.equal((await exec.exit).exitCode, 0);
      exec.release?.();
      assert(received.text === numbers(300_000));
    }
    await outcome(guest.exec(request(["true"])));
    assert((await agent.residentKb()) <= before + 2048, "released rings return their memory");
  }));

test("as many commands as have ended without being read do not prevent new ones", () =>
  withAgent(async (agent) => {
    const guest = await host(agent);
    for (let at = 0; at < CHANNELS_MAX * 2; at += 1)
      assert.equal((await outcome(guest.exec(request(["true"], { resumeKey: keyOf() })))).exitCode, 0);
  }));

test("a host that resumes a running command loses its connection", () => {
  const agent = startAgent();
  return (async () => {
    const line = new Line(agent.socket);
    const guest = await connectGuest(line, { helloTimeoutMs: 20_000, keepsCommands: true });
    const exec = guest.exec(request(["cat"], { hasStdin: true, resumeKey: keyOf() }));
    exec.exit.catch(() => undefined);
    await exec.pid;
    const fields = new FieldWriter().u64("stdoutOffset", 0).u64("stderrOffset", 0).end();
    line.write(encodeFrame({ type: HOST_FRAMES.resume, channel: 1 }, fields));
    await until(() => agent.log().includes("received invalid bytes"));
    guest.close();
    const next = await host(agent);
    await next.sync();
    assert.equal(await agent.end(), 0);
  })();
});
