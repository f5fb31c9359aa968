/**
 * Files over the link to a misbehaving node: a small HTTP server that gives the answers of each test.
 */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { after, test } from "node:test";
import { type Clock, endOfTurn, systemClock } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import { WHOLE_FILE } from "@flotilla/contract/link/file-parts";
import { filesOnNode } from "../src/link/files.ts";
import { NodeLink } from "../src/link/node-link.ts";
import { type NodeRefused, NodeUnreachable, NotRunning } from "../src/link/refusals.ts";
import { createLog } from "../src/log.ts";
import { until } from "../../test/support/until.ts";

type Answer = (response: ServerResponse, request: IncomingMessage) => void;

let answer: Answer = () => undefined;
const node = createServer((request, response) => {
  request.on("error", () => undefined);
  answer(response, request);
});
node.listen(0, "127.0.0.1");
await once(node, "listening");
const address = { nodeId: "node-a", address: `http://127.0.0.1:${(node.address() as AddressInfo).port}` };
const link = new NodeLink(createLog("silent"), systemClock);
const files = filesOnNode(link, address);
after(async () => {
  await link.close();
  node.closeAllConnections();
  node.close();
});

const call = (signal = new AbortController().signal) => ({
  tenantId: "tenant",
  machineId: `mach-${"a".repeat(32)}`,
  path: "/workspace/a",
  signal,
});
const FACTS = JSON.stringify({ mode: "0644", size: 5, modifiedAt: 1 });
const CUT_OFF = /the result is unknown/;

function refusing(status: number, code: string): Answer {
  return (response, request) => {
    request.resume();
    response.writeHead(status).end(JSON.stringify({ code, message: "because" }));
  };
}

/** Reads a file with this answer of the node. */
async function read(how: Answer): Promise<string> {
  answer = how;
  const { content } = await files.read(call(), WHOLE_FILE);
  return Buffer.concat(await content.toArray()).toString();
}

test("what a node refuses has its own error, and leaves content complete for another attempt", async () => {
  await assert.rejects(read(refusing(409, "not_running")), NotRunning);
  await assert.rejects(read(refusing(404, "not_running")), NotRunning);
  await assert.rejects(read(refusing(404, "not_found")), (error: NodeRefused) => error.status === 404);
  await assert.rejects(read(refusing(409, "is_directory")), (error: NodeRefused) => error.code === "is_directory");
  await assert.rejects(
    read((response) => response.destroy()),
    NodeUnreachable,
  );
  answer = refusing(409, "not_running");
  await assert.rejects(files.write(call(), { sha256: null, bytes: 5 }), NotRunning);
  await assert.rejects(
    files.list(call(), () => undefined),
    NotRunning,
  );
  await assert.rejects(files.remove(call()), NotRunning);
});

test("a refusal that has no end is not read on, and what is not text is left out of it", async () => {
  let refused: NodeRefused | undefined;
  read((response) => response.writeHead(500).write(`a\0b${"x".repeat(1024 * 1024)}`)).catch((error: NodeRefused) => {
    refused = error;
  });
  const { code, message } = await until(() => refused, { what: "the refusal" });
  assert.deepEqual([code, message.slice(0, 4), message.length], ["internal", "abxx", 499]);
});

test("a read without valid facts, and one that ends early, are never taken for the file", async () => {
  const head = { "flotilla-file": FACTS, "content-length": 5 };
  assert.equal(await read((response) => response.writeHead(200, head).end("hello")), "hello");
  for (const facts of ["", "{", "{}", JSON.stringify({ mode: "x", size: 5, modifiedAt: 1 })])
    await assert.rejects(
      read((response) => response.writeHead(200, { ...head, "flotilla-file": facts }).end("hello")),
      CUT_OFF,
    );
  const early: Answer = (response) => {
    response.writeHead(200, head).write("hel");
    setImmediate(() => response.destroy());
  };
  await assert.rejects(read(early), CUT_OFF);
});

test("content that is longer or shorter than its facts say is never taken for the file", async () => {
  const saying = (...pieces: readonly string[]) =>
    read((response) => {
      response.writeHead(200, { "flotilla-file": FACTS });
      for (const piece of pieces) response.write(piece);
      response.end();
    });
  assert.equal(await saying("he", "llo"), "hello");
  // A caller that expects five bytes would take the rest for the beginning of the next answer on its
  // connection.
  for (const pieces of [["hello", "HTTP/1.1 200 OK"], ["hello!"], ["hell"], []])
    await assert.rejects(saying(...pieces), CUT_OFF, pieces.join());
});

test("a write sends what the caller has, and its answer may follow white space", async () => {
  const content = randomBytes(2_000_000);
  const sha256 = createHash("sha256").update(content).digest("hex");
  for (const bytes of [content.byteLength, null]) {
    let received = Buffer.alloc(0);
    answer = async (response, request) => {
      response.writeHead(200).flushHeaders();
      response.write("\n\n");
      received = Buffer.concat((await request.toArray()) as Buffer[]);
      response.end(JSON.stringify({ kind: "written", sha256 }));
    };
    const write = await files.write(call(), { sha256: null, bytes });
    assert.equal(await write.send(Readable.from([content.subarray(0, 7), content.subarray(7)])), sha256);
    const line = received.indexOf("\n");
    assert.deepEqual(JSON.parse(received.toString("utf8", 0, line)), { path: "/workspace/a", sha256: null });
    assert.ok(received.subarray(line + 1).equals(content));
  }
});

test("a write that its node ends early, garbles or never answers fails", async () => {
  const failing = async (end: string | null): Promise<void> => {
    answer = (response, request) => {
      response.writeHead(200).flushHeaders();
      request.once("data", () => (end === null ? response.destroy() : response.end(end)));
    };
    const write = await files.write(call(), { sha256: null, bytes: null });
    const body = new Readable({ read: () => undefined });
    body.push("some, and no end");
    await write.send(body);
  };
  const failed = JSON.stringify({ kind: "failed", error: { code: "no_space", message: "full" } });
  await assert.rejects(failing(failed), (error: NodeRefused) => error.code === "no_space");
  await assert.rejects(failing(JSON.stringify({ kind: "written", sha256: "0".repeat(64) })), CUT_OFF);
  for (const end of ["", "{}", "x".repeat(100_000), null]) await assert.rejects(failing(end), CUT_OFF);
});

/** A clock of which a second passes with each step. */
function steppedClock() {
  const timers = new Map<object, { readonly at: number; readonly callback: () => void }>();
  let now = 0;
  const clock: Clock = {
    ...systemClock,
    monotonic: () => now,
    timer: (ms, callback) => {
      const timer = { cancel: () => void timers.delete(timer) };
      timers.set(timer, { at: now + ms, callback });
      return timer;
    },
  };
  const step = async (): Promise<void> => {
    now += 1_000;
    for (const [timer, { at, callback }] of [...timers]) if (at <= now && timers.delete(timer)) callback();
    await endOfTurn();
  };
  return { clock, step };
}

/** How a write ended within five minutes. `everySecond` is called with the node's answer. */
async function afterMinutes(content: Readable, how: Answer, everySecond: (response: ServerResponse) => void) {
  const { clock, step } = steppedClock();
  const slow = new NodeLink(createLog("silent"), clock);
  const gone = new AbortController();
  const answering = new Promise<ServerResponse>((resolve) => {
    answer = (response, request) => {
      response.on("error", () => undefined);
      response.writeHead(200).flushHeaders();
      how(response, request);
      resolve(response);
    };
  });
  const write = await filesOnNode(slow, address).write(call(gone.signal), { sha256: null, bytes: null });
  const response = await answering;
  let end = "none";
  const sending = write.send(content).catch((error: Error) => (end = error.message));
  for (let second = 0; second < 300 && end === "none"; second += 1) {
    everySecond(response);
    await step();
  }
  const ended = end;
  gone.abort(new Error("the test is over"));
  content.destroy();
  await sending;
  await slow.close();
  return ended;
}

test("a write ends when its node neither takes what waits nor says anything, as if their connection had died", async () => {
  const endless = (): Readable => {
    const content = new Readable({ read: (bytes) => void setImmediate(() => content.push(Buffer.alloc(bytes))) });
    return content;
  };
  const stops: Answer = (_, request) => void request.pause();
  const reads: Answer = (_, request) => void request.resume();
  const silent = (): void => undefined;
  assert.match(await afterMinutes(endless(), stops, silent), CUT_OFF);
  assert.match(await afterMinutes(Readable.from([Buffer.from("all")]), reads, silent), CUT_OFF);
  assert.equal(await afterMinutes(endless(), stops, (response) => void response.write("\n")), "none");
  assert.equal(await afterMinutes(endless(), reads, silent), "none");
  assert.equal(await afterMinutes(new Readable({ read: () => undefined }), reads, silent), "none");
});

test("a list is complete with its last line only", async () => {
  const entry = { name: "a", kind: "file", mode: "0644", size: 1, modifiedAt: 1 };
  const line = `${JSON.stringify({ kind: "entry", entry })}\n`;
  const listing = async (text: string): Promise<unknown> => {
    answer = (response) => response.end(text);
    const found: unknown[] = [];
    await files.list(call(), (one) => found.push(one));
    return found;
  };
  assert.deepEqual(await listing(`${line}${line}{"kind":"done"}\n`), [entry, entry]);
  for (const text of ["", line, `${line}{"kind":"done"}`, "garbage\n", "x".repeat(1_000_000), `${line}{}\n`])
    await assert.rejects(listing(text), CUT_OFF, text.slice(0, 20));
  const failed = `${line}${JSON.stringify({ kind: "failed", error: { code: "too_many_entries", message: "many" } })}\n`;
  await assert.rejects(listing(failed), (error: NodeRefused) => error.code === "too_many_entries");
});

test("a list whose entries have no room ends at the node", async () => {
  const entry = { name: "a", kind: "file", mode: "0644", size: 1, modifiedAt: 1 };
  const line = `${JSON.stringify({ kind: "entry", entry })}\n`;
  const closed = new Promise((resolve) => {
    answer = (response) => {
      response.once("close", resolve);
      response.write(line);
    };
  });
  const refusal = new Refusal("rate_limited", "no room");
  const take = (): never => {
    throw refusal;
  };
  await assert.rejects(files.list(call(), take), refusal);
  await closed;
});

test("a caller that leaves ends the operation at the node", async () => {
  const gone = new AbortController();
  const closed = new Promise((resolve) => {
    answer = (response) => {
      response.writeHead(200).flushHeaders();
      response.once("close", resolve);
    };
  });
  const write = await files.write(call(gone.signal), { sha256: null, bytes: 100 });
  const sending = write.send(new Readable({ read: () => undefined }));
  gone.abort(new Error("the caller went away"));
  await assert.rejects(sending);
  await closed;
});
