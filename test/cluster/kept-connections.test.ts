/**
 * Connections to ports of a guest from the server to the guest's agent: the real agent on a socket pair, the
 * node's link and the server's stream, without a VM. The node agent is lost again and again, and no byte may
 * be.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer as createHttpServer, type Server } from "node:http";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import { connectGuest } from "@flotilla/node/guest/client";
import type { Guest } from "@flotilla/node/guest/guest";
import { serveExec } from "@flotilla/node/link/exec";
import type { VmNetwork } from "@flotilla/node/network/vm-network";
import { startAgent } from "../../guest/test/agent.ts";
import { Line } from "../../guest/test/line.ts";
import { connectOnNode } from "../../server/src/link/guest-stream.ts";
import { NodeLink } from "../../server/src/link/node-link.ts";
import { createLog } from "../../server/src/log.ts";
import { until } from "../support/until.ts";

const OWN = "127.0.0.5";
const PATIENT = { deadlineMs: 60_000, everyMs: 5 };
const NO_NETWORK: VmNetwork = {
  address: null,
  nameservers: [],
  hostPorts: [],
  sentBytes: () => 0,
  countOn: () => ({ bytes: () => 0, close: () => undefined }),
  dial: () => Promise.reject(Object.assign(new Error("connect"), { code: "EHOSTUNREACH" })),
};

interface Fleet extends AsyncDisposable {
  /** Connects to a port of the guest. */
  connect(port: number, signal?: AbortSignal): Promise<Duplex>;
  /** The agent is killed, or stops, and the next one begins. */
  restart(how: "kill" | "stop"): Promise<void>;
}

async function startFleet(): Promise<Fleet> {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-connections-"));
  const socketPath = join(directory, "node.sock");
  const agent = startAgent();
  let guest: Guest | undefined;
  let server: Server | undefined;
  let isStopping = false;
  const begin = async (): Promise<void> => {
    isStopping = false;
    const next = await connectGuest(new Line(agent.socket), { helloTimeoutMs: 30_000, keepsCommands: true });
    guest = next;
    server = createHttpServer((request, response) =>
      serveExec(request, response, {
        guest: next,
        clock: systemClock,
        isStopping: () => isStopping,
        connectsIn: { network: NO_NETWORK },
      }),
    );
    server.listen(socketPath);
    await once(server, "listening");
  };
  await begin();
  await guest?.configure({
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
    address: { cidr: `${OWN}/30`, gateway: "127.0.0.6" },
  });
  const link = new NodeLink(createLog("silent"), systemClock);
  const node = { nodeId: "node-a", address: `unix:${socketPath}` };
  return {
    connect: (port, signal = new AbortController().signal) =>
      connectOnNode(link, node, {
        ...{ tenantId: "tenant-1", machineId: "mach-1", port, signal },
        resumeKey: randomBytes(16).toString("hex"),
        locate: () => Promise.resolve({ node, hasWaited: false }),
      }),
    restart: async (how) => {
      // A killed agent says nothing to its guest. Both end their connections.
      isStopping = true;
      if (how === "kill") guest?.close();
      server?.closeAllConnections();
      server?.close();
      if (how === "stop") guest?.close();
      await begin();
    },
    [Symbol.asyncDispose]: async () => {
      isStopping = true;
      server?.closeAllConnections();
      server?.close();
      await link.close();
      await agent.end();
      await rm(directory, { recursive: true });
      assert.doesNotMatch(agent.log(), /Sanitizer|runtime error|invalid bytes/);
    },
  };
}

async function program(serve: (socket: Socket) => void) {
  const sockets: Socket[] = [];
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket.on("error", () => undefined));
    serve(socket);
  });
  server.listen(0, OWN);
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

/** Sends a numbered pattern for ever, and compares what comes back. */
class Echo {
  receivedBytes = 0;
  sentBytes = 0;
  fault = "";
  isOver = false;
  readonly #stream: Duplex;
  #isStopped = false;

  constructor(stream: Duplex) {
    this.#stream = stream;
    stream.on("error", (error) => (this.fault ||= error.message));
    stream.on("end", () => (this.isOver = true));
    stream.on("data", (chunk: Buffer) => {
      const wrong = chunk.findIndex((byte, at) => byte !== (this.receivedBytes + at) % 251);
      if (wrong >= 0) this.fault ||= `wrong at byte ${this.receivedBytes + wrong}`;
      this.receivedBytes += chunk.byteLength;
    });
    stream.on("drain", () => this.#send());
    this.#send();
  }

  #send(): void {
    while (!this.#isStopped) {
      const chunk = Buffer.from(Array.from({ length: 20_000 }, (_, at) => (this.sentBytes + at) % 251));
      this.sentBytes += chunk.byteLength;
      if (!this.#stream.write(chunk)) return;
    }
  }

  async haveMore(bytes: number): Promise<void> {
    const wanted = this.receivedBytes + bytes;
    await until(() => this.fault !== "" || this.receivedBytes >= wanted, { what: "more of the echo", ...PATIENT });
    assert.equal(this.fault, "");
  }

  async finish(): Promise<void> {
    this.#isStopped = true;
    this.#stream.end();
    await until(() => this.isOver || this.fault !== "", { what: "the end of the echo", ...PATIENT });
    assert.deepEqual([this.fault, this.receivedBytes], ["", this.sentBytes]);
  }
}

test("a connection that is busy in both directions loses and repeats no byte over many lost agents", async () => {
  await using fleet = await startFleet();
  using echo = await program((socket) => socket.pipe(socket));
  const echoes = [new Echo(await fleet.connect(echo.port)), new Echo(await fleet.connect(echo.port))];
  for (let round = 0; round < 12; round += 1) {
    for (const each of echoes) await each.haveMore(400_000);
    await fleet.restart(round % 3 === 0 ? "stop" : "kill");
  }
  for (const each of echoes) await each.finish();
});

test("input that the guest has is not waited for when the agent is lost that would have said so", async () => {
  await using fleet = await startFleet();
  const sent = 200_000;
  let taken = 0;
  using reader = await program((socket) => {
    socket.on("data", (chunk) => (taken += chunk.byteLength));
    // The server learns nothing more before its caller has read this.
    socket.write(Buffer.alloc(400_000));
  });
  const stream = await fleet.connect(reader.port);
  stream.on("error", () => undefined);
  for (const total of [sent, 2 * sent]) {
    stream.write(Buffer.alloc(sent));
    await until(() => taken === total, { what: `${total} bytes of input; ${taken} came`, ...PATIENT });
    await fleet.restart("kill");
    stream.resume();
  }
  stream.destroy();
});

test("a half-closed connection gets all of a long answer", async () => {
  await using fleet = await startFleet();
  const sent = randomBytes(3_000_000);
  using answers = await program((socket) => void socket.resume().once("end", () => socket.end(sent)));
  const stream = await fleet.connect(answers.port);
  stream.end("question");
  const received: Buffer[] = [];
  let bytes = 0;
  stream.on("data", (chunk: Buffer) => {
    received.push(chunk);
    bytes += chunk.byteLength;
  });
  const ended = once(stream, "end");
  for (const at of [500_000, 1_500_000]) {
    await until(() => bytes >= at, { what: "a part of the answer", ...PATIENT });
    await fleet.restart("kill");
  }
  await ended;
  assert(Buffer.concat(received).equals(sent));
});

test("many small messages need no large one to be acknowledged", async () => {
  await using fleet = await startFleet();
  using echo = await program((socket) => socket.setNoDelay(true).pipe(socket));
  const stream = await fleet.connect(echo.port);
  for (let at = 0; at < 3_000; at += 1) {
    stream.write("x");
    await once(stream, "data");
  }
  stream.destroy();
});

test("a reader that stops pauses the program, and nothing is lost", async () => {
  await using fleet = await startFleet();
  let written = 0;
  using flood = await program((socket) => {
    const more = (): void => {
      while (written < 30_000_000 && socket.write(Buffer.alloc(100_000))) written += 100_000;
    };
    socket.on("drain", more);
    more();
  });
  using echo = await program((socket) => socket.pipe(socket));
  const stream = await fleet.connect(flood.port);
  const other = new Echo(await fleet.connect(echo.port));
  await other.haveMore(1_000_000);
  assert(written < 30_000_000, "the program is paused");
  await other.finish();
  stream.destroy();
});

test("a refused connection, one that is reset, and a caller that leaves", async () => {
  await using fleet = await startFleet();
  const isRefused = (error: Error): boolean =>
    error instanceof Refusal && error.code === "guest_unreachable" && error.message.includes("ECONNREFUSED");
  await assert.rejects(fleet.connect(1), isRefused);
  using rude = await program((socket) => void socket.once("data", () => socket.resetAndDestroy()));
  const reset = await fleet.connect(rude.port);
  reset.resume().write("x");
  const [error] = (await once(reset, "error")) as [Error];
  assert.match(error.message, /the guest broke the connection/);
  let ends = 0;
  using silent = await program((socket) => void socket.resume().once("end", () => (ends += 1)));
  (await fleet.connect(silent.port)).destroy();
  await until(() => ends === 1, { what: "the guest to see the end", ...PATIENT });
});
