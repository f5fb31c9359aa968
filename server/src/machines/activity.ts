/**
 * Activity in machines, collected in memory and written in batches: last activity, counts of commands, and
 * their events. So the path of a command has no database write.
 *
 * Always:
 * - Activity is written at most FLUSH_MS after it happened.
 * - A machine's commands are counted before its delete and its stop are answered, but for those of other
 *   servers.
 * - A machine gets one event per batch for at most EXECS_PER_EVENT_MAX commands, so that a loop does not
 *   flood its timeline. The event has each of them.
 * - A long command counts as activity while it runs.
 *
 * A crash loses up to FLUSH_MS of counts; commands are not billed.
 */
import type { NewEvent } from "@flotilla/contract/event-types";
import type { Context } from "../context.ts";
import { type ActivityBatch, type EndedExec, writeActivity } from "./activity-store.ts";

const FLUSH_MS = 250;
/** How often a machine with a running command is recorded as active. */
const TOUCH_MS = 5_000;
/** After this time every server knows of an activity: two touches, and a slow write. */
export const ACTIVITY_DELAY_MAX_MS = 15_000;

/** Commands in one event. */
const EXECS_PER_EVENT_MAX = 100;

interface Tally {
  at: number;
  readonly execs: EndedExec[];
}

interface Line {
  readonly machineId: string;
  readonly event: NewEvent;
  readonly at: number;
}

export class Activity {
  readonly #context: Context;
  readonly #onWritten: (machineId: string, at: number) => void;
  readonly #stopping = new AbortController();
  readonly #running = new Map<string, number>();
  #tallies = new Map<string, Tally>();
  #lines: Line[] = [];
  #loop: Promise<void> | null = null;
  #wake = new AbortController();
  #touchedAt = 0;
  /** Resolves when the batches that were begun are written or dropped; null: all are. */
  #writing: Promise<void> | null = null;

  /** `onWritten` is called for each machine's last activity after it was written. */
  constructor(context: Context, onWritten: (machineId: string, at: number) => void) {
    this.#context = context;
    this.#onWritten = onWritten;
  }

  execBegan(machineId: string): void {
    this.#running.set(machineId, (this.#running.get(machineId) ?? 0) + 1);
    this.#tally(machineId);
  }

  /** `exitCode` null: it never ran, or its exit code is unknown. */
  execEnded(machineId: string, exitCode: number | null, durationMs: number): void {
    const left = (this.#running.get(machineId) ?? 1) - 1;
    if (left > 0) this.#running.set(machineId, left);
    else this.#running.delete(machineId);
    const tally = this.#tally(machineId);
    if (exitCode === null) return;
    tally.execs.push({ at: tally.at, exitCode, durationMs: Math.round(durationMs) });
  }

  /** Records an open connection until the function returned is called. Call it once. */
  opened(machineId: string): () => void {
    this.execBegan(machineId);
    return () => this.execEnded(machineId, null, 0);
  }

  /** How many commands and connections through this server are open in the machine. */
  openIn(machineId: string): number {
    return this.#running.get(machineId) ?? 0;
  }

  /** Records an activity without a duration. */
  touch(machineId: string): void {
    this.#tally(machineId);
  }

  /** Adds an event to the timeline with the next batch. */
  note(machineId: string, event: NewEvent): void {
    this.#lines.push({ machineId, event, at: this.#context.clock.now() });
    this.#wakeLoop();
  }

  /**
   * Resolves when the machine's activity is written, or was dropped because the database refused it; null:
   * nothing is unwritten.
   */
  written(machineId: string): Promise<void> | null {
    return this.#tallies.has(machineId) ? this.#flush() : this.#writing;
  }

  start(): void {
    this.#loop ??= this.#run();
  }

  /** Writes what is left. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#wake.abort();
    await this.#loop;
  }

  #tally(machineId: string): Tally {
    let tally = this.#tallies.get(machineId);
    if (tally === undefined) {
      tally = { at: 0, execs: [] };
      this.#tallies.set(machineId, tally);
      this.#wakeLoop();
    }
    tally.at = this.#context.clock.now();
    return tally;
  }

  #wakeLoop(): void {
    this.#wake.abort();
  }

  async #run(): Promise<void> {
    const { clock } = this.#context;
    const stopping = this.#stopping.signal;
    while (!stopping.aborted) {
      this.#wake = new AbortController();
      if (this.#tallies.size === 0 && this.#lines.length === 0) await clock.sleep(TOUCH_MS, this.#wake.signal);
      // Activity within this time goes into the same batch.
      await clock.sleep(FLUSH_MS, stopping);
      this.#touchRunning();
      await this.#flush();
    }
    await this.#flush();
  }

  #touchRunning(): void {
    const now = this.#context.clock.monotonic();
    if (now - this.#touchedAt < TOUCH_MS) return;
    this.#touchedAt = now;
    for (const machineId of this.#running.keys()) this.#tally(machineId);
  }

  #flush(): Promise<void> {
    const writing = this.#writing === null ? this.#write() : this.#writing.then(() => this.#write());
    this.#writing = writing;
    void writing.then(() => {
      if (this.#writing === writing) this.#writing = null;
    });
    return writing;
  }

  /** Never rejects. */
  async #write(): Promise<void> {
    const tallies = this.#tallies;
    const lines = this.#lines;
    if (tallies.size === 0 && lines.length === 0) return;
    this.#tallies = new Map();
    this.#lines = [];
    const batch: ActivityBatch = {
      activity: [...tallies].map(([machineId, tally]) => ({ machineId, ...tally })),
      lines: [...lines, ...[...tallies].flatMap(([machineId, { execs }]) => linesOf(machineId, execs))],
    };
    try {
      await writeActivity(this.#context, batch);
      for (const { machineId, at } of batch.activity) this.#onWritten(machineId, at);
    } catch (error) {
      // Dropped: during a long outage of the database it would fill the memory.
      this.#context.log.warn({ error, machines: tallies.size }, "activity of machines could not be written");
    }
  }
}

/** The events for commands that ended since the last batch, without the commands: they may hold secrets. */
function linesOf(machineId: string, execs: readonly EndedExec[]): readonly Line[] {
  const lines: Line[] = [];
  for (let start = 0; start < execs.length; start += EXECS_PER_EVENT_MAX) {
    const some = execs.slice(start, start + EXECS_PER_EVENT_MAX);
    const last = some.at(-1);
    if (last !== undefined) lines.push({ machineId, event: eventOf(last, some), at: last.at });
  }
  return lines;
}

function eventOf({ exitCode, durationMs }: EndedExec, execs: readonly EndedExec[]): NewEvent {
  if (execs.length === 1) return { type: "machine.execEnded", data: { exitCode, durationMs } };
  const failed = execs.filter((exec) => exec.exitCode !== 0).length;
  const each = execs.map(({ at, ...exec }) => ({ ...exec, endedAt: new Date(at).toISOString() }));
  return { type: "machine.execsEnded", data: { count: execs.length, failed, execs: each } };
}
