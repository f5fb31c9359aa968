/**
 * The logs of the instances of an app as one, in the order of their times, read in either direction.
 *
 * Always:
 * - Each line comes once, also where a node's clock was set back: what is taken is the next line of an
 *   instance, the earliest of all instances (backwards the latest).
 * - Of each log a few lines are held. More are read when they are taken, so the length of a log costs no
 *   memory.
 */
import { mapAtMost } from "@flotilla/base/concurrency";
import type { LogLine, LogMark } from "@flotilla/contract/link/link";
import type { NodeLogQuery } from "../link/open-log.ts";

const READ_AT_A_TIME = 8;

/** A part of the log of one machine: at most `tail` or `limit` lines, between its first and its last mark. */
export interface ReadPart {
  readonly lines: readonly LogLine[];
  readonly first: LogMark;
  readonly last: LogMark;
}

/** The log of one instance that is merged. */
export interface LogSource {
  readonly machineId: string;
  /** Its part: `after` or `since`, `before` or `until`, `search`. */
  readonly query: NodeLogQuery;
  /** null: there is no log. */
  readonly read: (query: NodeLogQuery) => Promise<ReadPart | null>;
  /** How many lines are read together. */
  readonly batch: number;
}

/** The next line of a log, and where the log is after it was taken. */
abstract class Reading {
  readonly machineId: string;
  protected readonly source: LogSource;
  protected lines: LogLine[] = [];
  protected isDone = false;
  /** After what was taken, in the direction of reading; null: the log was not read. */
  position: string | null = null;
  /** Whether the node knows its log. */
  hasLog = true;
  isCut = false;

  constructor(source: LogSource) {
    this.source = source;
    this.machineId = source.machineId;
  }

  /** The next line, which is not taken; undefined: there is none. */
  get head(): LogLine | undefined {
    return this.lines.at(-1);
  }

  /** Whether all lines were taken. */
  get isOver(): boolean {
    return this.isDone && this.lines.length === 0;
  }

  /** Reads until there is a next line, or none will be. */
  async fill(): Promise<void> {
    while (this.lines.length === 0 && !this.isDone) await this.readOn();
  }

  take(): void {
    const line = this.lines.pop();
    if (line !== undefined) this.position = this.placeAfter(line);
  }

  protected abstract readOn(): Promise<void>;
  protected abstract placeAfter(line: LogLine): string;
}

class ForwardReading extends Reading {
  #next: string | null = null;
  /** The edge where reading began. */
  beginEdge: LogMark["edge"] | null = null;

  protected override async readOn(): Promise<void> {
    const { query, read, batch } = this.source;
    const { after, since, ...rest } = query;
    const start = this.#next === null ? { after, since } : { after: this.#next };
    const part = await read({ ...rest, ...start, limit: batch, marks: 1 });
    if (part === null) {
      this.isDone = true;
      this.hasLog = this.position !== null;
    } else {
      const { lines, first, last } = part;
      if (this.#next === null) {
        this.isCut = first.isCut === true;
        this.beginEdge = first.edge ?? null;
      }
      this.#next = last.next;
      this.position ??= first.next;
      this.lines = lines.toReversed();
      this.isDone = lines.length < batch;
      if (lines.length === 0) this.position = last.next;
    }
  }

  protected override placeAfter(): string {
    return this.head?.from ?? this.#next ?? "0:0";
  }
}

class BackwardReading extends Reading {
  #before: string | null = null;
  /** Where it began: the end of the part. */
  begin: string | null = null;
  /** The edge where the part begins; null: it was not reached, or earlier lines are there. */
  edge: LogMark["edge"] | null = null;

  protected override async readOn(): Promise<void> {
    const { query, read, batch } = this.source;
    const { before, until, ...rest } = query;
    const end = this.#before === null ? { before, until } : { before: this.#before };
    const part = await read({ ...rest, ...end, tail: batch, marks: 1 });
    if (part === null) {
      this.isDone = true;
      this.hasLog = this.position !== null;
    } else {
      const { lines, first, last } = part;
      this.begin ??= last.next;
      this.position ??= last.next;
      this.#before = first.next;
      this.lines = [...lines];
      this.isDone = lines.length < batch;
      if (this.isDone) this.edge = first.edge ?? null;
    }
  }

  protected override placeAfter(line: LogLine): string {
    return line.from ?? "0:0";
  }
}

/** A line and whose it is. */
export interface MergedLine {
  readonly machineId: string;
  readonly line: LogLine;
}

class Merge<R extends Reading> {
  readonly readings: readonly R[];
  readonly #isBefore: (one: R, other: R) => boolean;

  constructor(readings: readonly R[], isBefore: (one: R, other: R) => boolean) {
    this.readings = readings;
    this.#isBefore = isBefore;
  }

  get isOver(): boolean {
    return this.readings.every(({ isOver }) => isOver);
  }

  /** Reads until the next line of each log is known. */
  async fill(): Promise<void> {
    const empty = this.readings.filter(({ head, isOver }) => head === undefined && !isOver);
    if (empty.length > 0) await mapAtMost(READ_AT_A_TIME, empty, (reading) => reading.fill());
  }

  /** Takes the next line; null: there is none. */
  async next(): Promise<MergedLine | null> {
    await this.fill();
    let best: R | null = null;
    for (const reading of this.readings)
      if (reading.head !== undefined && (best === null || this.#isBefore(reading, best))) best = reading;
    const line = best?.head;
    if (best === null || line === undefined) return null;
    best.take();
    return { machineId: best.machineId, line };
  }
}

const isEarlier = (one: Reading, other: Reading): boolean =>
  one.head !== undefined &&
  other.head !== undefined &&
  (one.head.at < other.head.at || (one.head.at === other.head.at && one.machineId < other.machineId));

export type ForwardMerge = Merge<ForwardReading>;
export type BackwardMerge = Merge<BackwardReading>;

/** From the beginning of the part. */
export const mergeForward = (sources: readonly LogSource[]): ForwardMerge =>
  new Merge(
    sources.map((source) => new ForwardReading(source)),
    isEarlier,
  );

/** From the end of the part. */
export const mergeBackward = (sources: readonly LogSource[]): BackwardMerge =>
  new Merge(
    sources.map((source) => new BackwardReading(source)),
    (one, other) => isEarlier(other, one),
  );

/** The edge of a place in all logs; undefined: a log has lines before it, or there is no log. */
export function edgeOfAll(edges: readonly (LogMark["edge"] | null)[]): LogMark["edge"] {
  if (edges.some((edge) => edge !== "start" && edge !== "trimmed")) return undefined;
  return edges.includes("trimmed") ? "trimmed" : "start";
}
