/**
 * The end of a command on the link when its last output and its exit arrive at the same moment: the order must be kept.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request as httpRequest, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { encodeLinkFrame, LinkDecoder, type LinkFrame } from "@flotilla/contract/link-stream";
import type { Guest } from "../src/guest/guest.ts";
import { serveExec } from "../src/link/exec.ts";
import { scriptedExec } from "./support/scripted-exec.ts";

const isDiskFull = (): Promise<boolean> => Promise.resolve(false);

test("output that arrives together with the exit is sent before it", async (t) => {
  const { exec, exiting } = scriptedExec();
  const guest = { exec: () => exec } as Partial<Guest> as Guest;
  const server = createServer((request, response) =>
    serveExec(request, response, { guest, clock: systemClock, hasRoom: () => Promise.resolve(true), isDiskFull }),
  );
  t.after(() => server.close());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const sent = httpRequest({ port, host: "127.0.0.1", method: "POST" });
  const start = { argv: ["x"], cwd: null, env: {}, user: null, timeoutMs: null, isBackground: false };
  sent.end(encodeLinkFrame("start", JSON.stringify({ ...start, hasStdin: false, terminal: null })));
  const decoder = new LinkDecoder();
  const frames: LinkFrame[] = [];
  // The head has been sent: only then are parts of the answer combined.
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  response.on("data", (chunk: Buffer) => frames.push(...decoder.push(chunk)));
  await Promise.resolve();
  exec.stdout.push("last output");
  exiting.resolve({ exitCode: 7 });
  await once(response, "end");
  assert.deepEqual(
    frames.map(({ type, payload }) => [type, Buffer.from(payload).toString().slice(0, 13)]),
    [
      ["stdout", "last output"],
      ["exit", '{"exitCode":7'],
    ],
  );
});

test("a file that does not fit on the host's disk is refused while it is being sent, although its guest is silent", async (t) => {
  const { exec } = scriptedExec();
  const guest = { file: () => exec } as Partial<Guest> as Guest;
  const looks = [true, false];
  const hasRoom = () => Promise.resolve(looks.shift() ?? false);
  const server = createServer((request, response) =>
    serveExec(request, response, { guest, clock: systemClock, hasRoom, isDiskFull }),
  );
  t.after(() => server.closeAllConnections());
  t.after(() => server.close());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const sent = httpRequest({ port, host: "127.0.0.1", method: "POST" });
  const file = { path: "/big", operation: "write", offset: 0, length: null };
  const start = { argv: [], cwd: null, env: {}, user: null, timeoutMs: null, isBackground: false, file };
  // Announces more than it sends.
  sent.write(encodeLinkFrame("start", JSON.stringify({ ...start, hasStdin: true, terminal: null })));
  const decoder = new LinkDecoder();
  const frames: LinkFrame[] = [];
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  response.on("data", (chunk: Buffer) => frames.push(...decoder.push(chunk)));
  await once(response, "end");
  assert.deepEqual(
    frames.map(({ type, payload }) => [type, Buffer.from(payload).toString().slice(0, 13)]),
    [
      ["stderr", "no_space on t"],
      ["exit", '{"exitCode":1'],
    ],
  );
});

test("a command that does not end because the host's disk is full says so", async (t) => {
  const { exec } = scriptedExec();
  const guest = { exec: () => exec } as Partial<Guest> as Guest;
  // Deadlines of seconds end at once.
  const clock: Clock = { ...systemClock, timer: (_ms, callback) => systemClock.timer(1, callback) };
  const room = { hasRoom: () => Promise.resolve(true), isDiskFull: () => Promise.resolve(true) };
  const server = createServer((request, response) => serveExec(request, response, { guest, clock, ...room }));
  t.after(() => server.closeAllConnections());
  t.after(() => server.close());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const sent = httpRequest({ port, host: "127.0.0.1", method: "POST" });
  const start = { argv: ["x"], cwd: null, env: {}, user: null, timeoutMs: 1000, isBackground: false };
  sent.end(encodeLinkFrame("start", JSON.stringify({ ...start, hasStdin: false, terminal: null })));
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  const decoder = new LinkDecoder();
  const frames: LinkFrame[] = [];
  response.on("data", (chunk: Buffer) => frames.push(...decoder.push(chunk)));
  await once(response, "end");
  const last = JSON.parse(Buffer.from(frames.at(-1)?.payload ?? []).toString());
  assert.deepEqual([frames.at(-1)?.type, last.code], ["failure", "no_space"]);
});
