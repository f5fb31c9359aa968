/**
 * A command's output: results to standard output, everything else (progress, notes, errors) to standard
 * error.
 *
 * Always:
 * - With --json, standard output holds the API's JSON and nothing else.
 * - Colours and progress lines appear only on a terminal, colours never when NO_COLOR is set.
 * - A reader that closes the pipe early causes no error.
 */
import { once } from "node:events";
import { styleText } from "node:util";
import { type Clock, every } from "@flotilla/base/clock";
import { clean, columnWidths, jsonText, renderFacts, renderRow, renderTable } from "./table.ts";

export type Style = Parameters<typeof styleText>[0];

/** A part of a line. */
export interface Styled {
  readonly style: Style;
  readonly text: string;
}

export const styled = (style: Style, text: string): Styled => ({ style, text });

export interface Streams {
  readonly input: NodeJS.ReadStream & { readonly fd: number };
  readonly output: NodeJS.WriteStream;
  readonly errors: NodeJS.WriteStream;
}

const COLUMNS_DEFAULT = 100;
const SPINNER = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const SPINNER_PERIOD_MS = 100;

export class Output {
  readonly isJson: boolean;
  readonly #streams: Streams;
  readonly #clock: Clock;

  constructor(streams: Streams, clock: Clock, options: { isJson: boolean }) {
    this.#streams = streams;
    this.#clock = clock;
    this.isJson = options.isJson;
  }

  /** The API's answer unchanged: one line for scripts, indented on a terminal. */
  json(value: unknown): void {
    this.#streams.output.write(`${jsonText(value, this.#streams.output.isTTY ? 2 : 0)}\n`);
  }

  /** One of several values, on one line; resolves as `flow` does. */
  jsonLine(value: unknown): Promise<void> {
    return this.flow("output", Buffer.from(`${jsonText(value)}\n`));
  }

  /** One line of the result, for people, without control characters. */
  line(...parts: readonly (string | Styled)[]): void {
    if (this.isJson) return;
    const { output } = this.#streams;
    const texts = parts.map((part) =>
      typeof part === "string" ? clean(part) : styleText(part.style, clean(part.text), { stream: output }),
    );
    output.write(`${texts.join("")}\n`);
  }

  /** Several lines for another program, unchanged. On a terminal they are lines for people. */
  lines(text: string): void {
    if (this.#streams.output.isTTY) for (const line of text.split("\n")) this.line(line);
    else this.#streams.output.write(`${text}\n`);
  }

  table(heads: readonly string[], rows: readonly (readonly string[])[]): void {
    const [head = "", ...lines] = renderTable(heads, rows);
    this.line(styled("bold", head));
    for (const line of lines) this.line(line);
  }

  /**
   * Prints a long list page by page: as a table, or as one JSON array. Columns are as wide as in the pages so
   * far. Resolves when everything was written; a slow reader slows the pages.
   */
  async pages<T>(
    heads: readonly string[],
    pages: AsyncIterable<readonly T[]>,
    rowOf: (item: T) => readonly string[],
  ): Promise<void> {
    const write = (text: string): Promise<void> => this.flow("output", Buffer.from(text));
    const indent = this.#streams.output.isTTY ? 2 : 0;
    let widths = heads.map((head) => head.length) as readonly number[];
    let isFirst = true;
    for await (const page of pages) {
      if (this.isJson) {
        const items = page.map((item) => jsonText(item, indent)).join(",");
        await write(isFirst ? `[${items}` : items === "" ? "" : `,${items}`);
      } else {
        const rows = page.map(rowOf);
        widths = columnWidths(widths, rows);
        if (isFirst) this.line(styled("bold", renderRow(heads, widths)));
        for (const row of rows) await write(`${renderRow(row, widths)}\n`);
      }
      isFirst = false;
    }
    if (this.isJson) await write(isFirst ? "[]\n" : "]\n");
  }

  facts(facts: readonly (readonly [name: string, value: string | null])[]): void {
    for (const line of renderFacts(facts)) this.line(line);
  }

  /** Unchanged bytes. */
  bytes(to: "output" | "errors", bytes: Uint8Array): void {
    if (bytes.length > 0) this.#streams[to].write(bytes);
  }

  /** Unchanged bytes; resolves when there is room for more, so that a slow reader slows the writer. */
  async flow(to: "output" | "errors", bytes: Uint8Array): Promise<void> {
    if (!this.#streams[to].write(bytes)) await once(this.#streams[to], "drain");
  }

  /** A message for people that is not part of the result. */
  note(text: string): void {
    this.#streams.errors.write(`${clean(text)}\n`);
  }

  error(what: string, advice: string | null): void {
    const { errors } = this.#streams;
    errors.write(`${styleText("red", "error:", { stream: errors })} ${clean(what)}\n`);
    if (advice !== null) errors.write(`       ${clean(advice)}\n`);
  }

  /** Columns available for the result. */
  get columns(): number {
    return this.#streams.output.columns || COLUMNS_DEFAULT;
  }

  /** Whether standard error is a terminal. */
  get isWatched(): boolean {
    return this.#streams.errors.isTTY === true && !this.isJson;
  }

  /** Lines that replace the ones before on a terminal; elsewhere the first line, whenever it is another. */
  live(): Live {
    return new Live(this.#streams.errors, this.isWatched ? "terminal" : this.isJson ? "nothing" : "changes");
  }

  /** A progress line during long work; nothing without a terminal. */
  progress(text: string): Progress {
    return new Progress(this.#streams.errors, this.#clock, this.isWatched ? text : null);
  }
}

class Live {
  readonly #stream: NodeJS.WriteStream;
  readonly #to: "terminal" | "changes" | "nothing";
  /** How many lines there are to replace. */
  #shown = 0;
  #last = "";

  constructor(stream: NodeJS.WriteStream, to: "terminal" | "changes" | "nothing") {
    this.#stream = stream;
    this.#to = to;
  }

  show(lines: readonly string[]): void {
    const [first = ""] = lines;
    if (this.#to === "changes" && first !== this.#last) this.#stream.write(`${clean(first)}\n`);
    if (this.#to === "terminal") this.#replace(lines);
    this.#last = first;
  }

  #replace(lines: readonly string[]): void {
    const [columns, rows] = [this.#stream.columns || 80, this.#stream.rows || 24];
    // What is above the top of the terminal cannot be replaced, nor what it broke into two lines.
    const fitting = lines.length < rows ? lines : [...lines.slice(0, rows - 2), `… ${lines.length - rows + 2} more`];
    const drawn = fitting.map((line) => `${clean(line).slice(0, columns - 1)}\x1b[K\n`).join("");
    this.#stream.write(`${this.#shown === 0 ? "" : `\x1b[${this.#shown}A\r`}${drawn}\x1b[J`);
    this.#shown = fitting.length;
  }

  /** What was shown last stays. */
  [Symbol.dispose](): void {
    this.#shown = 0;
  }
}

export class Progress {
  readonly #stream: NodeJS.WriteStream;
  readonly #clock: Clock;
  readonly #startedAt: number;
  readonly #stopTicking: () => void;
  #text: string | null;
  #frame = 0;

  constructor(stream: NodeJS.WriteStream, clock: Clock, text: string | null) {
    this.#stream = stream;
    this.#clock = clock;
    this.#text = text;
    this.#startedAt = clock.monotonic();
    this.#stopTicking = text === null ? () => {} : every(clock, SPINNER_PERIOD_MS, () => this.#draw());
  }

  say(text: string): void {
    if (this.#text !== null) this.#text = text;
  }

  [Symbol.dispose](): void {
    this.#stopTicking();
    if (this.#frame > 0) this.#stream.write("\r\x1b[K");
    this.#text = null;
  }

  #draw(): void {
    if (this.#text === null) return;
    const seconds = Math.floor((this.#clock.monotonic() - this.#startedAt) / 1000);
    const line = `${SPINNER[this.#frame % SPINNER.length]} ${clean(this.#text)}${seconds >= 2 ? `, ${seconds} s` : ""}`;
    this.#frame += 1;
    // A line longer than the terminal would scroll it with every update.
    this.#stream.write(`\r${line.slice(0, (this.#stream.columns || 80) - 1)}\x1b[K`);
  }
}
