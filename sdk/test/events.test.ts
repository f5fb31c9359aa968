/**
 * Reading event streams: complete events wherever the stream was cut, ends that can be distinguished, and
 * nothing fetched ahead of the reader.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type ExecEvent,
  FlotillaError,
  readEvents,
  readExecEvents,
  readLogRecords,
  type StreamEvent,
} from "@flotilla/sdk";
import fc from "fast-check";

function answerOf(bytes: Uint8Array, cuts: readonly number[] = []): Response {
  const at = [0, ...cuts.map((cut) => Math.min(cut, bytes.length)), bytes.length].toSorted((a, b) => a - b);
  const pieces = at.slice(1).map((end, index) => bytes.slice(at[index], end));
  return new Response(ReadableStream.from(pieces.filter(({ length }) => length > 0)));
}

const answer = (text: string, cuts?: readonly number[]): Response => answerOf(new TextEncoder().encode(text), cuts);

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

test("events are complete, wherever the stream was cut", async () => {
  const data = fc.string({ unit: "binary", maxLength: 20 });
  const event = fc.record({ event: fc.constantFrom("stdout", "stderr", "message"), data }, { noNullPrototype: true });
  await fc.assert(
    fc.asyncProperty(fc.array(event, { maxLength: 5 }), fc.array(fc.nat(300)), async (events, cuts) => {
      const text = events.map((one) => `event: ${one.event}\ndata: ${one.data.replaceAll("\n", "\ndata: ")}\n\n:\n\n`);
      const read: StreamEvent[] = await all(readEvents(answer(text.join(""), cuts)));
      assert.deepEqual(read, events);
    }),
  );
});

test("lines of a log are records, and keep-alive lines are skipped", async () => {
  const record = { timestamp: "2026-01-02T03:04:05.000Z", level: "info", message: "one: two", source: "workload" };
  const line = `data: ${JSON.stringify(record)}\n\n`;
  assert.deepEqual(await all(readLogRecords(answer(`\n\n${line}\n${line}`))), [record, record]);
});

test("a stream of data lines alone is a stream of messages", async () => {
  const read = await all(readEvents(answer("data: one\n\n\ndata:two\n\nid: 7\n\ndata: never finished")));
  assert.deepEqual(read, [
    { event: "message", data: "one" },
    { event: "message", data: "two" },
  ]);
});

test("a command's events end with its exit code", async () => {
  const text = 'event: stdout\ndata: /wA=\n\nevent: exit\ndata: {"exitCode":9}\n\nevent: stdout\ndata: AA==\n\n';
  const read: ExecEvent[] = await all(readExecEvents(answer(text)));
  assert.deepEqual(read, [
    { kind: "stdout", bytes: new Uint8Array([255, 0]) },
    { kind: "exit", exitCode: 9 },
  ]);
});

test("a missing end of a command is an error with a code", async () => {
  const broken = new Response(
    new ReadableStream({ pull: (controller) => controller.error(new Error("reset by the peer")) }),
  );
  const ends: readonly [Response, string, RegExp][] = [
    [answer("event: error\ndata: the node broke\n\n"), "exec_failed", /^the node broke$/],
    [answer("event: stdout\ndata: \n\n"), "unreachable", /ended before the command's exit/],
    [broken, "unreachable", /the connection broke/],
  ];
  for (const [stream, code, text] of ends) {
    const error = await all(readExecEvents(stream)).then(
      () => null,
      (reason: unknown) => reason,
    );
    assert.ok(error instanceof FlotillaError);
    assert.equal(error.code, code);
    assert.match(error.text, text);
  }
});

test("a stream that its caller cancelled is an error with another code than one that broke", async () => {
  const broken = () =>
    new Response(new ReadableStream({ pull: (controller) => controller.error(new Error("reset by the peer")) }));
  const cancelled = AbortSignal.abort();
  const { signal } = new AbortController();
  for (const [reading, code] of [
    [readExecEvents(broken(), cancelled), "aborted"],
    [readExecEvents(broken(), signal), "unreachable"],
    [readLogRecords(broken(), cancelled), "aborted"],
    [readLogRecords(broken()), "unreachable"],
  ] as const)
    await assert.rejects(all<unknown>(reading), { name: "FlotillaError", code });
});

test("ending the iteration ends the stream, and nothing is fetched ahead of the reader", async () => {
  let pulled = 0;
  let isCanceled = false;
  const endless = new ReadableStream({
    pull(controller) {
      pulled += 1;
      controller.enqueue(new TextEncoder().encode(`data: ${pulled}\n\n`));
    },
    cancel() {
      isCanceled = true;
    },
  });
  for await (const { data } of readEvents(new Response(endless))) if (data === "3") break;
  assert.equal(isCanceled, true);
  assert.ok(pulled < 10, `${pulled} pieces were fetched`);
});
