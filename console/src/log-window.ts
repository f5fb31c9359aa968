/**
 * The part of a log that the page has in memory: lines between two cursors. Pure.
 *
 * Always:
 * - It consists of pages, each between two cursors that the server gave. Whole pages make room at one end
 *   when lines come at the other, so they can be read again without losing or repeating a line.
 * - A page has about PAGE_LINES; LINES_MAX and CHARACTERS_MAX are exceeded by one page at most.
 * - A line that ends with a carriage return is overwritten by the next one of the same writer.
 * - Numbers of lines grow from the first to the last and never change.
 */
import type { LogRecord } from "@flotilla/sdk";

const LINES_MAX = 20_000;
const CHARACTERS_MAX = 8 * 1024 * 1024;
const PAGE_LINES = 1_000;
/** Keeps in a page what would make it too large to make room. */
const PAGE_CHARACTERS = 256 * 1024;

export interface LogLine {
  readonly number: number;
  readonly at: string;
  readonly text: string;
  /** `gap`: lines are missing here. */
  readonly source: LogRecord["source"] | "gap";
  readonly instanceId: string | null;
  /** Where it is in the log; the server gives the same again. */
  readonly cursor: string;
}

interface Page {
  readonly start: string;
  count: number;
  characters: number;
}

export class LogWindow {
  readonly lines: LogLine[] = [];
  #pages: Page[] = [];
  #characters = 0;
  #end: string;
  /** Cursors of lines after the last cursor that the server gave. */
  #unmarked = new Set<string>();

  /** Empty, at a cursor. */
  constructor(at: string) {
    this.#end = at;
    this.#pages.push({ start: at, count: 0, characters: 0 });
  }

  get start(): string {
    return this.#pages[0]?.start ?? this.#end;
  }

  get end(): string {
    return this.#end;
  }

  get pages(): number {
    return this.#pages.length;
  }

  /** Adds a line at the end, unless it is there: a connection that is made again repeats what had no mark. */
  append(record: LogRecord, source: LogLine["source"] = record.source): void {
    const { cursor = "" } = record;
    const page = this.#pages.at(-1);
    if (page === undefined || (cursor !== "" && this.#unmarked.has(cursor))) return;
    if (cursor !== "") this.#unmarked.add(cursor);
    const last = this.lines.at(-1);
    const line = lineOf((last?.number ?? 0) + 1, record, source);
    if (page.count > 0 && last !== undefined && isOverwritten(last, line)) {
      this.lines[this.lines.length - 1] = over(last, line);
      return;
    }
    this.lines.push(line);
    page.count += 1;
    page.characters += record.message.length;
    this.#characters += record.message.length;
  }

  /** What was appended before is before this cursor. */
  mark(cursor: string): void {
    this.#end = cursor;
    this.#unmarked.clear();
    const page = this.#pages.at(-1);
    if (page !== undefined && (page.count >= PAGE_LINES || page.characters >= PAGE_CHARACTERS))
      this.#pages.push({ start: cursor, count: 0, characters: 0 });
  }

  /** Adds a page before the first line. */
  prepend(start: string, records: readonly LogRecord[]): void {
    const first = (this.lines[0]?.number ?? 1) - records.length;
    const lines: LogLine[] = [];
    for (const [at, record] of records.entries()) {
      const line = lineOf(first + at, record, record.source);
      const last = lines.at(-1);
      if (last !== undefined && isOverwritten(last, line)) lines[lines.length - 1] = over(last, line);
      else lines.push(line);
    }
    // Numbers of overwritten lines are left out before the first line, so that they grow by one.
    const skipped = records.length - lines.length;
    this.lines.unshift(...lines.map((line, at) => ({ ...line, number: first + skipped + at })));
    const characters = records.reduce((sum, { message }) => sum + message.length, 0);
    this.#pages.unshift({ start, count: lines.length, characters });
    this.#characters += characters;
  }

  /** Makes room at the beginning. Whether lines were removed. */
  trimStart(): boolean {
    const before = this.lines.length;
    let count = 0;
    while (this.#pages.length > 1 && this.#isFull(count)) {
      const page = this.#pages.shift();
      count += page?.count ?? 0;
      this.#characters -= page?.characters ?? 0;
    }
    if (count > 0) this.lines.splice(0, count);
    return this.lines.length < before;
  }

  /** Makes room at the end. Whether lines were removed. */
  trimEnd(): boolean {
    const before = this.lines.length;
    while (this.#pages.length > 1 && this.#isFull(0)) {
      const page = this.#pages.pop();
      if (page === undefined) break;
      this.lines.splice(this.lines.length - page.count, page.count);
      this.#characters -= page.characters;
      this.#end = page.start;
      this.#unmarked.clear();
    }
    return this.lines.length < before;
  }

  #isFull(gone: number): boolean {
    return this.lines.length - gone > LINES_MAX || this.#characters > CHARACTERS_MAX;
  }
}

const isOverwritten = (line: LogLine, next: LogLine): boolean =>
  line.source === "workload" &&
  next.source === "workload" &&
  line.instanceId === next.instanceId &&
  line.text.endsWith("\r");

/** Nothing overwrites nothing. */
const over = (line: LogLine, next: LogLine): LogLine => ({
  ...next,
  number: line.number,
  text: next.text === "" ? line.text.slice(0, -1) : next.text,
});

function lineOf(number: number, record: LogRecord, source: LogLine["source"]): LogLine {
  const { timestamp, message, instanceId, cursor } = record;
  return { number, at: timestamp, text: message, source, instanceId: instanceId ?? null, cursor: cursor ?? "" };
}
