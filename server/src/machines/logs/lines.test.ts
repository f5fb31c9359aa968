/**
 * Lines of a log: their framing, and messages of a node put together again.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { LogMessage } from "@flotilla/contract/link/link";
import fc from "fast-check";
import { LogMessages } from "../../link/log-messages.ts";
import { logEvent } from "./lines.ts";

test("a line is one data line, as text or as a record", () => {
  const line = { at: 0, source: "workload", text: 'say "hi"' } as const;
  assert.equal(logEvent(line, "text"), 'data: say "hi"\n\n');
  assert.equal(logEvent({ ...line, source: "node" }, "text"), 'data: flotilla: say "hi"\n\n');
  assert.equal(
    logEvent(line, "json"),
    'data: {"timestamp":"1970-01-01T00:00:00.000Z","level":"info","message":"say \\"hi\\"","source":"workload"}\n\n',
  );
});

test("no part of a line that was written over is lost to a reader that ends lines at a carriage return", () => {
  const line = (text: string) => logEvent({ at: 0, source: "workload", text }, "text");
  assert.equal(line("0%\r50%\r100%\r"), "data: 0%\n\ndata: 50%\n\ndata: 100%\n\n");
  assert.equal(line("\r"), "data: \n\n");
  assert.match(logEvent({ at: 0, source: "workload", text: "0%\r50%" }, "json"), /"message":"0%\\r50%"/);
});

test("messages arrive whole, wherever the answer was cut", () => {
  const text = fc.string({ unit: "binary", maxLength: 20 }).map((value) => value.replaceAll("\n", ""));
  const message: fc.Arbitrary<LogMessage> = fc.oneof(
    fc.record({ at: fc.nat(), source: fc.constantFrom("workload", "node"), text }, { noNullPrototype: true }),
    fc.record({ next: fc.constant("3:77") }, { noNullPrototype: true }),
    fc.record(
      { next: fc.constant("3:77"), edge: fc.constantFrom("start", "trimmed", "end") },
      { noNullPrototype: true },
    ),
  );
  fc.assert(
    fc.property(fc.array(message, { maxLength: 8 }), fc.integer({ min: 1, max: 40 }), (messages, step) => {
      const bytes = Buffer.from(messages.map((one) => `${JSON.stringify(one)}\n`).join(""));
      const parser = new LogMessages();
      const read: LogMessage[] = [];
      for (let at = 0; at < bytes.length; at += step) read.push(...parser.push(bytes.subarray(at, at + step)));
      assert.deepEqual(read, messages);
    }),
  );
});

test("a text that is not a line of a log is refused", () => {
  const others = [
    "{}",
    "[]",
    "x",
    '{"next":"1"}',
    '{"at":1,"source":"guest","text":""}',
    '{"at":1e99,"source":"node","text":""}',
  ];
  for (const line of others) assert.throws(() => new LogMessages().push(Buffer.from(`${line}\n`)), line);
  assert.throws(() => new LogMessages().push(Buffer.alloc(2_000_000, 65)), /too long/);
});
