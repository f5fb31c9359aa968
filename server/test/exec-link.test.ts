/**
 * Commands over the link to a misbehaving node: a small HTTP server that gives the answers of each test.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { after, test } from "node:test";
import { endOfTurn, systemClock } from "@flotilla/base/clock";
import { encodeLinkFrame } from "@flotilla/contract/link/frames";
import type { OutputSink } from "../src/link/exec-frames.ts";
import { runOnNode } from "../src/link/exec-link.ts";
import { NodeLink } from "../src/link/node-link.ts";
import { NodeUnreachable, NotRunning } from "../src/link/refusals.ts";
import { createLog } from "../src/log.ts";
import { until } from "../../test/support/until.ts";

type Answer = (response: ServerResponse, request: IncomingMessage) => void;

let answer: Answer = () => undefined;
const connections = new Set<Socket>();
let broken = 0;
const node = createServer((request, response) => {
  response.on("close", () => {
    if (!response.writableFinished) broken += 1;
  });
  request.resume().on("end", () => answer(response, request));
});
node.on("connection", (socket) => connections.add(socket));
node.listen(0, "127.0.0.1");
await once(node, "listening");
const address = { nodeId: "node-a", address: `http://127.0.0.1:${(node.address() as AddressInfo).port}` };
/** Logged causes that callers do not see. */
let causes: string[] = [];
const link = new NodeLink(
  {
    ...createLog("silent"),
    warn: (fields: { readonly error?: unknown }) => void causes.push(String(fields.error)),
  },
  systemClock,
);
after(async () => {
  await link.close();
  node.closeAllConnections();
  node.close();
});

/** Timers that a test can fire. */
let timers: (() => void)[] = [];
const clock = {
  ...systemClock,
  timer(_ms: number, callback: () => void) {
    timers.push(callback);
    return { cancel: () => void (timers = timers.filter((other) => other !== callback)) };
  },
};

const start = {
  argv: ["true"],
  cwd: null,
  env: {},
  user: null,
  timeoutMs: 1_000,
  isBackground: false,
  hasStdin: false,
  terminal: null,
};
const exit = (exitCode: number) =>
  encodeLinkFrame("exit", JSON.stringify({ exitCode, durationMs: 1, hasTimedOut: false, pid: null }));
const nothing: OutputSink = { onOutput: () => undefined };

function run(how: Answer, { sink = nothing, signal = new AbortController().signal } = {}) {
  answer = how;
  return runOnNode(
    link,
    address,
    { tenantId: "tenant", machineId: `mach-${"a".repeat(32)}`, start, stdin: null, sink, signal },
    clock,
  );
}

test("a sink that does much for each byte gets small pieces, and each other one what came", async () => {
  const sent = Buffer.alloc(100_000, "ab");
  const output = Buffer.concat([encodeLinkFrame("stdout", sent), encodeLinkFrame("stderr", "end"), exit(4)]);
  const collect = async (options: Pick<OutputSink, "pieceBytes">): Promise<number> => {
    const pieces: Buffer[] = [];
    const sink: OutputSink = {
      ...options,
      onOutput: (stream, chunk) => {
        pieces.push(Buffer.from(chunk));
        // A sink may be full after any piece.
        return pieces.length % 3 === 0 || stream === "stderr" ? endOfTurn() : undefined;
      },
    };
    assert.equal((await run((response) => response.end(output), { sink })).exitCode, 4);
    assert.ok(Buffer.concat(pieces).equals(Buffer.concat([sent, Buffer.from("end")])));
    return Math.max(...pieces.map(({ byteLength }) => byteLength));
  };
  assert.equal(await collect({ pieceBytes: 1_000 }), 1_000);
  assert.ok((await collect({})) > 16 * 1024);
});

test("consecutive commands share connections, and leave no timer", async () => {
  const before = connections.size;
  for (let code = 0; code < 50; code += 1)
    assert.equal((await run((response) => response.end(exit(code)))).exitCode, code);
  // The client reuses a connection a moment after its answer has arrived.
  assert.ok(connections.size - before <= 2, `${connections.size - before} connections were made`);
  assert.equal(timers.length, 0);
});

test("frames cut anywhere arrive complete and in order, and data after the exit is ignored", async () => {
  const received = { stdout: "", stderr: "" };
  const sink: OutputSink = { onOutput: (stream, chunk) => void (received[stream] += Buffer.from(chunk).toString()) };
  const frames = [encodeLinkFrame("stdout", "one"), encodeLinkFrame("stderr", "two"), exit(7)];
  const all = Buffer.concat([...frames, encodeLinkFrame("stdout", "late")]);
  const inBytes: Answer = async (response) => {
    for (const byte of all) {
      response.write(Buffer.from([byte]));
      await new Promise((resolve) => setImmediate(resolve));
    }
    response.end();
  };
  assert.equal((await run(inBytes, { sink })).exitCode, 7);
  assert.deepEqual(received, { stdout: "one", stderr: "two" });
});

test("a full sink pauses the node, and gets everything once it has room", async () => {
  const chunk = Buffer.alloc(64 * 1024, "x");
  const chunks = 400;
  let sent = 0;
  const flood: Answer = async (response) => {
    for (; sent < chunks; sent += 1)
      if (!response.write(encodeLinkFrame("stdout", chunk))) await once(response, "drain");
    response.end(exit(0));
  };
  let [bytes, isOpen] = [0, false];
  const room = Promise.withResolvers<void>();
  const sink: OutputSink = {
    onOutput(_stream, part) {
      bytes += part.byteLength;
      return isOpen ? undefined : room.promise;
    },
  };
  const running = run(flood, { sink });
  let last = -1;
  const hasStopped = () => {
    const isSame = sent === last && bytes > 0;
    last = sent;
    return isSame;
  };
  await until(hasStopped, { what: "the node to wait" });
  assert.ok(bytes <= chunk.byteLength && sent < chunks, `${bytes} bytes were handed on, ${sent} chunks sent`);
  isOpen = true;
  room.resolve();
  assert.equal((await running).exitCode, 0);
  assert.equal(bytes, chunks * chunk.byteLength);
});

test("a command whose caller disconnects is cancelled, and its connection broken", async () => {
  for (const begin of [() => undefined, (response: ServerResponse) => response.flushHeaders()] as const) {
    const before = broken;
    const gone = new AbortController();
    const reason = new Error("the caller went away");
    const running = run(
      (response) => {
        begin(response);
        gone.abort(reason);
      },
      { signal: gone.signal },
    );
    await assert.rejects(running, reason);
    await until(() => broken === before + 1, { what: "the node to see it" });
  }
  const gone = AbortSignal.abort(new Error("gone before"));
  await assert.rejects(
    run(() => assert.fail("it was sent"), { signal: gone }),
    /gone before/,
  );
  assert.equal(timers.length, 0);
});

test("what has arrived of a cancelled command is not read any more", async () => {
  const before = broken;
  const gone = new AbortController();
  const chunk = encodeLinkFrame("stdout", Buffer.alloc(64 * 1024, "x"));
  let sent = 0;
  const flood: Answer = async (response) => {
    for (; sent < 400; sent += 1) if (!response.write(chunk)) await once(response, "drain");
  };
  let read = 0;
  const observed = Object.create(link) as NodeLink;
  observed.post = (to, path, request, command) => {
    const handOn = command.onResponseData?.bind(command);
    command.onResponseData = (controller, bytes) => {
      read += bytes.byteLength;
      handOn?.(controller, bytes);
    };
    link.post(to, path, request, command);
  };
  const sink: OutputSink = { onOutput: () => new Promise(() => undefined) };
  const command = { tenantId: "tenant", machineId: `mach-${"a".repeat(32)}`, start, stdin: null };
  answer = flood;
  const running = runOnNode(observed, address, { ...command, sink, signal: gone.signal }, clock);
  let last = -1;
  const waits = () => read > 0 && last === (last = sent);
  await until(waits, { what: "the node to wait" });
  const readBefore = read;
  gone.abort(new Error("the caller went away"));
  await assert.rejects(running, /the caller went away/);
  await until(() => broken === before + 1, { what: "the node to see it" });
  assert.equal(read, readBefore);
  assert.equal(timers.length, 0);
});

test("a node that ignores the time limit is cut off, unless the reader is the slow one", async () => {
  let isFull = true;
  const sink = {
    onOutput: () => undefined,
    get isFull() {
      return isFull;
    },
  };
  const before = broken;
  const taken = Promise.withResolvers<void>();
  const silent: Answer = (response) => {
    response.flushHeaders();
    taken.resolve();
  };
  const running = run(silent, { sink });
  const refused = assert.rejects(running, /is past its time limit/);
  await taken.promise;
  assert.equal(timers.length, 1);
  timers.pop()?.();
  assert.equal(timers.length, 1, "it is waited for again");
  isFull = false;
  timers.pop()?.();
  await refused;
  await until(() => broken === before + 1, { what: "the connection to break" });
  assert.equal(timers.length, 0);
});

test("what a node says instead of an exit has its own error each", async () => {
  const refusal =
    (status: number, body: string): Answer =>
    (response) =>
      response.writeHead(status).end(body);
  const notRunning = JSON.stringify({ code: "not_running", message: "because" });
  await assert.rejects(run(refusal(404, notRunning)), NotRunning);
  await assert.rejects(run(refusal(409, notRunning)), NotRunning);
  await assert.rejects(run(refusal(409, "not running, by its text alone")), NodeUnreachable);
  await assert.rejects(run(refusal(500, JSON.stringify({ code: "internal", message: "because" }))), NodeUnreachable);
  const failed = encodeLinkFrame("failure", JSON.stringify({ code: "not_running", message: "it ended" }));
  await assert.rejects(
    run((response) => response.end(failed)),
    NotRunning,
  );
  const cut = /the result is unknown/;
  causes = [];
  await assert.rejects(
    run((response) => response.end()),
    cut,
  );
  await assert.rejects(
    run((response) => response.end(encodeLinkFrame("stdout", "half"))),
    cut,
  );
  await assert.rejects(
    run((response) => response.end("\xff\xff\xff\xff\xff\xff")),
    cut,
  );
  await assert.rejects(
    run((response) => response.end(encodeLinkFrame("exit", "{}"))),
    cut,
  );
  assert.match(causes[0] ?? "", /ended without an exit frame/);
  assert.match(causes.at(-1) ?? "", /ExecExit.exitCode: expected/);
  await assert.rejects(
    run((response) => response.end(encodeLinkFrame("stdin", "mine"))),
    cut,
  );
  const dies: Answer = (response) => {
    response.write(encodeLinkFrame("stdout", "x"));
    setImmediate(() => response.destroy());
  };
  await assert.rejects(run(dies), cut);
  await assert.rejects(
    run((response) => response.destroy()),
    NodeUnreachable,
  );
  await assert.rejects(
    run((response) => response.end(exit(0)), { sink: failing }),
    cut,
  );
  assert.equal((await run((response) => response.end(exit(3)))).exitCode, 3);
  assert.equal(timers.length, 0);
});

const failing: OutputSink = {
  onStarted() {
    throw new Error("a sink that fails");
  },
  onOutput: () => undefined,
};
