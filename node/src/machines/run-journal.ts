/**
 * The journal of runs: when each boot of a machine began to run, when it ended and why, until the server has
 * acknowledged it. Bills are computed from it.
 *
 * Owns `<node directory>/runs.journal`: a first line with the version, then one JSON line for each change of
 * a run. A later line of the same boot replaces the earlier one.
 *
 * Always:
 * - A run is opened once and closed once. Its end is never before its start, and it never has sent less.
 * - A run is kept until it has ended and the server has acknowledged that, also when its machine is removed.
 * - The end of a run is on the disk before the machine's own journal forgets the boot (actions/end.ts).
 * - Sequences grow, also when the file is lost: a sequence is at least its time in epoch milliseconds.
 * - At most RUNS_MAX runs are kept. Beyond that the oldest ended run is dropped, with an error in the log.
 *
 * A crash leaves:
 * - before a start is on the disk: a boot in the machine's journal, from which the next agent opens the run.
 * - before an end is on the disk: an open run. The next agent ends it with its boot, or when no machine has
 *   the boot.
 * - in the middle of an append: an incomplete last line. It is skipped when the file is read.
 * - in the middle of a rewrite: the old file, and a temporary file that the next rewrite replaces.
 * - after an end was acknowledged, before the file is rewritten: a run that is reported again, and ignored.
 *
 * A failed write (a full disk) is logged and does not hold up the machine. The runs stay in memory, are
 * reported, and are written with the next change or acknowledgement.
 */
import { open, readFile, rename } from "node:fs/promises";
import { dirname } from "node:path";
import { type Clock, endOfTurn } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { Run, RunReport } from "@flotilla/contract/link/link";
import { RUN_END_CAUSES, type RunEndCause } from "@flotilla/contract/runs";

const VERSION = 1;
const RUNS_MAX = 100_000;
/** The file is rewritten when it has this many lines more than twice the runs that are kept. */
const SPARE_LINES = 1_000;

export interface RunJournalOptions {
  readonly path: string;
  readonly clock: Clock;
  readonly log: Log;
  /** Called when something is to be reported. */
  readonly onChange: () => void;
  /** Default RUNS_MAX. */
  readonly runsMax?: number;
}

export interface RunStart {
  readonly bootId: string;
  readonly machineId: string;
  /** Epoch milliseconds. */
  readonly startedAt: number;
}

export interface RunEnd {
  /** Epoch milliseconds. */
  readonly endedAt: number;
  readonly cause: RunEndCause;
  /** Absent: as counted before. */
  readonly egressBytes?: number;
}

interface FileContent {
  readonly sequence: number;
  readonly runs: ReadonlyMap<string, Run>;
}

export class RunJournal {
  readonly #options: RunJournalOptions;
  /** By boot id, in the order of their sequence. */
  readonly #runs: Map<string, Run>;
  #sequence: number;
  #acknowledged = 0;
  /** Otherwise it may end in half a line, and the next write replaces it. */
  #isFileSound = false;
  #lineCount = 0;
  /** Lines of the next write. After one that fails the file is written as a whole, which needs none. */
  #lines: string[] = [];
  /** Something is recorded that was not written, or not since a write failed. */
  #isBehind = false;
  #queued: Promise<void> | null = null;
  #lastWrite: Promise<void> = Promise.resolve();

  private constructor(options: RunJournalOptions, { sequence, runs }: FileContent) {
    this.#options = options;
    this.#sequence = sequence;
    this.#runs = new Map([...runs].toSorted(([, one], [, other]) => one.sequence - other.sequence));
  }

  /** Throws an Error for the operator when the file cannot be read or a later version wrote it. */
  static async open(options: RunJournalOptions): Promise<RunJournal> {
    return new RunJournal(options, await readRuns(options));
  }

  isOpen(bootId: string): boolean {
    return this.#runs.get(bootId)?.endedAt === null;
  }

  /**
   * Records that a boot runs. Returns the start of its run: of a run that is open already, the one recorded
   * first.
   */
  open(start: RunStart): number {
    const known = this.#runs.get(start.bootId);
    if (known !== undefined) return known.startedAt;
    this.#record({ ...start, endedAt: null, cause: null, egressBytes: 0 });
    return start.startedAt;
  }

  /**
   * Records that a boot's run has ended; does nothing when none is open. Resolves when that is on the disk,
   * or could not be written. Never rejects.
   */
  close(bootId: string, { endedAt, cause, egressBytes = 0 }: RunEnd): Promise<void> {
    const known = this.#runs.get(bootId);
    if (known === undefined || known.endedAt !== null) return this.saved();
    this.#record({
      ...known,
      endedAt: Math.floor(Math.max(known.startedAt, endedAt)),
      cause,
      egressBytes: Math.max(known.egressBytes, egressBytes),
    });
    return this.saved();
  }

  /** What the run of a boot has sent, as it was recorded last. */
  sentBytes(bootId: string): number {
    return this.#runs.get(bootId)?.egressBytes ?? 0;
  }

  /** Records what an open run has sent so far. */
  count(bootId: string, egressBytes: number): void {
    const known = this.#runs.get(bootId);
    if (known === undefined || known.endedAt !== null || egressBytes <= known.egressBytes) return;
    this.#record({ ...known, egressBytes });
  }

  /** Ends the open runs of all other boots: their machines are not on this node any more. */
  closeAllBut(bootIds: ReadonlySet<string>, end: RunEnd): void {
    const gone = [...this.#runs.values()].filter((run) => run.endedAt === null && !bootIds.has(run.bootId));
    for (const { bootId, machineId } of gone) {
      this.#options.log.warn(
        { machine: machineId, boot: bootId },
        "ended the run of a machine that is not on this node any more",
      );
      void this.close(bootId, end);
    }
  }

  /** Whether the server has acknowledged everything. */
  get isEmpty(): boolean {
    return this.#runs.size === 0 || this.#sequence <= this.#acknowledged;
  }

  /** The oldest runs that are not acknowledged, at most `max`. */
  changes(max: number): RunReport {
    const runs: Run[] = [];
    for (const run of this.#runs.values()) {
      if (runs.length === max) break;
      if (run.sequence > this.#acknowledged) runs.push(run);
    }
    return { sequence: this.#sequence, isComplete: false, runs };
  }

  /**
   * Every run that is open or not acknowledged; the oldest that are not acknowledged when there are more than
   * `max`.
   */
  all(max: number): RunReport {
    if (this.#runs.size > max) return this.changes(max);
    return { sequence: this.#sequence, isComplete: true, runs: [...this.#runs.values()] };
  }

  /** The server has the runs up to this sequence. */
  acknowledge(sequence: number): void {
    this.#acknowledged = Math.max(this.#acknowledged, sequence);
    for (const [bootId, run] of this.#runs) {
      if (run.sequence > sequence) break;
      if (run.endedAt !== null) this.#runs.delete(bootId);
    }
    if (this.#isBehind) void this.saved();
  }

  /** Resolves when everything recorded so far is on the disk, or could not be written. Never rejects. */
  saved(): Promise<void> {
    if (!this.#isBehind) return this.#lastWrite;
    this.#queued ??= this.#writeAfter(this.#lastWrite);
    return this.#queued;
  }

  #record(run: Omit<Run, "sequence">): void {
    const { clock, onChange } = this.#options;
    this.#sequence = Math.max(this.#sequence + 1, clock.now());
    const recorded = { ...run, sequence: this.#sequence };
    this.#runs.delete(run.bootId);
    this.#runs.set(run.bootId, recorded);
    this.#dropOldest();
    this.#lines.push(lineOf(recorded));
    this.#isBehind = true;
    void this.saved();
    onChange();
  }

  #dropOldest(): void {
    const { runsMax = RUNS_MAX, log } = this.#options;
    if (this.#runs.size <= runsMax) return;
    for (const run of this.#runs.values()) {
      if (run.endedAt === null) continue;
      this.#runs.delete(run.bootId);
      log.error({ run, runsMax }, "a run was dropped: too many are not acknowledged; check that the server answers");
      return;
    }
  }

  #writeAfter(previous: Promise<void>): Promise<void> {
    const write = previous
      // Everything recorded in this turn of the event loop goes into the same write.
      .then(endOfTurn)
      .then(() => {
        this.#queued = null;
        this.#lastWrite = write;
        return this.#write();
      });
    return write;
  }

  async #write(): Promise<void> {
    const lines = this.#lines;
    this.#lines = [];
    this.#isBehind = false;
    try {
      const isLong = this.#lineCount + lines.length > 2 * this.#runs.size + SPARE_LINES;
      if (this.#isFileSound && !isLong) await this.#append(lines);
      else await this.#rewrite();
      this.#isFileSound = true;
    } catch (error) {
      const reason = messageOf(error);
      this.#options.log.error({ reason }, "the journal of runs could not be written; it is tried again");
      this.#isFileSound = false;
      this.#isBehind = true;
    }
  }

  async #append(lines: readonly string[]): Promise<void> {
    await using file = await open(this.#options.path, "a", 0o600);
    await file.appendFile(lines.join(""));
    await file.datasync();
    this.#lineCount += lines.length;
  }

  async #rewrite(): Promise<void> {
    const { path } = this.#options;
    const head = `${JSON.stringify({ version: VERSION, sequence: this.#sequence })}\n`;
    const runs = [...this.#runs.values()];
    {
      await using file = await open(`${path}.new`, "w", 0o600);
      await file.writeFile(head + runs.map(lineOf).join(""));
      await file.datasync();
    }
    await rename(`${path}.new`, path);
    await using directory = await open(dirname(path), "r");
    await directory.sync();
    this.#lineCount = runs.length;
  }
}

const lineOf = (run: Run): string => `${JSON.stringify(run)}\n`;

async function readRuns({ path, log }: RunJournalOptions): Promise<FileContent> {
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw new Error(
      `the journal of runs ${path} cannot be read: ${messageOf(error)}; repair it, or move it away and lose the runs that the server does not have yet`,
    );
  });
  if (text === null) return { sequence: 0, runs: new Map() };
  const runs = new Map<string, Run>();
  let sequence = 0;
  let skipped = 0;
  for (const line of text.split("\n").filter((item) => item !== "")) {
    const value = parseLine(line);
    if (isRun(value)) runs.set(value.bootId, value);
    else if (typeof value?.["version"] === "number") checkVersion(path, value["version"]);
    else skipped += 1;
    const { sequence: own } = value ?? {};
    if (Number.isSafeInteger(own)) sequence = Math.max(sequence, own as number);
  }
  if (skipped > 0)
    log.warn({ path, skipped }, "lines of the journal of runs cannot be read; a crash leaves one at its end");
  return { sequence, runs };
}

function checkVersion(path: string, version: number): void {
  if (version <= VERSION) return;
  throw new Error(
    `the journal of runs ${path} has version ${version}, and this version of Flotilla reads up to ${VERSION}: start the later version again`,
  );
}

/** null: it is not an object. */
function parseLine(line: string): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

function isRun(value: unknown): value is Run {
  const run = value as Partial<Run> | null;
  if (!Number.isSafeInteger(run?.sequence) || typeof run?.bootId !== "string" || typeof run.machineId !== "string")
    return false;
  if (!Number.isFinite(run.startedAt) || !Number.isSafeInteger(run.egressBytes)) return false;
  return run.endedAt === null
    ? run.cause === null
    : Number.isFinite(run.endedAt) && RUN_END_CAUSES.includes(run.cause as RunEndCause);
}
