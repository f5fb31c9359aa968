/**
 * The framing of a command's output: every byte of text arrives, in order, in events that existing clients
 * can parse.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { endOfTurn, systemClock } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import fc from "fast-check";
import { acceptsFrames } from "./answer.ts";
import { CommandEvents } from "./events.ts";
import { type EventFraming, eventFrame, linesFrame } from "./frames.ts";

/** As existing clients parse a stream. */
function parse(text: string): { readonly event: string; readonly data: string }[] {
  return text
    .split("\n\n")
    .slice(0, -1)
    .filter((frame) => !frame.startsWith(":"))
    .map((frame) => {
      const lines = frame.split("\n");
      assert.ok(lines.slice(1).every((line) => line.startsWith("data: ")));
      return {
        event: lines[0]?.slice("event: ".length) ?? "",
        data: lines
          .slice(1)
          .map((line) => line.slice("data: ".length))
          .join("\n"),
      };
    });
}

type Chunk = readonly ["stdout" | "stderr", Uint8Array];

async function streamed(
  chunks: readonly Chunk[],
  framing: EventFraming = "lines",
): Promise<{ event: string; data: string }[]> {
  const events = new CommandEvents(systemClock, { framing });
  const reading = events.toArray();
  for (const [stream, chunk] of chunks) await events.onOutput(stream, chunk);
  events.finish({ exitCode: 3, durationMs: 1, hasTimedOut: false, pid: null });
  return parse(Buffer.concat((await reading) as Buffer[]).toString());
}

const textOf = (events: readonly { event: string; data: string }[], name: string): string =>
  events
    .filter(({ event }) => event === name)
    .map(({ data }) => data)
    .join("");

test("a trailing line break shows as a final empty data line", () => {
  assert.equal(eventFrame("stdout", "hi\n"), "event: stdout\ndata: hi\ndata: \n\n");
});

test("text cut anywhere arrives whole, and never with half a character in an event", async () => {
  const text = fc.string({ unit: "binary", maxLength: 40 }).map((value) => value.replaceAll("\ufffd", "x"));
  await fc.assert(
    fc.asyncProperty(text, text, fc.array(fc.nat(120), { maxLength: 6 }), async (out, err, cuts) => {
      const chunks = [...pieces(out, cuts, "stdout"), ...pieces(err, cuts, "stderr")];
      const events = await streamed(chunks);
      assert.equal(textOf(events, "stdout"), out);
      assert.equal(textOf(events, "stderr"), err);
      assert.deepEqual(events.at(-1), { event: "exit", data: '{"exitCode":3}' });
    }),
  );
});

function pieces(text: string, cuts: readonly number[], stream: "stdout" | "stderr"): Chunk[] {
  const bytes = Buffer.from(text);
  const at = [0, ...cuts.map((cut) => Math.min(cut, bytes.length)), bytes.length].toSorted((a, b) => a - b);
  return at.slice(1).map((end, index): Chunk => [stream, bytes.subarray(at[index], end)]);
}

test("the event of text that is given as bytes is the one of the text, whatever the length of its lines", () => {
  const line = fc.nat(40).chain((length) => fc.string({ unit: "binary", maxLength: length }));
  fc.assert(
    fc.property(fc.array(line, { maxLength: 12 }), (lines) => {
      const text = lines.join("\n").toWellFormed();
      assert.equal(linesFrame("stdout", Buffer.from(text))?.toString(), eventFrame("stdout", text));
    }),
  );
  assert.equal(linesFrame("stdout", Buffer.from([0xff])), null);
});

test("bytes that are not text are replaced, also at the end", async () => {
  const events = await streamed([["stdout", Buffer.from([0x61, 0xff, 0x62, 0xe2, 0x82])]]);
  assert.equal(textOf(events, "stdout"), "a\ufffdb\ufffd");
});

test("base64 carries every byte", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ minLength: 1, maxLength: 50 }), { maxLength: 5 }), async (chunks) => {
      const events = await streamed(
        chunks.map((chunk): Chunk => ["stderr", chunk]),
        "b64",
      );
      const bytes = events.flatMap(({ event, data }) => (event === "stderr" ? [Buffer.from(data, "base64")] : []));
      assert.deepEqual(Buffer.concat(bytes), Buffer.concat(chunks));
    }),
  );
});

/** Binary frames, as docs/streams.md describes them. */
function framesIn(bytes: Buffer): { readonly kind: number; readonly payload: Buffer }[] {
  const found = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 8 + bytes.readUInt32BE(at + 4);
    assert.ok(end <= bytes.length && bytes.readUInt32BE(at) % 2 ** 24 === 0);
    found.push({ kind: bytes.readUInt8(at), payload: bytes.subarray(at + 8, end) });
    at = end;
  }
  return found;
}

test("binary frames carry every byte, in order, and the exit last", async () => {
  const large = fc.constant(new Uint8Array(70_000).fill(7));
  const chunk = fc.oneof(fc.uint8Array({ maxLength: 50 }), large);
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(fc.constantFrom("stdout", "stderr"), chunk), { maxLength: 5 }), async (sent) => {
      const events = new CommandEvents(systemClock, { framing: "frames" });
      const reading = events.toArray();
      for (const [stream, bytes] of sent) await events.onOutput(stream, bytes);
      events.finish({ exitCode: 3, durationMs: 1, hasTimedOut: false, pid: null });
      const frames = framesIn(Buffer.concat((await reading) as Buffer[]));
      const last = frames.pop();
      assert.deepEqual([last?.kind, last?.payload.toString()], [3, '{"exitCode":3}']);
      const expected = sent.flatMap(([stream, bytes]) =>
        bytes.length === 0 ? [] : [{ kind: stream === "stdout" ? 1 : 2, payload: Buffer.from(bytes) }],
      );
      assert.deepEqual(frames, expected);
    }),
    { numRuns: 30 },
  );
});

test("a framed command in the background shows its process, and one that was cut off says why with a code", async () => {
  const background = new CommandEvents(systemClock, { framing: "frames" });
  background.finish({ exitCode: 0, durationMs: 1, hasTimedOut: false, pid: 7 });
  const cut = new CommandEvents(systemClock, { framing: "frames" });
  void cut.onOutput("stdout", Buffer.from("begun"));
  cut.fail(new Refusal("unavailable", "the node broke"));
  cut.fail(new Error("again"));
  const texts = [background, cut].map(async (events) =>
    framesIn(Buffer.concat((await events.toArray()) as Buffer[])).map(({ kind, payload }) => `${kind} ${payload}`),
  );
  assert.deepEqual(await Promise.all(texts), [
    ["1 pid=7\n", '3 {"exitCode":0}'],
    ["1 begun", '4 {"code":"unavailable","message":"the node broke"}'],
  ]);
});

test("a silent framed command sends an empty frame, and no comment", async () => {
  const events = new CommandEvents(
    { ...systemClock, sleep: () => endOfTurn(), monotonic: () => (time += 10_000) },
    { framing: "frames" },
  );
  let time = 0;
  void events.onOutput("stdout", Buffer.from("a"));
  const bytes: Buffer[] = [];
  for await (const piece of events) if (bytes.push(piece as Buffer) > 2) break;
  assert.deepEqual(
    framesIn(Buffer.concat(bytes)).map(({ kind, payload }) => [kind, payload.length]),
    [
      [1, 1],
      [0, 0],
      [0, 0],
    ],
  );
});

test("only a caller that names the type gets binary frames", () => {
  const type = "application/vnd.flotilla.exec-frames";
  for (const accept of [
    type,
    `text/event-stream;q=0.5, ${type.toUpperCase()} ; q=0.1`,
    [`a/b`, type],
    `${type};q=1.000`,
  ])
    assert.equal(acceptsFrames(accept), true, String(accept));
  for (const accept of [
    undefined,
    "",
    "*/*",
    "application/*",
    "text/event-stream",
    `${type};q=0`,
    `${type}; Q=0.000`,
    `${type}2`,
  ])
    assert.equal(acceptsFrames(accept), false, accept);
});

test("a reader that does not read makes the command wait, and one that goes away lets it go", async () => {
  const events = new CommandEvents(systemClock, { framing: "lines" });
  const chunk = Buffer.alloc(40_000, "a");
  assert.equal(events.onOutput("stdout", chunk), undefined);
  const waiting = events.onOutput("stdout", chunk);
  assert.ok(waiting instanceof Promise);
  assert.equal(events.isFull, true);
  events.read();
  await waiting;
  assert.equal(events.isFull, false);
  const again = events.onOutput("stdout", Buffer.alloc(200_000, "b"));
  assert.ok(again instanceof Promise);
  events.destroy();
  await again;
  assert.equal(events.onOutput("stdout", chunk), undefined);
});

test("a command that did not run is refused, one that was cut off says so last", async () => {
  const refused = new CommandEvents(systemClock, { framing: "lines" });
  refused.fail(new Error("not run"));
  await assert.rejects(refused.head, /not run/);
  const cut = new CommandEvents(systemClock, { framing: "lines" });
  void cut.onOutput("stdout", Buffer.from("begun"));
  cut.fail(new Error("secret of the server"));
  const events = parse(Buffer.concat((await cut.toArray()) as Buffer[]).toString());
  assert.deepEqual(events, [
    { event: "stdout", data: "begun" },
    { event: "error", data: "the server failed" },
  ]);
});

test("a command that has failed is refused with a status, however long its reason is looked for", async () => {
  const events = new CommandEvents({ ...systemClock, sleep: () => Promise.resolve() }, { framing: "lines" });
  events.onStarted();
  events.onFailing();
  await endOfTurn();
  events.fail(new Refusal("guest_unreachable", "it does not answer"));
  await assert.rejects(events.head, /does not answer/);
});

test("a stream whose command waits long begins, and a refusal is then its last event", async () => {
  const events = new CommandEvents(systemClock, { framing: "lines", headWaitMs: 1 });
  const reading = events.toArray();
  await events.head;
  events.fail(new Refusal("start_failed", "start of machine mach-1 failed: no disk"));
  const text = Buffer.concat((await reading) as Buffer[]).toString();
  assert.deepEqual(parse(text), [{ event: "error", data: "start of machine mach-1 failed: no disk" }]);
});

/** As the HTML standard says that a stream is taken apart: a line ends at `\n`, `\r` or `\r\n`. */
function standardText(text: string): string {
  let out = "";
  let data: string[] = [];
  for (const line of text.split(/\r\n|\n|\r/)) {
    if (line === "") {
      if (data.length > 0) out += data.join("\n");
      data = [];
    } else if (line.startsWith("data:")) data.push(line.slice("data:".length).replace(/^ /, ""));
  }
  return out;
}

test("a reader that follows the standard loses nothing of a line that is written over, wherever it is cut", async () => {
  const text = "  0%\r 50%\r100%\r\ndone\r\n";
  for (let cut = 0; cut <= text.length; cut += 1) {
    const events = new CommandEvents(systemClock, { framing: "standard" });
    const reading = events.toArray();
    for (const part of [text.slice(0, cut), text.slice(cut)]) await events.onOutput("stdout", Buffer.from(part));
    events.finish({ exitCode: 0, durationMs: 1, hasTimedOut: false, pid: null });
    const read = standardText(Buffer.concat((await reading) as Buffer[]).toString());
    assert.equal(read, '  0%\n 50%\n100%\ndone\n{"exitCode":0}');
  }
});

test("a carriage return remains in the data for existing clients", async () => {
  const events = await streamed([["stdout", Buffer.from("0%\r50%\r\n")]]);
  assert.equal(textOf(events, "stdout"), "0%\r50%\r\n");
});
