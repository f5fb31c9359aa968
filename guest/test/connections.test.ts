/**
 * Connections that the agent opens to ports of its guest, and that outlive their host. The agent's machine
 * has a loopback address of the test's host, so the programs that listen are the test's.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { test } from "node:test";
import {
  CHANNELS_MAX,
  CONNECTIONS_MAX,
  encodeFrame,
  HOST_FRAMES,
  CONNECTION_WINDOW_BYTES,
} from "@flotilla/contract/guest/frame";
import { FieldWriter } from "@flotilla/contract/guest/messages";
import { connectGuest } from "@flotilla/node/guest/client";
import type { Guest, GuestExec } from "@flotilla/node/guest/guest";
import { type AgentOptions, outcome, request, startAgent, type TestAgent, until } from "./agent.ts";
import { Line } from "./line.ts";

const OWN = "127.0.0.5";
const GATEWAY = "127.0.0.6";

const configuration = {
  hostname: "box",
  machineId: "0".repeat(32),
  now: 1,
  entropy: randomBytes(32),
  env: {},
  workdir: "/",
  user: "",
  rootDevice: null,
  rootBytes: null,
  nameservers: [],
  address: { cidr: `${OWN}/30`, gateway: GATEWAY },
};

const keyOf = (): string => randomBytes(16).toString("hex");

const host = (agent: TestAgent, keepsCommands = true): Promise<Guest> =>
  connectGuest(new Line(agent.socket), { helloTimeoutMs: 20_000, keepsCommands });

async function withAgent(
  body: (agent: TestAgent, guest: Guest) => Promise<void>,
  options: AgentOptions = {},
): Promise<void> {
  const agent = startAgent(options);
  try {
    const guest = await host(agent);
    await guest.configure(configuration);
    await body(agent, guest);
  } finally {
    // A test may leave connections open, whose last frames are not read.
    await agent.end();
    assert.match(agent.log(), /^(flotilla agent: the agent cannot continue: Connection reset by peer\n)?$/);
  }
}

interface Program extends Disposable {
  readonly port: number;
  readonly sockets: Socket[];
}

/** A program that listens in the guest. */
async function program(serve: (socket: Socket) => void, address = OWN): Promise<Program> {
  const sockets: Socket[] = [];
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket);
    socket.on("error", () => undefined);
    serve(socket);
  });
  server.listen(0, address);
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    sockets,
    [Symbol.dispose]: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

function connect(guest: Guest, port: number, resumeKey = keyOf()): GuestExec {
  const opened = guest.connect?.({ port, resumeKey });
  assert(opened);
  opened.exit.catch(() => undefined);
  return opened;
}

/** What a caller has received, over all hosts. */
class Received {
  readonly chunks: Buffer[] = [];
  bytes = 0;
  #onMore = (): void => undefined;

  follow(exec: GuestExec): void {
    exec.stdout.on("data", (chunk: Buffer) => {
      this.chunks.push(chunk);
      this.bytes += chunk.byteLength;
      exec.outputTaken?.(this.bytes);
      this.#onMore();
    });
  }

  /** Resolves in the turn in which this much more has arrived. */
  more(bytes: number): Promise<void> {
    const wanted = this.bytes + bytes;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onMore = () => {
      if (this.bytes >= wanted) resolve();
    };
    this.#onMore();
    return promise;
  }

  get whole(): Buffer {
    return Buffer.concat(this.chunks);
  }
}

async function resume(guest: Guest, resumeKey: string, received: Received) {
  const resumed = guest.resumeConnection?.({ resumeKey, stdoutOffset: received.bytes, stderrOffset: 0 });
  assert(resumed);
  resumed.exec.exit.catch(() => undefined);
  received.follow(resumed.exec);
  return { exec: resumed.exec, offset: await resumed.stdinOffset };
}

/** Writes all of it, no faster than it is read. */
async function writeAll(socket: Socket, bytes: Buffer): Promise<void> {
  for (let at = 0; at < bytes.byteLength; at += 50_000)
    if (!socket.write(bytes.subarray(at, at + 50_000))) await once(socket, "drain");
}

test("both directions are carried, the program sees the gateway as its peer, and each side may end first", () =>
  withAgent(async (_agent, guest) => {
    let peer = "";
    using echo = await program((socket) => {
      peer = socket.remoteAddress ?? "";
      socket.pipe(socket);
    });
    const exec = connect(guest, echo.port);
    const received = new Received();
    received.follow(exec);
    await exec.pid;
    const sent = randomBytes(3_000_000);
    exec.stdin.write(sent);
    exec.stdin.end();
    // The end of the input is the program's end of input, after which it ended its own direction.
    assert.equal((await exec.exit).exitCode, 0);
    assert(received.whole.equals(sent));
    assert.equal(peer, GATEWAY);

    using speaker = await program((socket) => void socket.end("bye"));
    const other = connect(guest, speaker.port);
    const answered = new Received();
    answered.follow(other);
    assert.equal((await other.exit).exitCode, 0);
    assert.equal(answered.whole.toString(), "bye");
  }));

test("a port without a listener refuses, and so does one that listens only on the loopback", () =>
  withAgent(async (_agent, guest) => {
    using loopback = await program(() => undefined, "127.0.0.1");
    await assert.rejects(connect(guest, loopback.port).pid, /^Error: ECONNREFUSED$/);
    await assert.rejects(connect(guest, 1).pid, /^Error: ECONNREFUSED$/);
    // Their channels are free.
    using echo = await program((socket) => socket.pipe(socket));
    assert.equal(await connect(guest, echo.port).pid, 0);
  }));

test("a reset is distinguished from an end, after what was sent before", () =>
  withAgent(async (_agent, guest) => {
    using rude = await program(
      (socket) => void socket.write("first", () => socket.once("data", () => socket.resetAndDestroy())),
    );
    const exec = connect(guest, rude.port);
    const received = new Received();
    received.follow(exec);
    await received.more(5);
    exec.stdin.write("x");
    assert.notEqual((await exec.exit).exitCode, 0);
    assert.equal(received.whole.toString(), "first");
    // Also if it is noticed by a write.
    using deaf = await program((socket) => void socket.pause());
    const other = connect(guest, deaf.port);
    await other.pid;
    other.stdin.write(Buffer.alloc(8_000_000));
    await until(() => deaf.sockets.length > 0);
    deaf.sockets[0]?.resetAndDestroy();
    assert.notEqual((await other.exit).exitCode, 0);
  }));

test("a killed connection is closed, and its channel is free", () =>
  withAgent(async (_agent, guest) => {
    let closed = 0;
    using silent = await program((socket) => void socket.resume().once("end", () => void (closed += 1)));
    for (let at = 0; at < 3; at += 1) {
      const exec = connect(guest, silent.port);
      await exec.pid;
      exec.kill();
      assert.notEqual((await exec.exit).exitCode, 0);
      exec.release?.();
    }
    await until(() => closed === 3);
  }));

test("a connection loses and repeats no byte in either direction over many lost hosts", () =>
  withAgent(async (agent, first) => {
    const [up, down] = [randomBytes(2_500_000), randomBytes(2_500_000)];
    const arrived: Buffer[] = [];
    using both = await program((socket) => {
      socket.on("data", (chunk: Buffer) => void arrived.push(chunk));
      void writeAll(socket, down).then(() => socket.end());
    });
    const resumeKey = keyOf();
    const received = new Received();
    let guest = first;
    let exec = connect(guest, both.port, resumeKey);
    received.follow(exec);
    await exec.pid;
    exec.stdin.write(up);
    for (let round = 0; round < 8; round += 1) {
      await received.more(100_000);
      guest.close();
      guest = await host(agent);
      const resumed = await resume(guest, resumeKey, received);
      ({ exec } = resumed);
      exec.stdin.write(up.subarray(resumed.offset));
    }
    assert.equal((await exec.exit).exitCode, 0);
    assert(received.whole.equals(down));
    // The program had ended its direction, which ends the connection: what had not arrived by then is lost.
    assert(Buffer.concat(arrived).equals(up.subarray(0, Buffer.concat(arrived).byteLength)));
  }));

test("all input arrives over lost hosts, and then its end", () =>
  withAgent(async (agent, first) => {
    const up = randomBytes(2_500_000);
    const arrived: Buffer[] = [];
    using sink = await program((socket) => {
      socket.on("data", (chunk: Buffer) => void arrived.push(chunk));
      socket.once("end", () => socket.end("got it"));
    });
    const resumeKey = keyOf();
    const received = new Received();
    let guest = first;
    let exec = connect(guest, sink.port, resumeKey);
    received.follow(exec);
    exec.stdin.write(up);
    for (let round = 1; round < 5; round += 1) {
      await until(() => arrived.reduce((sum, chunk) => sum + chunk.byteLength, 0) > round * 300_000);
      guest.close();
      guest = await host(agent);
      const resumed = await resume(guest, resumeKey, received);
      ({ exec } = resumed);
      exec.stdin.write(up.subarray(resumed.offset));
    }
    exec.stdin.end();
    assert.equal((await exec.exit).exitCode, 0);
    assert.equal(received.whole.toString(), "got it");
    assert(Buffer.concat(arrived).equals(up));
  }));

test("how much input was taken is counted over hosts", () =>
  withAgent(async (agent, first) => {
    using sink = await program((socket) => void socket.resume());
    const resumeKey = keyOf();
    let guest = first;
    const exec = connect(guest, sink.port, resumeKey);
    let taken = 0;
    exec.onInputTaken?.((bytes) => void (taken = bytes));
    exec.stdin.write(Buffer.alloc(200_000));
    await until(() => taken > 180_000);
    assert(taken <= 200_000);
    guest.close();
    guest = await host(agent);
    const resumed = await resume(guest, resumeKey, new Received());
    assert.equal(resumed.offset, 200_000);
    resumed.exec.onInputTaken?.((bytes) => void (taken = bytes));
    resumed.exec.stdin.write(Buffer.alloc(100_000));
    await until(() => taken > 280_000);
    assert(taken <= 300_000);
  }));

test("connections end that no host resumes, and all of them for a host that keeps none", () =>
  withAgent(
    async (agent, first) => {
      using silent = await program((socket) => void socket.resume().once("end", () => socket.destroy()));
      let guest = first;
      await connect(guest, silent.port).pid;
      guest.close();
      guest = await host(agent);
      await until(() => silent.sockets[0]?.destroyed === true);
      const resumeKey = keyOf();
      await connect(guest, silent.port, resumeKey).pid;
      guest.close();
      guest = await host(agent, false);
      await until(() => silent.sockets[1]?.destroyed === true);
      assert.throws(() => guest.resumeConnection?.({ resumeKey, stdoutOffset: 0, stderrOffset: 0 }), /no such/);
    },
    { resumeMs: 500 },
  ));

test("what is not kept any more is refused, and a key of a command names no connection", () =>
  withAgent(async (agent, first) => {
    using speaker = await program((socket) => {
      socket.resume().once("end", () => socket.destroy());
      void writeAll(socket, Buffer.alloc(CONNECTION_WINDOW_BYTES * 2));
    });
    let guest = first;
    const [resumeKey, ofCommand] = [keyOf(), keyOf()];
    const received = new Received();
    const exec = connect(guest, speaker.port, resumeKey);
    received.follow(exec);
    await received.more(CONNECTION_WINDOW_BYTES * 2);
    const command = guest.exec(request(["cat"], { hasStdin: true, resumeKey: ofCommand }));
    command.exit.catch(() => undefined);
    await command.pid;
    guest.close();
    guest = await host(agent);
    const nothing = { stdoutOffset: 0, stderrOffset: 0 };
    assert.throws(() => guest.resumeConnection?.({ ...nothing, resumeKey: ofCommand }), /no such/);
    assert.throws(() => guest.resume?.({ ...nothing, resumeKey }), /no such/);
    const resumed = guest.resumeConnection?.({ ...nothing, resumeKey });
    assert(resumed);
    resumed.exec.exit.catch(() => undefined);
    await assert.rejects(resumed.stdinOffset, /no longer has the output/);
    await until(() => speaker.sockets[0]?.destroyed === true);
  }));

test("as many connections as there may be take nothing from commands, and one more is refused", () =>
  withAgent(async (_agent, guest) => {
    using echo = await program((socket) => socket.pipe(socket));
    const opened = Array.from({ length: CONNECTIONS_MAX }, () => connect(guest, echo.port));
    await Promise.all(opened.map((exec) => exec.pid));
    assert.equal(guest.canConnect, false);
    assert.throws(() => guest.connect?.({ port: echo.port, resumeKey: keyOf() }), /maximum of 512 connections/);
    const commands = Array.from({ length: CHANNELS_MAX }, () => guest.exec(request(["cat"], { hasStdin: true })));
    const outcomes = [...opened, ...commands].map(outcome);
    for (const exec of [...opened, ...commands]) exec.stdin.end("said");
    for (const { stdout } of await Promise.all(outcomes)) assert.equal(stdout, "said");
    // Connections that ended and were not released yet do not prevent new ones.
    assert.equal(await connect(guest, echo.port).pid, 0);
  }));

test("a reader that stops blocks its connection and no other, and the program is not read further", () =>
  withAgent(async (_agent, guest) => {
    let written = 0;
    using flood = await program((socket) => {
      const piece = Buffer.alloc(65_536);
      const push = (): void => {
        while (socket.write(piece)) written += piece.byteLength;
        socket.once("drain", push);
      };
      push();
    });
    using echo = await program((socket) => socket.pipe(socket));
    const blocked = connect(guest, flood.port);
    await blocked.pid;
    const other = connect(guest, echo.port);
    other.stdin.end("through");
    assert.equal((await outcome(other)).stdout, "through");
    assert(written < 64_000_000);
    assert.equal(blocked.stdout.readableLength <= CONNECTION_WINDOW_BYTES, true);
  }));

test("a host that breaks the rules of connections loses its own", async () => {
  const port = new FieldWriter().u32("port", 1).end();
  const noPort = new FieldWriter().u32("port", 70_000).end();
  for (const frame of [
    { channel: 1, payload: port },
    { channel: CHANNELS_MAX + 1, payload: noPort },
    { channel: CHANNELS_MAX + CONNECTIONS_MAX + 1, payload: port },
  ]) {
    const agent = startAgent();
    const line = new Line(agent.socket);
    const guest = await connectGuest(line, { helloTimeoutMs: 20_000, keepsCommands: true });
    await guest.configure(configuration);
    line.write(encodeFrame({ type: HOST_FRAMES.connect, channel: frame.channel }, frame.payload));
    await until(() => agent.log().includes("received invalid bytes"));
    guest.close();
    await (await host(agent)).sync();
    assert.equal(await agent.end(), 0);
  }
});

test("a guest without a network, and one that is not configured, refuses", async () => {
  const agent = startAgent();
  const guest = await host(agent);
  await assert.rejects(connect(guest, 80).pid, /the machine has no network/);
  assert.equal(await agent.end(), 0);
});
