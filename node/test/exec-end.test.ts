/**
 * The end of a command on the link when its last output and its exit arrive at the same moment: the order
 * must be kept.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { type Clock, endOfTurn, systemClock } from "@flotilla/base/clock";
import type { LinkError } from "@flotilla/contract/link/link";
import { LinkDecoder, type LinkFrame } from "@flotilla/contract/link/frames";
import type { Guest } from "../src/guest/guest.ts";
import { until } from "../../test/support/until.ts";
import { scriptedExec } from "./support/scripted-exec.ts";
import { servedExec, startFrame } from "./support/served-exec.ts";

test("output that arrives together with the exit is sent before it", async (t) => {
  const { exec, exiting } = scriptedExec();
  const guest = { exec: () => exec } as Partial<Guest> as Guest;
  const decoder = new LinkDecoder();
  const frames: LinkFrame[] = [];
  // The head has been sent: only then are parts of the answer combined.
  const { response } = await servedExec(t, { guest });
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

test("what came in one turn is one frame for each change of the stream, and the exit follows it", async (t) => {
  const { exec, exiting } = scriptedExec();
  const guest = { exec: () => exec } as Partial<Guest> as Guest;
  const { response } = await servedExec(t, { guest });
  const chunks: Buffer[] = [];
  response.on("data", (chunk: Buffer) => chunks.push(chunk));
  await Promise.resolve();
  const large = Buffer.alloc(50_000, "l");
  exec.stdout.push("one ");
  exec.stdout.push("two");
  exec.stderr.push("error");
  exec.stdout.push(large);
  exec.stdout.push("end");
  exiting.resolve({ exitCode: 0 });
  await once(response, "end");
  // Whole, because the decoder hands on parts of a frame.
  const frames = new LinkDecoder().push(Buffer.concat(chunks));
  assert.deepEqual(
    frames.slice(0, -1).map(({ type, payload }) => [type, Buffer.from(payload).toString()]),
    [
      ["stdout", "one two"],
      ["stderr", "error"],
      ["stdout", `${large.toString()}end`],
    ],
  );
  assert.equal(frames.at(-1)?.type, "exit");
});

test("a caller that does not read pauses the output, of which a bounded part is held, and then gets all of it in order", async (t) => {
  const { exec, exiting } = scriptedExec();
  const guest = { exec: () => exec } as Partial<Guest> as Guest;
  const { response, answer } = await servedExec(t, { guest });
  const pieces = Array.from({ length: 400 }, (_, index) => Buffer.alloc(60_000, index % 251));
  let heldMax = 0;
  let pushed = 0;
  while (!exec.stdout.isPaused() && pushed < pieces.length) {
    // Several in each turn, as from one read.
    for (const piece of pieces.slice(pushed, pushed + 4)) exec.stdout.push(piece);
    pushed += 4;
    heldMax = Math.max(heldMax, answer.writableLength);
    await endOfTurn();
  }
  assert.ok(pushed < pieces.length, "nothing paused the output");
  assert.ok(heldMax < 256 * 1024, `${heldMax} bytes were held`);
  for (const piece of pieces.slice(pushed)) exec.stdout.push(piece);
  exec.stdout.push(null);
  exiting.resolve({ exitCode: 0 });
  const decoder = new LinkDecoder();
  const frames: LinkFrame[] = [];
  for await (const chunk of response) frames.push(...decoder.push(chunk as Buffer));
  const got = Buffer.concat(frames.flatMap(({ type, payload }) => (type === "stdout" ? [payload] : [])));
  assert.ok(got.equals(Buffer.concat(pieces)));
  assert.equal(frames.at(-1)?.type, "exit");
});

test("small pieces that fill the connection of a slow caller do not stop the output for ever", async (t) => {
  const { exec, exiting } = scriptedExec();
  const guest = { exec: () => exec } as Partial<Guest> as Guest;
  const { response } = await servedExec(t, { guest });
  // Each is less than the response's high-water mark, and they come in separate turns.
  let pushed = 0;
  for (; !exec.stdout.isPaused() && pushed < 1_000; pushed += 1) {
    exec.stdout.push(Buffer.alloc(30_000, pushed % 251));
    await endOfTurn();
  }
  assert.ok(pushed < 1_000, "nothing paused the output");
  let got = 0;
  response.on("data", (chunk: Buffer) => (got += chunk.byteLength));
  await until(() => !exec.stdout.isPaused(), { what: "the output to continue" });
  exec.stdout.push(null);
  exiting.resolve({ exitCode: 0 });
  await once(response, "end");
  assert.ok(got > pushed * 30_000);
});

test("a command that does not end because its machine is paused says why", async (t) => {
  const { exec } = scriptedExec();
  const guest = { exec: () => exec } as Partial<Guest> as Guest;
  // Deadlines of seconds end at once.
  const clock: Clock = { ...systemClock, timer: (_ms, callback) => systemClock.timer(1, callback) };
  // It is paused after the command has begun.
  const obstacles = [null, { code: "paused", message: "its host's disk is full" } as const];
  const obstacle = () => obstacles.shift() ?? null;
  const { response } = await servedExec(t, { guest, clock, obstacle }, startFrame({ timeoutMs: 1000 }));
  const decoder = new LinkDecoder();
  const frames: LinkFrame[] = [];
  response.on("data", (chunk: Buffer) => frames.push(...decoder.push(chunk)));
  await once(response, "end");
  const last = JSON.parse(Buffer.from(frames.at(-1)?.payload ?? []).toString());
  assert.deepEqual([frames.at(-1)?.type, last], ["failure", { code: "paused", message: "its host's disk is full" }]);
});

test("a command that waits for an agent that does not answer any more ends with the reason, and is killed", async (t) => {
  const killed = Promise.withResolvers<void>();
  const { exec } = scriptedExec(killed.resolve);
  const guest = { exec: () => exec } as Partial<Guest> as Guest;
  const silence: LinkError = { code: "guest_unreachable", message: "its agent has not answered" };
  const ends = new Set<(silence: LinkError) => void>();
  const onSilent = (end: (silence: LinkError) => void) => {
    ends.add(end);
    return () => void ends.delete(end);
  };
  const { response } = await servedExec(t, { guest, onSilent });
  for (const end of ends) end(silence);
  const decoder = new LinkDecoder();
  const frames: LinkFrame[] = [];
  response.on("data", (chunk: Buffer) => frames.push(...decoder.push(chunk)));
  await once(response, "end");
  const last = JSON.parse(Buffer.from(frames.at(-1)?.payload ?? []).toString());
  assert.deepEqual([frames.at(-1)?.type, last], ["failure", silence]);
  await killed.promise;
  assert.equal(ends.size, 0, "nothing of a command is left");
});
