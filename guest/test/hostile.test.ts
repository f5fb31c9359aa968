/**
 * The host's end against hostile guests: a scripted guest in this process sends what no real agent would.
 */
import assert from "node:assert/strict";
import { type Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import {
  CHANNELS_MAX,
  encodeFrame,
  FRAME_PAYLOAD_BYTES_MAX,
  FrameDecoder,
  GUEST_FRAMES,
  HOST_FRAMES,
  OUTPUT_FRAME_COST_BYTES,
  OUTPUT_WINDOW_BYTES,
  RESUME_KEY_BYTES,
  STDIN_WINDOW_BYTES,
} from "@flotilla/contract/guest/frame";
import { FieldReader, FieldWriter } from "@flotilla/contract/guest/messages";
import { connectGuest } from "@flotilla/node/guest/client";
import type { Guest, GuestExec, ResumedExec } from "@flotilla/node/guest/guest";
import fc from "fast-check";
import { request, until } from "./agent.ts";

interface Scripted {
  readonly guest: Guest;
  /** The guest's end of the stream; tests write to it. */
  readonly socket: Duplex;
  /** The frames that the host sent after the hello. */
  readonly received: { type: number; channel: number; payload: Buffer }[];
}

function helloAnswer(question: Buffer, more = {}): Buffer {
  const facts = { protocol: 1, agentVersion: "test", isConfigured: 0, ...more };
  const fields = new FieldWriter()
    .u32("protocol", facts.protocol)
    .text("agentVersion", facts.agentVersion)
    .u32("isConfigured", facts.isConfigured)
    .u64("uptimeMs", 5)
    .end();
  return encodeFrame({ type: GUEST_FRAMES.helloAnswer, channel: 0 }, Buffer.concat([question, fields]));
}

/** Answers the hello, with `before` in front, and then sends nothing by itself. */
async function scripted(answer = helloAnswer, before = Buffer.alloc(0)): Promise<Scripted> {
  const [host, socket] = duplexPair();
  const decoder = new FrameDecoder();
  const received: Scripted["received"] = [];
  socket.on("data", (chunk: Buffer) =>
    decoder.push(chunk, (frame) => {
      if (frame.type === HOST_FRAMES.hello) socket.write(Buffer.concat([before, answer(frame.payload)]));
      else received.push({ ...frame, payload: Buffer.from(frame.payload) });
    }),
  );
  socket.on("error", () => {});
  const guest = await connectGuest(host, { helloTimeoutMs: 2_000 });
  return { guest, socket, received };
}

const data = (type: "stdout" | "stderr", bytes: number | Uint8Array, channel = 1): Buffer =>
  encodeFrame({ type: GUEST_FRAMES[type], channel }, typeof bytes === "number" ? Buffer.alloc(bytes, 1) : bytes);
const say = (type: keyof typeof GUEST_FRAMES, fields: FieldWriter, channel = 1): Buffer =>
  encodeFrame({ type: GUEST_FRAMES[type], channel }, fields.end());

test("a hello is found behind data meant for an earlier host", async () => {
  const leftovers = Buffer.concat([data("stdout", 5000), Buffer.from("FLOTILLA"), Buffer.alloc(300_000, 0xf1)]);
  const { guest } = await scripted(helloAnswer, leftovers);
  assert.equal(guest.hello.isConfigured, false);
});

test("a guest that never answers, answers another nonce or has another version is disconnected with a reason", async () => {
  const failing = async (answer: (question: Buffer) => Buffer): Promise<string> => {
    const error: unknown = await scripted(answer).then(
      () => assert.fail("connected"),
      (reason: unknown) => reason,
    );
    assert(error instanceof Error);
    return error.message;
  };
  assert.match(await failing(() => Buffer.alloc(0)), /did not answer within 2000 ms/);
  assert.match(await failing((question) => helloAnswer(Buffer.from(question).fill(1, 8))), /did not answer within/);
  assert.match(await failing((question) => helloAnswer(question, { protocol: 2 })), /protocol version 2/);
  const wrongType = (question: Buffer) => encodeFrame({ type: GUEST_FRAMES.exit, channel: 0 }, question);
  assert.match(await failing(wrongType), /instead of the answer/);
});

test("connecting can be cancelled, and a connection that ends is reported", async () => {
  const [host, socket] = duplexPair();
  const controller = new AbortController();
  const connecting = connectGuest(host, { helloTimeoutMs: 60_000, signal: controller.signal });
  controller.abort();
  await assert.rejects(connecting, /the caller cancelled/);
  assert(host.destroyed);
  socket.destroy();
  const [second, far] = duplexPair();
  const ending = connectGuest(second, { helloTimeoutMs: 60_000 });
  far.end();
  far.resume();
  await assert.rejects(ending, /its channel was closed/);
  await assert.rejects(connectGuest(second, { helloTimeoutMs: 60_000 }), /its channel was closed/);
});

const KEYS = ["aa", "bb"].map((byte) => byte.repeat(RESUME_KEY_BYTES));

/** As helloAnswer, of a guest with connections of an earlier host on the first channels for them. */
function withConnections(question: Buffer, { connectionsMax }: { readonly connectionsMax: number }): Buffer {
  const entries = KEYS.map((key, index) => {
    const channel = Buffer.alloc(4);
    channel.writeUInt32LE(CHANNELS_MAX + 1 + index);
    return Buffer.concat([channel, Buffer.from(key, "hex")]);
  });
  const fields = new FieldWriter()
    .u32("protocol", 1)
    .u32("isConfigured", 1)
    .u32("connectionsMax", connectionsMax)
    .bytes("keptConnections", Buffer.concat(entries))
    .end();
  return encodeFrame({ type: GUEST_FRAMES.helloAnswer, channel: 0 }, Buffer.concat([question, fields]));
}

const resumed = (guest: Guest, resumeKey: string): ResumedExec => {
  const exec = guest.resumeConnection?.({ resumeKey, stdoutOffset: 0, stderrOffset: 0 });
  assert(exec !== undefined);
  return exec;
};

test("a guest that kept more connections than it says it opens gets new ones when those have ended", async () => {
  const { guest, socket, received } = await scripted((question) => withConnections(question, { connectionsMax: 1 }));
  const execs = KEYS.map((key) => resumed(guest, key).exec);
  assert.throws(
    () => guest.connect?.({ port: 80, resumeKey: "cc".repeat(RESUME_KEY_BYTES) }),
    /maximum of 1 connections/,
  );
  for (const channel of [CHANNELS_MAX + 2, CHANNELS_MAX + 1])
    socket.write(say("exit", new FieldWriter().u32("exitCode", 0), channel));
  await Promise.all(execs.map(({ exit }) => exit));
  guest.connect?.({ port: 80, resumeKey: "cc".repeat(RESUME_KEY_BYTES) });
  await until(() => received.some(({ type }) => type === HOST_FRAMES.connect));
  assert.equal(received.find(({ type }) => type === HOST_FRAMES.connect)?.channel, CHANNELS_MAX + 1);
  guest.close();
});

const CONTINUED = CHANNELS_MAX + 1;
const answersToResume: Record<string, readonly Buffer[]> = {
  "a start": [
    say("started", new FieldWriter().u32("pid", 0), CONTINUED),
    say("exit", new FieldWriter().u32("exitCode", 0), CONTINUED),
  ],
  "credit for input": [say("stdinCredit", new FieldWriter().u32("bytes", 1), CONTINUED)],
  "less input than none": [say("resumed", new FieldWriter().u64("stdinOffset", 0).u32("bytes", 0), CONTINUED)],
};

for (const [what, frames] of Object.entries(answersToResume)) {
  test(`a guest that answers ${what} when it is to continue a connection is disconnected`, {
    timeout: 10_000,
  }, async () => {
    const { guest, socket } = await scripted((question) => withConnections(question, { connectionsMax: 2 }));
    const rejected = assert.rejects(resumed(guest, KEYS[0] ?? "").stdinOffset, /violated the protocol/);
    for (const frame of frames) socket.write(frame);
    assert.match(await guest.closed, /violated the protocol/);
    await rejected;
  });
}

test("a guest that floods with zeros after its hello is disconnected", async () => {
  const { guest, socket } = await scripted();
  // More than twice what completes any frame.
  for (let count = 0; count < 3; count += 1) socket.write(Buffer.alloc(FRAME_PAYLOAD_BYTES_MAX));
  assert.match(await guest.closed, /violated the protocol: \d+ zeros between frames/);
});

test("a guest that floods with bytes before its hello is disconnected", async () => {
  const [host, socket] = duplexPair();
  const connecting = connectGuest(host, { helloTimeoutMs: 60_000 });
  socket.on("error", () => {});
  socket.resume();
  const flood = Buffer.alloc(1024 * 1024, 7);
  let isOver = false;
  const rejected = assert.rejects(connecting, /no answer to the hello within \d+ bytes/).then(() => {
    isOver = true;
  });
  for (let sent = 0; sent < 200 && !isOver; sent++) {
    await Promise.race([rejected, new Promise<void>((resolve) => socket.write(flood, () => resolve()))]);
  }
  await rejected;
});

const violations: Record<string, readonly Buffer[]> = {
  "a byte that does not start a frame": [Buffer.from("hello")],
  "a frame over the limit": [Buffer.from("f1910000010000000100010000", "hex")],
  "a frame without its end byte": [Buffer.from("f19400000100000000000000ee", "hex")],
  "a frame that announces a continuation": [
    encodeFrame({ type: GUEST_FRAMES.stdout, channel: 1, flags: 1 }, Buffer.from("x")),
  ],
  "a frame of an unknown type": [encodeFrame({ type: 0xaa, channel: 1 }, Buffer.from("x"))],
  "a frame for a channel that is not open": [data("stdout", 1, 9)],
  "a frame for a channel beyond the limit": [data("stdout", 1, 0xffff_ffff)],
  "output without bytes": [data("stdout", 0)],
  "an answer to no request": [say("done", new FieldWriter().u32("request", 77), 0)],
  "an answer without a request": [say("done", new FieldWriter(), 0)],
  "a second hello": [helloAnswer(Buffer.alloc(24))],
  "an exit without a code": [say("exit", new FieldWriter())],
  "an invalid exit code": [say("exit", new FieldWriter().u32("exitCode", 256))],
  "two starts": [say("started", new FieldWriter().u32("pid", 1)), say("started", new FieldWriter().u32("pid", 2))],
  "credit for input that was not sent": [say("stdinCredit", new FieldWriter().u32("bytes", 1))],
  "credit of no bytes": [say("stdinCredit", new FieldWriter().u32("bytes", 0))],
  "a field that is cut off": [
    encodeFrame({ type: GUEST_FRAMES.started, channel: 1 }, Buffer.from("0304000000", "hex")),
  ],
  "a message that is too long": [say("failed", new FieldWriter().text("message", "x".repeat(5000)))],
  "output of a workload that was not requested": [
    say("workloadOutput", new FieldWriter().u64("offset", 0).bytes("output", Buffer.from("x")), 0),
  ],
  "the end of a workload that was not requested": [say("workloadEnded", new FieldWriter().u32("exitCode", 0), 0)],
  "something after the exit": [say("exit", new FieldWriter().u32("exitCode", 0)), data("stdout", 1)],
};

for (const [what, frames] of Object.entries(violations)) {
  test(`${what} closes the channel with a reason, and everything that waits is rejected`, async () => {
    const { guest, socket } = await scripted();
    const exec = guest.exec(request(["true"], { hasStdin: true }));
    const sync = assert.rejects(guest.sync(), /violated the protocol/);
    await new Promise((resolve) => setImmediate(resolve));
    for (const frame of frames) socket.write(frame);
    assert.match(await guest.closed, /^the guest violated the protocol: /);
    await sync;
    if (what !== "something after the exit") await assert.rejects(exec.exit, /violated the protocol/);
    assert.throws(() => guest.exec(request(["true"])), /channel to the guest agent is lost/);
    await assert.rejects(guest.sync(), /channel to the guest agent is lost/);
  });
}

test("a guest that sends more than its credit is disconnected, whatever the size of its frames", async () => {
  for (const bytes of [1, 1000, FRAME_PAYLOAD_BYTES_MAX]) {
    const { guest, socket } = await scripted();
    const exec = guest.exec(request(["true"]));
    const fitting = Math.floor(OUTPUT_WINDOW_BYTES / (bytes + OUTPUT_FRAME_COST_BYTES));
    const frame = data("stderr", bytes);
    for (let sent = 0; sent < fitting; sent++) socket.write(frame);
    await until(() => exec.stderr.readableLength === fitting * bytes);
    socket.write(frame);
    assert.equal(await guest.closed, "the guest violated the protocol: output without credit");
    await assert.rejects(exec.exit, /output without credit/);
  }
});

test("a workload's output must be in order and within its window", async () => {
  const output = (offset: number, bytes: number): Buffer =>
    say("workloadOutput", new FieldWriter().u64("offset", offset).bytes("output", Buffer.alloc(bytes, 65)), 0);
  const refused: readonly (readonly Buffer[])[] = [
    [output(4, 1)],
    [output(5, 3), output(7, 1)],
    [output(5, 0)],
    [output(2 ** 53, 1)],
    [0, 1, 2, 3, 4].map((at) => output(5 + at * 60_000, 60_000)),
    [say("workloadEnded", new FieldWriter().u32("exitCode", 256), 0)],
  ];
  for (const frames of refused) {
    const { guest, socket } = await scripted();
    const { started } = guest.workload({ argv: ["true"], offset: 5, onOutput: () => {}, onEnd: () => {} });
    started.catch(() => {});
    for (const frame of frames) socket.write(frame);
    assert.match(await guest.closed, /^the guest violated the protocol: /);
  }
  const { guest, socket, received } = await scripted();
  let at = 0;
  const workload = guest.workload({
    argv: ["true"],
    offset: 5,
    onOutput: (offset, bytes) => {
      at = offset + bytes.byteLength;
      workload.acknowledge(at, bytes.byteLength);
    },
    onEnd: () => {},
  });
  workload.started.catch(() => {});
  for (let piece = 0; piece < 10; piece += 1) socket.write(output(10 + piece * 60_000, 60_000));
  await until(() => at === 10 + 600_000);
  await until(() => received.filter(({ type }) => type === HOST_FRAMES.workloadTaken).length === 10);
  guest.close();
});

test("credit is returned when output is read, and only then", async () => {
  const { guest, socket, received } = await scripted();
  const exec = guest.exec(request(["true"]));
  const credits = () => received.filter((frame) => frame.type === HOST_FRAMES.credit);
  for (let sent = 0; sent < 3; sent++) socket.write(data("stdout", FRAME_PAYLOAD_BYTES_MAX));
  await until(() => exec.stdout.readableLength === 3 * FRAME_PAYLOAD_BYTES_MAX);
  assert.equal(credits().length, 0);
  exec.stdout.resume();
  await until(() => credits().length === 1);
  const [credit] = credits();
  assert(credit);
  const expected = 3 * (FRAME_PAYLOAD_BYTES_MAX + OUTPUT_FRAME_COST_BYTES);
  assert.equal(new FieldReader(credit.payload).u32("bytes"), expected);
  const other = guest.exec(request(["true"]));
  other.stdout.destroy();
  for (let sent = 0; sent < 20; sent++) {
    socket.write(data("stdout", FRAME_PAYLOAD_BYTES_MAX, 2));
    await until(() => credits().length >= 2 + Math.floor(sent));
  }
  socket.write(say("exit", new FieldWriter().u32("exitCode", 3), 2));
  assert.deepEqual(await other.exit, { exitCode: 3 });
});

test("small chunks of output do not keep large buffers alive", async () => {
  const { guest, socket } = await scripted();
  const exec = guest.exec(request(["true"]));
  const large = Buffer.concat([data("stdout", 1), Buffer.alloc(60_000), data("stdout", 1)]);
  socket.write(large);
  await until(() => exec.stdout.readableLength === 2);
  let kept = 0;
  for (let chunk = exec.stdout.read(1); chunk !== null; chunk = exec.stdout.read(1)) kept += chunk.buffer.byteLength;
  assert(kept < 32 * 1024, `${kept} bytes kept for 2`);
});

test("the credit of all frames that came with one read is returned with one message", async () => {
  const { guest, socket, received } = await scripted();
  const exec = guest.exec(request(["x"]));
  let got = 0;
  exec.stdout.on("data", (chunk: Buffer) => (got += chunk.byteLength));
  // Each alone would be worth a message.
  const frames = [1, 2, 3].map(() => data("stdout", FRAME_PAYLOAD_BYTES_MAX));
  const credits = () => received.filter((frame) => frame.type === HOST_FRAMES.credit);
  for (let time = 1; time <= 5; time += 1) {
    socket.write(Buffer.concat(frames));
    await until(() => got === 3 * time * FRAME_PAYLOAD_BYTES_MAX && credits().length >= time);
    const bytes = credits().map(({ payload }) => new FieldReader(payload).u32("bytes"));
    assert.deepEqual(
      bytes,
      Array.from({ length: time }, () => 3 * (FRAME_PAYLOAD_BYTES_MAX + OUTPUT_FRAME_COST_BYTES)),
    );
  }
  guest.close();
});

test("input waits for the guest's credit", async () => {
  const { guest, socket, received } = await scripted();
  const exec = guest.exec(request(["true"], { hasStdin: true }));
  const sentBytes = () =>
    received.filter((frame) => frame.type === HOST_FRAMES.stdin).reduce((sum, frame) => sum + frame.payload.length, 0);
  exec.stdin.end(Buffer.alloc(200_000));
  await until(() => sentBytes() === STDIN_WINDOW_BYTES);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(sentBytes(), STDIN_WINDOW_BYTES);
  socket.write(say("stdinCredit", new FieldWriter().u32("bytes", 30_000)));
  await until(() => sentBytes() === STDIN_WINDOW_BYTES + 30_000);
  for (const bytes of [65_536, 65_536]) {
    socket.write(say("stdinCredit", new FieldWriter().u32("bytes", bytes)));
    await until(() => sentBytes() >= Math.min(200_000, STDIN_WINDOW_BYTES + 30_000 + bytes));
  }
  await until(() => received.some((frame) => frame.type === HOST_FRAMES.stdinEnd));
  assert.equal(sentBytes(), 200_000);
});

test("an exit waits for streams with readers, and not for others", async () => {
  const { guest, socket } = await scripted();
  const exec = guest.exec(request(["true"]));
  exec.stdout.on("data", () => {});
  exec.stdout.pause();
  socket.write(
    Buffer.concat([data("stdout", 10), data("stderr", 10), say("exit", new FieldWriter().u32("exitCode", 0))]),
  );
  let hasExited = false;
  void exec.exit.then(() => {
    hasExited = true;
  });
  await until(() => exec.stdout.readableLength === 10);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(hasExited, false);
  exec.stdout.resume();
  await exec.exit;
  assert.equal(exec.stderr.read().length, 10);
  const killed = guest.exec(request(["true"]));
  killed.stdout.on("data", () => {});
  killed.stdout.pause();
  killed.kill();
  socket.write(Buffer.concat([data("stdout", 10, 2), say("exit", new FieldWriter().u32("exitCode", 137), 2)]));
  assert.deepEqual(await killed.exit, { exitCode: 137 });
});

test("a refused command and a refused request say why", async () => {
  const { guest, socket, received } = await scripted();
  const exec = guest.exec(request(["true"]));
  socket.write(say("failed", new FieldWriter().text("message", "no room")));
  await assert.rejects(exec.exit, /cannot run the command: no room/);
  const syncing = assert.rejects(guest.sync(), /disk on fire/);
  await until(() => received.some((frame) => frame.type === HOST_FRAMES.syncFileSystems));
  socket.write(say("failed", new FieldWriter().u32("request", 1).text("message", "disk on fire"), 0));
  await syncing;
});

test("a guest that does not read cannot make the host buffer without limit", async () => {
  const { guest, socket } = await scripted();
  socket.pause();
  const large = request(Array.from({ length: 10 }, () => "x".repeat(100_000)));
  const execs: GuestExec[] = [];
  assert.throws(() => {
    for (;;) execs.push(guest.exec(large));
  }, /has stopped reading/);
  assert(execs.length > 30 && execs.length < 70, String(execs.length));
  guest.close();
  await Promise.all(execs.map((exec) => assert.rejects(exec.exit, /the host closed it/)));
});

test("whatever a guest sends, only its channel ends", async () => {
  const frame = fc
    .record({
      type: fc.constantFrom(...Object.values(GUEST_FRAMES), 0x99),
      channel: fc.constantFrom(0, 1, 2, 3, 300),
      payload: fc.oneof(
        fc.uint8Array({ maxLength: 80 }),
        fc.constantFrom(
          new FieldWriter().u32("request", 1).end(),
          new FieldWriter().u32("pid", 5).end(),
          new FieldWriter().u32("exitCode", 5).end(),
          new FieldWriter().u32("request", 1).text("message", "no").end(),
        ),
      ),
    })
    .map(({ payload, ...header }) => encodeFrame(header, payload));
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.oneof({ weight: 4, arbitrary: frame }, fc.uint8Array()), { maxLength: 8 }),
      async (said) => {
        const { guest, socket } = await scripted();
        const execs = [guest.exec(request(["a"], { hasStdin: true })), guest.exec(request(["b"]))];
        const settled = [...execs.flatMap((exec) => [exec.pid, exec.exit]), guest.sync()].map((promise) =>
          promise.catch(() => {}),
        );
        execs[0]?.stdin.write(Buffer.alloc(100_000));
        for (const piece of said) socket.write(piece);
        socket.end();
        await guest.closed;
        await Promise.all(settled);
      },
    ),
    { numRuns: 300 },
  );
});

test("a guest that reports killed processes before the last report was read, or impossible ones, is disconnected", async () => {
  const report = (program: string, kills: number): Buffer =>
    say("killed", new FieldWriter().text("program", program).u32("kills", kills), 0);
  for (const wrong of [
    Buffer.concat([report("a", 1), report("b", 1)]),
    report("a", 0),
    report("a\nb", 1),
    report("größe", 1),
    report("a".repeat(64), 1),
    say("killed", new FieldWriter().text("program", "a"), 0),
  ]) {
    const { guest, socket } = await scripted();
    const reports: unknown[] = [];
    guest.onKilled?.((killed) => reports.push(killed));
    socket.write(wrong);
    assert.match(await guest.closed, /the guest violated the protocol/);
    assert.ok(reports.length <= 1);
  }
});
