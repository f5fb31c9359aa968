/**
 * When the output of a command is written to the server: large pieces are gathered for a moment, on a clock
 * that the test moves.
 */
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { type TestContext, test } from "node:test";
import { type Clock, endOfTurn, systemClock } from "@flotilla/base/clock";
import { encodeLinkFrame, LinkDecoder, type LinkFrame } from "@flotilla/contract/link/frames";
import type { Guest, GuestExec } from "../src/guest/guest.ts";
import type { LinkExecOptions } from "../src/link/exec.ts";
import type { VmNetwork } from "../src/network/vm-network.ts";
import { until } from "../../test/support/until.ts";
import { scriptedExec } from "./support/scripted-exec.ts";
import { servedExec } from "./support/served-exec.ts";

const LARGE = 16 * 1024;
const resumeKey = "ab".repeat(16);

/** A clock whose timers are those of the output: they end when the test says so. */
function handClock() {
  const gathering = new Set<() => void>();
  const timer: Clock["timer"] = (ms, callback) => {
    if (ms > 1) return systemClock.timer(ms, callback);
    gathering.add(callback);
    return { cancel: () => gathering.delete(callback) };
  };
  const pass = (): void => {
    for (const callback of gathering) callback();
    gathering.clear();
  };
  return { clock: { ...systemClock, timer }, gathering, pass };
}

interface Scene extends Partial<LinkExecOptions> {
  readonly guest?: Guest;
  readonly first?: Buffer;
  readonly exec?: GuestExec;
}

/**
 * A command that has begun. `written`: kinds and bytes of the frames that the response was given until now.
 */
async function scene(t: TestContext, { first, ...options }: Scene = {}) {
  const scripted = scriptedExec(options.exec?.kill);
  const exec = options.exec ?? scripted.exec;
  const { clock, gathering, pass } = handClock();
  const guest = { exec: () => exec } as Partial<Guest> as Guest;
  const given: Buffer[] = [];
  const onAnswer = (answer: ServerResponse): void => {
    const write = answer.write.bind(answer) as (part: Buffer) => boolean;
    answer.write = (part: Buffer) => {
      given.push(part);
      return write(part);
    };
  };
  const how = { isOpen: true, onAnswer };
  const { sent, response, answer } = await servedExec(t, { clock, guest, ...options }, first, how);
  const written = (): [string, number][] =>
    new LinkDecoder().push(Buffer.concat(given)).map(({ type, payload }) => [type, payload.byteLength]);
  const read = async (): Promise<LinkFrame[]> => {
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    return new LinkDecoder().push(Buffer.concat(chunks));
  };
  const { stdout, stderr, exiting } = scripted;
  return { exec, exiting, stdout, stderr, gathering, pass, written, read, answer, sent, response };
}

const bytes = (size: number, fill: number | string = 0): Buffer => Buffer.alloc(size, fill);
const kindsOf = (frames: readonly LinkFrame[]): string[] => frames.map(({ type }) => type);

test("a large piece alone is written after a millisecond", async (t) => {
  const { stdout, gathering, pass, written } = await scene(t);
  stdout.push(bytes(LARGE));
  await endOfTurn();
  await endOfTurn();
  assert.deepEqual(written(), []);
  assert.equal(gathering.size, 1);
  pass();
  assert.deepEqual(written(), [["stdout", LARGE]]);
  await endOfTurn();
  assert.equal(gathering.size, 0);
});

test("a small piece is written in its turn, with what was gathered before it", async (t) => {
  const { stdout, gathering, written } = await scene(t);
  stdout.push(bytes(LARGE - 1));
  await endOfTurn();
  assert.deepEqual(written(), [["stdout", LARGE - 1]]);
  assert.equal(gathering.size, 0);
  stdout.push(bytes(LARGE));
  await endOfTurn();
  assert.equal(written().length, 1);
  stdout.push(bytes(1));
  await endOfTurn();
  assert.deepEqual(written().slice(1), [["stdout", LARGE + 1]]);
  assert.equal(gathering.size, 0);
});

test("large pieces of several turns are one frame, which is written when it has enough bytes", async (t) => {
  const { stdout, gathering, written } = await scene(t);
  for (let piece = 0; piece < 5; piece += 1) {
    stdout.push(bytes(LARGE));
    await endOfTurn();
    assert.deepEqual(written(), []);
  }
  stdout.push(bytes(LARGE));
  await endOfTurn();
  assert.deepEqual(written(), [["stdout", 6 * LARGE]]);
  assert.equal(gathering.size, 0);
  stdout.push(bytes(6 * LARGE));
  await endOfTurn();
  assert.equal(written().length, 2, "a piece that is enough alone does not wait");
});

test("the millisecond counts from the first piece, and begins again after it was written", async (t) => {
  const { stdout, gathering, pass, written } = await scene(t);
  stdout.push(bytes(LARGE));
  await endOfTurn();
  const [first] = gathering;
  stdout.push(bytes(LARGE));
  await endOfTurn();
  assert.deepEqual([...gathering], [first]);
  pass();
  assert.deepEqual(written(), [["stdout", 2 * LARGE]]);
  stdout.push(bytes(LARGE));
  await endOfTurn();
  assert.equal(gathering.size, 1);
  pass();
  assert.equal(written().length, 2);
});

test("output of both streams keeps its order", async (t) => {
  const { stdout, stderr, exiting, pass, written, read } = await scene(t);
  stdout.push(bytes(LARGE, "1"));
  await endOfTurn();
  stderr.push(bytes(LARGE, "2"));
  await endOfTurn();
  assert.deepEqual(written(), [["stdout", LARGE]], "what comes after it on the other stream waits alone");
  stdout.push(bytes(LARGE, "3"));
  await endOfTurn();
  stderr.push("4");
  await endOfTurn();
  stdout.push(bytes(LARGE, "5"));
  await endOfTurn();
  pass();
  exiting.resolve({ exitCode: 0 });
  const frames = await read();
  assert.deepEqual(kindsOf(frames), ["stdout", "stderr", "stdout", "stderr", "stdout", "exit"]);
  assert.equal(frames.map(({ payload }) => String.fromCharCode(payload[0] ?? 0)).join(""), "12345{");
});

test("the exit follows gathered output immediately", async (t) => {
  const { stdout, exiting, gathering, read } = await scene(t);
  stdout.push(bytes(LARGE));
  await endOfTurn();
  exiting.resolve({ exitCode: 3 });
  const frames = await read();
  assert.deepEqual(kindsOf(frames), ["stdout", "exit"]);
  assert.equal(frames[0]?.payload.byteLength, LARGE);
  assert.equal(gathering.size, 0);
});

test("the failure of a guest that is lost follows gathered output", async (t) => {
  const { stdout, exiting, gathering, read } = await scene(t);
  stdout.push(bytes(LARGE));
  await endOfTurn();
  exiting.reject(new Error("the channel is lost"));
  assert.deepEqual(kindsOf(await read()), ["stdout", "failure"]);
  assert.equal(gathering.size, 0);
});

test("nothing is gathered for a caller that does not read, and all of it arrives", async (t) => {
  const { exec, exiting, stdout, gathering, written, read, answer } = await scene(t);
  const piece = 60_000;
  let pushed = 0;
  for (; !exec.stdout.isPaused() && pushed < 1_000; pushed += 1) {
    stdout.push(bytes(piece, pushed % 251));
    await endOfTurn();
    assert.ok(answer.writableLength < 256 * 1024);
  }
  assert.ok(pushed < 1_000, "nothing paused the output");
  assert.equal(gathering.size, 0);
  assert.equal(
    written().reduce((sum, [, size]) => sum + size, 0),
    pushed * piece,
  );
  const reading = read();
  await until(() => !exec.stdout.isPaused(), { what: "the output to continue" });
  for (let more = 0; more < 10; more += 1, pushed += 1) stdout.push(bytes(piece, pushed % 251));
  stdout.push(null);
  await endOfTurn();
  exiting.resolve({ exitCode: 0 });
  const frames = await reading;
  const got = Buffer.concat(frames.flatMap(({ type, payload }) => (type === "stdout" ? [payload] : [])));
  assert.equal(got.byteLength, pushed * piece);
  for (let each = 0; each < pushed; each += 1) assert.equal(got[each * piece], each % 251);
  assert.equal(frames.at(-1)?.type, "exit");
});

test("a caller that disconnects ends the command, and what was gathered for it is dropped", async (t) => {
  const killed = Promise.withResolvers<void>();
  const scripted = scriptedExec(() => killed.resolve());
  const { gathering, written, sent } = await scene(t, { exec: scripted.exec });
  scripted.stdout.push(bytes(LARGE));
  await endOfTurn();
  assert.equal(gathering.size, 1);
  sent.destroy();
  await killed.promise;
  assert.equal(gathering.size, 0);
  scripted.stdout.push(bytes(LARGE));
  await endOfTurn();
  assert.equal(gathering.size, 0);
  assert.deepEqual(written(), []);
});

test("the answer for a resumed command whose machine leaves has all its output, so the caller counts right", async (t) => {
  const { exec, stdout, stderr, exiting } = scriptedExec();
  const asked: unknown[] = [];
  const guest: Partial<Guest> = {
    keepsCommands: true,
    resume: (request) => {
      asked.push(request);
      return { exec, stdinOffset: Promise.resolve(0) };
    },
  };
  const resume = { resumeKey, stdoutBytes: 70_000, stderrBytes: 5, elapsedMs: 0, timeoutMs: null };
  const first = encodeLinkFrame("resume", JSON.stringify({ ...resume, hasStdin: false, terminal: null }));
  const { gathering, read } = await scene(t, { guest: guest as Guest, first, isLeaving: () => true });
  stderr.push(bytes(LARGE));
  await endOfTurn();
  stdout.push(bytes(2 * LARGE));
  await endOfTurn();
  exiting.reject(new Error("the channel is lost"));
  const frames = await read();
  assert.deepEqual(
    frames.slice(1).map(({ type, payload }) => [type, payload.byteLength]),
    [
      ["stderr", LARGE],
      ["stdout", 2 * LARGE],
    ],
  );
  assert.equal(frames[0]?.type, "resumed");
  assert.deepEqual(asked, [{ resumeKey, stdoutOffset: 70_000, stderrOffset: 5 }]);
  assert.equal(gathering.size, 0);
});

test("output of a connection is not gathered, and how much of it was taken reaches the guest", async (t) => {
  const scripted = scriptedExec();
  const taken: number[] = [];
  const exec: GuestExec = { ...scripted.exec, outputTaken: (stdoutBytes) => void taken.push(stdoutBytes) };
  const guest = { canConnect: true, connect: () => exec } as Partial<Guest> as Guest;
  const first = encodeLinkFrame("start", JSON.stringify({ port: 80, resumeKey }));
  const connectsIn = { network: {} as VmNetwork };
  const { sent, gathering, written } = await scene(t, { guest, first, connectsIn });
  scripted.stdout.push(bytes(LARGE));
  await endOfTurn();
  assert.deepEqual(written().slice(1), [["stdout", LARGE]]);
  assert.equal(gathering.size, 0);
  sent.write(encodeLinkFrame("taken", JSON.stringify({ stdoutBytes: LARGE })));
  await until(() => taken.length > 0, { what: "the guest to receive it" });
  assert.deepEqual(taken, [LARGE]);
});

/** A connection whose guest takes its input when the test says so. */
async function connection(t: TestContext) {
  const scripted = scriptedExec();
  const following = Promise.withResolvers<(bytes: number) => void>();
  const guest = { canConnect: true, connect: () => ({ ...scripted.exec, onInputTaken: following.resolve }) };
  const served = await scene(t, {
    guest: guest as Partial<Guest> as Guest,
    first: encodeLinkFrame("start", JSON.stringify({ port: 80, resumeKey })),
    connectsIn: { network: {} as VmNetwork },
  });
  const end = (): void => {
    for (const output of [scripted.stdout, scripted.stderr]) output.end();
    scripted.exiting.resolve({ exitCode: 0 });
  };
  return { ...served, ...scripted, end, taken: await following.promise };
}

/** What a caller received on its input. */
const inputTakenIn = (frames: readonly LinkFrame[]): number[] =>
  frames
    .filter(({ type }) => type === "resumed")
    .map(({ payload }) => (JSON.parse(Buffer.from(payload).toString()) as { stdinBytes: number }).stdinBytes);

test("input that is taken in many pieces of one turn is one message", async (t) => {
  const { read, end, taken } = await connection(t);
  for (let pieces = 1; pieces <= 1_000; pieces += 1) taken(pieces);
  await endOfTurn();
  taken(2_000);
  await endOfTurn();
  end();
  assert.deepEqual(inputTakenIn(await read()), [0, 1_000, 2_000]);
});

test("a caller that does not read learns later how much of its input was taken, in however many pieces that was", async (t) => {
  const { answer, read, end, stdout, taken } = await connection(t);
  stdout.push(bytes(16 * 1024 * 1024));
  await until(() => stdout.isPaused(), { what: "the caller to hold the output up" });
  await endOfTurn();
  const waiting = answer.writableLength;
  for (let pieces = 1; pieces <= 1_000; pieces += 1) {
    taken(pieces);
    await endOfTurn();
  }
  assert.ok(answer.writableLength <= waiting, `${answer.writableLength - waiting} bytes more wait for the caller`);
  const frames = read();
  await until(() => answer.writableLength === 0, { what: "the caller to have read" });
  end();
  assert.deepEqual(inputTakenIn(await frames), [0, 1_000]);
});
