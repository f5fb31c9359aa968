/**
 * Reading framed output: every byte arrives wherever the stream was cut, and each end is distinguished.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { EXEC_FRAME_HEAD_BYTES, EXEC_FRAMES, EXEC_FRAMES_TYPE as TYPE } from "@flotilla/contract/exec-frames";
import { type ExecEvent, Flotilla, FlotillaError, readExecEvents } from "@flotilla/sdk";
import fc from "fast-check";
import { EXEC_FRAMES_TYPE } from "../src/exec-frames.ts";
import { startPeer } from "./peer.ts";

function frame(kind: number, payload: Uint8Array | string = ""): Buffer {
  const bytes = typeof payload === "string" ? Buffer.from(payload) : payload;
  const head = Buffer.alloc(EXEC_FRAME_HEAD_BYTES);
  head.writeUInt8(kind, 0);
  head.writeUInt32BE(bytes.length, 4);
  return Buffer.concat([head, bytes]);
}

const EXIT = frame(EXEC_FRAMES.exit, '{"exitCode":9}');

function answerOf(bytes: Uint8Array, cuts: readonly number[] = []): Response {
  const at = [0, ...cuts.map((cut) => Math.min(cut, bytes.length)), bytes.length].toSorted((a, b) => a - b);
  const pieces = at.slice(1).map((end, index) => new Uint8Array(bytes.slice(at[index], end)));
  const body = ReadableStream.from(pieces.filter(({ length }) => length > 0));
  return new Response(body, { headers: { "content-type": TYPE } });
}

async function all(events: AsyncIterable<ExecEvent>): Promise<ExecEvent[]> {
  const found: ExecEvent[] = [];
  for await (const event of events) found.push(event);
  return found;
}

const outputOf = (events: readonly ExecEvent[], kind: "stdout" | "stderr"): Buffer =>
  Buffer.concat(events.flatMap((event) => (event.kind === kind ? [event.bytes] : [])));

test("the SDK and the contract name the same type", () => {
  assert.equal(EXEC_FRAMES_TYPE, TYPE);
});

test("every byte arrives, wherever the stream was cut, and unknown frames are skipped", async () => {
  const kind = fc.constantFrom(EXEC_FRAMES.keepAlive, EXEC_FRAMES.stdout, EXEC_FRAMES.stderr, 7, 255);
  const frames = fc.array(fc.tuple(kind, fc.uint8Array({ maxLength: 40 })), { maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(frames, fc.array(fc.nat(400), { maxLength: 20 }), async (sent, cuts) => {
      const bytes = Buffer.concat([...sent.map(([type, payload]) => frame(type, payload)), EXIT]);
      const events = await all(readExecEvents(answerOf(bytes, cuts)));
      assert.deepEqual(events.at(-1), { kind: "exit", exitCode: 9 });
      for (const name of ["stdout", "stderr"] as const) {
        const expected = sent.flatMap(([type, payload]) => (type === EXEC_FRAMES[name] ? [payload] : []));
        assert.deepEqual(outputOf(events, name), Buffer.concat(expected));
      }
    }),
  );
});

test("output is handed out before its frame is complete, and nothing follows the exit", async () => {
  const half = frame(EXEC_FRAMES.stdout, "whole").subarray(0, EXEC_FRAME_HEAD_BYTES + 2);
  const iterator = readExecEvents(
    new Response(new ReadableStream({ start: (controller) => controller.enqueue(new Uint8Array(half)) }), {
      headers: { "content-type": `${TYPE}; version=1` },
    }),
  );
  const { value } = await iterator.next();
  assert.ok(value?.kind === "stdout");
  assert.equal(Buffer.from(value.bytes).toString(), "wh");
  await iterator.return();
  const after = Buffer.concat([EXIT, frame(EXEC_FRAMES.stdout, "late")]);
  assert.deepEqual(await all(readExecEvents(answerOf(after))), [{ kind: "exit", exitCode: 9 }]);
});

test("a missing end of a command is an error with a code", async () => {
  const huge = frame(EXEC_FRAMES.exit);
  huge.writeUInt32BE(0xffff_ffff, 4);
  const ends: readonly [Uint8Array, string, RegExp][] = [
    [frame(EXEC_FRAMES.error, '{"code":"unavailable","message":"the node broke"}'), "exec_failed", /^the node broke$/],
    [frame(EXEC_FRAMES.stdout, "a"), "unreachable", /ended before the command's exit/],
    [EXIT.subarray(0, -1), "unreachable", /ended before the command's exit/],
    [Buffer.concat([huge, Buffer.alloc(10)]), "unreachable", /the connection broke/],
  ];
  for (const [bytes, code, text] of ends) {
    const error = await all(readExecEvents(answerOf(bytes))).then(
      () => null,
      (reason: unknown) => reason,
    );
    assert.ok(error instanceof FlotillaError);
    assert.equal(error.code, code);
    assert.match(error.text, text);
  }
});

test("streamExec asks for frames", async (t) => {
  const peer = await startPeer(t, (_arrived, answer) => {
    answer.writeHead(200, { "content-type": TYPE });
    answer.end(Buffer.concat([frame(EXEC_FRAMES.stderr, new Uint8Array([255, 0])), EXIT]));
  });
  const flotilla = new Flotilla({ url: peer.url, apiKey: "smk_test" });
  const found = await all(await flotilla.streamExec("m", { command: "x" }, { headers: { "x-mine": "1" } }));
  assert.deepEqual(
    found.map((event) => (event.kind === "exit" ? event : { ...event, bytes: new Uint8Array(event.bytes) })),
    [
      { kind: "stderr", bytes: new Uint8Array([255, 0]) },
      { kind: "exit", exitCode: 9 },
    ],
  );
  assert.equal((await all(await flotilla.streamExecInSession("m", "s", { command: "x" }))).length, 2);
  const [first, second] = peer.arrived;
  assert.equal(first?.url, "/v1/machines/m/exec/stream");
  assert.equal(first?.headers.accept, `${TYPE}, application/problem+json`);
  assert.equal(first?.headers["x-mine"], "1");
  assert.equal(second?.url, "/v1/machines/m/sessions/s/exec");
  assert.equal(JSON.parse(String(second?.body)).stream, true);
});
