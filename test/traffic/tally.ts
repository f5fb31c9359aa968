/**
 * What clients count: every request once, in the change during which it ended.
 *
 * Always: a request that did not get its whole and right answer has failed, whatever its status.
 */

/**
 * How a request fails. `refused`: no ingress accepts a connection. `reset`: its connection ended without an
 * answer. `torn`: a part of the answer came. `status`: it is not the program's. `wrong`: the answer is not
 * that of the request. `slow`: it did not come in time.
 */
const FAILURES = ["refused", "reset", "torn", "status", "wrong", "slow"] as const;
export type Failure = (typeof FAILURES)[number];

const COUNTED = ["requests", "messages", "events", "elsewhere", "ended", "closed", "repeated"] as const;
/**
 * `requests`: of HTTP, with those that open a WebSocket or a stream. `messages`, `events`: returned by
 * WebSockets, received from streams. `elsewhere`: connections that one ingress refused, and another accepted.
 * `ended`: WebSockets and streams that their program ended, as their protocols say. `closed`: those that
 * ended with their ingress. `repeated`: messages that were not returned before that, and were sent again.
 */
type Counted = (typeof COUNTED)[number];

export type Row = Record<Counted | Failure, number> & {
  readonly during: string;
  seconds: number;
  /** The longest wait for a whole answer, without the time that the request asks for. */
  longestMs: number;
};

export interface Report {
  readonly rows: readonly Row[];
  /** The first failures, as text. */
  readonly failures: readonly string[];
  /** How many answers came through each ingress. */
  readonly answered: Readonly<Record<string, number>>;
}

const FAILURES_KEPT = 50;

export class Tally {
  readonly #rows: Row[] = [];
  readonly #failures: string[] = [];
  readonly #answered: Record<string, number> = {};
  readonly #now: () => number;
  #since: number;
  #row: Row;

  constructor(now: () => number) {
    this.#now = now;
    this.#since = now();
    this.#row = rowOf("start");
  }

  /** What ends from now on is of this change. */
  begin(during: string): void {
    this.#row.seconds = (this.#now() - this.#since) / 1000;
    this.#since = this.#now();
    this.#row = rowOf(during);
    this.#rows.push(this.#row);
  }

  count(what: Counted): void {
    this.#row[what] += 1;
  }

  /** A request ended; `waitedMs`: without the time it asked for. */
  answered(way: string, waitedMs: number): void {
    this.#row.requests += 1;
    this.#row.longestMs = Math.max(this.#row.longestMs, waitedMs);
    this.#answered[way] = (this.#answered[way] ?? 0) + 1;
  }

  failed(failure: Failure, what: string): void {
    this.#row.requests += 1;
    this.broke(failure, what);
  }

  /** What failed was counted as a request when it was opened. */
  broke(failure: Failure, what: string): void {
    this.#row[failure] += 1;
    const at = ((this.#now() - this.#since) / 1000).toFixed(1);
    if (this.#failures.length < FAILURES_KEPT)
      this.#failures.push(`${this.#row.during}, after ${at} s: ${failure}: ${what}`);
  }

  report(): Report {
    this.#row.seconds = (this.#now() - this.#since) / 1000;
    return { rows: this.#rows, failures: this.#failures, answered: this.#answered };
  }
}

const rowOf = (during: string): Row => ({
  ...(Object.fromEntries([...COUNTED, ...FAILURES].map((name) => [name, 0])) as Record<Counted | Failure, number>),
  ...{ during, seconds: 0, longestMs: 0 },
});

export const failedOf = (row: Row): number => FAILURES.reduce((sum, name) => sum + row[name], 0);

export const sumOf = (rows: readonly Row[], of: (row: Row) => number): number =>
  rows.reduce((sum, row) => sum + of(row), 0);

const COLUMNS: readonly (readonly [name: string, of: (row: Row) => number | string])[] = [
  ["seconds", ({ seconds }) => seconds.toFixed(1)],
  ["requests", ({ requests }) => requests],
  ["failed", failedOf],
  ["longest ms", ({ longestMs }) => Math.round(longestMs)],
  ["messages", ({ messages }) => messages],
  ["events", ({ events }) => events],
  ["connected elsewhere", ({ elsewhere }) => elsewhere],
  ["ended", ({ ended }) => ended],
  ["closed", ({ closed }) => closed],
  ["sent again", ({ repeated }) => repeated],
];

/** The table for people; the last line has the sums. */
export function tableOf(rows: readonly Row[]): string {
  const sums = rowOf("in all");
  for (const name of [...COUNTED, ...FAILURES]) sums[name] = sumOf(rows, (row) => row[name]);
  sums.seconds = sumOf(rows, ({ seconds }) => seconds);
  sums.longestMs = Math.max(...rows.map(({ longestMs }) => longestMs));
  const all = [...rows, sums];
  const width = Math.max(...all.map(({ during }) => during.length));
  const line = (first: string, cells: readonly string[]): string =>
    [first.padEnd(width), ...cells.map((cell, at) => cell.padStart(COLUMNS[at]?.[0].length ?? 0))].join("  ");
  const header = line(
    "change",
    COLUMNS.map(([name]) => name),
  );
  return [
    header,
    ...all.map((row) =>
      line(
        row.during,
        COLUMNS.map(([, of]) => String(of(row))),
      ),
    ),
  ].join("\n");
}
