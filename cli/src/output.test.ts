/**
 * What a command's output does with text of others: nothing of it may move the cursor or change other text on
 * the terminal.
 */
import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { Output, styled, type Streams } from "./output.ts";

const FOREIGN = "a\x1b[2Jb\u009b31mc\x7f\u202ed";

function outputTo({ isJson = false, isTTY = true }: { isJson?: boolean; isTTY?: boolean }) {
  const stream = Object.assign(new PassThrough(), { isTTY });
  const streams = { output: stream, errors: stream, input: stream } as unknown as Streams;
  return { output: new Output(streams, systemClock, { isJson }), written: () => String(stream.read()) };
}

test("lines for people have no control characters but those of their styles", () => {
  const { output, written } = outputTo({});
  output.line(`${FOREIGN}: `, styled("red", FOREIGN));
  assert.equal(written().replace("\x1b[31m", "<").replace("\x1b[39m", ">"), "ab 31mc d: <ab 31mc d>\n");
});

test("lines for another program are unchanged, except on a terminal", () => {
  const piped = outputTo({ isTTY: false });
  piped.output.lines(`x,${FOREIGN}\ny`);
  assert.equal(piped.written(), `x,${FOREIGN}\ny\n`);
  const watched = outputTo({});
  watched.output.lines(`x,${FOREIGN}\ny`);
  assert.equal(watched.written(), "x,ab 31mc d\ny\n");
});

test("JSON has the same value, and no character that a terminal obeys", async () => {
  const { output, written } = outputTo({ isJson: true });
  const value = { [FOREIGN]: [FOREIGN, "ümläut ✓"] };
  output.json(value);
  await output.jsonLine(value);
  await output.pages(["X"], pagesOf([value]), () => []);
  const text = written();
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it finds them
  assert.equal(/[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]/.exec(text), null);
  assert.match(text, /"ümläut ✓"/);
  const [whole, line, list] = text.split(/\n(?=[{[])/);
  assert.deepEqual(
    [whole, line, list].map((part) => JSON.parse(part ?? "")),
    [value, value, [value]],
  );
});

async function* pagesOf<T>(items: readonly T[]): AsyncGenerator<readonly T[]> {
  yield items;
}
