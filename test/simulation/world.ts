/**
 * The simulated world: one virtual clock, one queue of events and one source of randomness for all programs
 * of a cluster.
 *
 * A *program* is a server or a node agent: shipped code whose time, files, sockets and database belong to the
 * world. Code of a program runs in its async context, so the world knows whose call it gets. A program that
 * was killed is never resumed: what it waits for does not come.
 *
 * Always:
 * - The next event begins when everything that the one before caused has come to rest, so the order of events
 *   follows from the seed alone.
 * - Virtual time passes only between events.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { createHash } from "node:crypto";
import { type Clock, endOfTurn } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { Random } from "./random.ts";

/** Virtual time begins here, in epoch milliseconds: after every price of the template database. */
const EPOCH_MS = Date.UTC(2040, 0, 10);
/** An event has come to rest when the event loop has turned so often without anything new. */
const QUIET_TURNS = 2;
const LINES_KEPT = 20_000;
/** A program that was stopped for so long notices it. */
const AWAY_MS = 10_000;

interface Event {
  at: number;
  order: number;
  readonly owner: Program | null;
  readonly run: () => unknown;
  isCanceled: boolean;
}

/** What the invariants do not allow. Ends the seed. */
export class Violation extends Error {}

export class World {
  readonly seed: number;
  readonly random: Random;
  /** Randomness of ids and secrets, so that one more id does not change what happens. */
  readonly ids: Random;
  readonly programs = new Set<Program>();
  /** Also those that were killed. */
  readonly #all: Program[] = [];
  /** Milliseconds since the beginning. */
  now = 0;
  /** Grows with everything that code asks of the world. */
  activity = 0;
  violation: Violation | null = null;
  eventCount = 0;
  readonly #queue: Event[] = [];
  #order = 0;
  readonly #hash = createHash("sha256");
  readonly lines: string[] = [];
  readonly #current = new AsyncLocalStorage<{ readonly program: Program | null }>();
  /** Removes what sleepers added to a signal. */
  readonly #sleeping = new Set<() => void>();

  constructor(seed: number) {
    this.seed = seed;
    this.random = new Random(seed);
    this.ids = new Random(seed ^ 0x5eed);
  }

  /** The program whose code runs. Throws outside of one. */
  get program(): Program {
    const program = this.maybeProgram;
    if (program === undefined) throw new Error("no program of the simulation runs");
    return program;
  }

  get maybeProgram(): Program | undefined {
    return this.#current.getStore()?.program ?? undefined;
  }

  /** Runs code as that of a program. */
  as<T>(program: Program, work: () => T): T {
    return this.#current.run(program.asContext, work);
  }

  /** Plans an event. `owner`: it does not happen when this program is dead; null: it does in any case. */
  after(ms: number, owner: Program | null, run: () => unknown): { cancel(): void } {
    this.activity += 1;
    this.#order += 1;
    const event = { at: this.now + Math.max(0, ms), order: this.#order, owner, run, isCanceled: false };
    push(this.#queue, event);
    return {
      cancel: () => {
        event.isCanceled = true;
      },
    };
  }

  /** What was postponed happens now, in its order. */
  resume(events: readonly Event[]): void {
    for (const event of events) {
      this.#order += 1;
      push(this.#queue, Object.assign(event, { at: this.now, order: this.#order }));
    }
  }

  /** A line of the history. */
  note(what: string): void {
    const line = `${this.now.toFixed(3)} ${what}`;
    this.#hash.update(line);
    this.lines.push(line);
    if (this.lines.length > LINES_KEPT) this.lines.splice(0, LINES_KEPT / 2);
  }

  /** Fingerprint of everything that has happened. */
  fingerprint(): string {
    return this.#hash.copy().digest("hex").slice(0, 16);
  }

  violate(text: string): void {
    this.note(`VIOLATION ${text}`);
    this.violation ??= new Violation(`seed ${this.seed}, at ${(this.now / 1000).toFixed(3)} s: ${text}`);
  }

  /**
   * Lets events happen until the condition holds, for at most `ms` of virtual time. Returns whether it holds.
   */
  async until(ms: number, condition: () => boolean = () => false): Promise<boolean> {
    const end = this.now + ms;
    await this.settle();
    while (!condition()) {
      if (this.violation !== null) throw this.violation;
      const next = peek(this.#queue);
      if (next === undefined || next.at > end) {
        this.now = end;
        return condition();
      }
      pop(this.#queue);
      if (next.isCanceled || next.owner?.isAlive === false) continue;
      this.now = next.at;
      if (next.owner?.postpones(next) === true) continue;
      this.eventCount += 1;
      const { owner } = next;
      await (owner === null ? next.run() : this.as(owner, next.run));
      await this.settle();
    }
    return true;
  }

  /** Resolves when no code can continue without another event. */
  async settle(): Promise<void> {
    for (let quiet = 0; quiet < QUIET_TURNS; ) {
      const before = this.activity;
      await endOfTurn();
      quiet = before === this.activity ? quiet + 1 : 0;
    }
  }

  clockOf(program: Program): Clock {
    const timer = (ms: number, callback: () => void) => this.after(ms / program.clockRate, program, callback);
    return {
      now: () => Math.floor(EPOCH_MS + this.now + program.clockAheadMs),
      monotonic: () => this.now * program.clockRate,
      boottime: () => this.now * program.clockRate + program.bootedMsBefore,
      timer,
      sleep: (ms, signal) =>
        new Promise((resolve) => {
          if (signal?.aborted) return resolve();
          const wake = (): void => {
            signal?.removeEventListener("abort", done);
            this.#sleeping.delete(wake);
          };
          const done = (): void => {
            waiting.cancel();
            wake();
            this.activity += 1;
            resolve();
          };
          const waiting = timer(ms, done);
          if (signal === undefined) return;
          signal.addEventListener("abort", done, { once: true });
          this.#sleeping.add(wake);
        }),
    };
  }

  /** Programs register here. */
  add(program: Program): void {
    this.programs.add(program);
    this.#all.push(program);
  }

  /**
   * No event happens any more. Releases what would keep this world in memory: Node keeps a signal that
   * follows others as long as something listens to it, and a real timer, such as one of an idle connection,
   * keeps the async context that made it.
   */
  close(): void {
    for (const wake of this.#sleeping) wake();
    for (const program of this.#all) program.asContext.program = null;
  }

  toEpoch(at: number): number {
    return EPOCH_MS + at;
  }
}

/** What a program is given of its host's clock. */
export interface HostClock {
  /** How far it is ahead, in milliseconds. */
  readonly aheadMs: number;
  /** Rate of what is not the time of day: how much of a second passes in one. */
  readonly rate: number;
  /** How long its host had run when the world began, in milliseconds; absent: 0. */
  readonly bootedMsBefore?: number;
}

/** One life of a server or of a node agent. */
export class Program {
  readonly world: World;
  readonly kind: "server" | "node";
  readonly name: string;
  isAlive = true;
  /** Context of its code. null: its world is over. */
  readonly asContext: { program: Program | null } = { program: this };
  /** How far its clock is ahead, in milliseconds. */
  clockAheadMs: number;
  readonly clockRate: number;
  readonly bootedMsBefore: number;
  /** While it is stopped: what would have happened to it. null: it runs. */
  #postponed: Event[] | null = null;
  /** Operations on its files end no earlier, in milliseconds of the world. */
  filesAnswerAt = 0;
  /** Since when a server could have received every heartbeat. */
  listensSince: number;
  #stoppedAt = 0;
  /** Ends in the middle of the operation with this number, counted down; null: it does not. */
  diesAfter: { files?: number; statements?: number } = {};
  readonly #onKill: (() => void)[] = [];

  constructor(world: World, kind: Program["kind"], name: string, clock: HostClock = { aheadMs: 0, rate: 1 }) {
    this.world = world;
    this.kind = kind;
    this.name = name;
    this.clockAheadMs = clock.aheadMs;
    this.clockRate = clock.rate;
    this.bootedMsBefore = clock.bootedMsBefore ?? 0;
    this.listensSince = world.now;
    world.add(this);
  }

  onKill(work: () => void): void {
    this.#onKill.push(work);
  }

  kill(): void {
    if (!this.isAlive) return;
    this.isAlive = false;
    this.world.programs.delete(this);
    this.world.note(`${this.name} is killed`);
    for (const work of this.#onKill) work();
  }

  get isStopped(): boolean {
    return this.#postponed !== null;
  }

  /** As SIGSTOP does: its code does not run, its connections and timers stay. */
  stop(): void {
    if (!this.isAlive || this.isStopped) return;
    this.world.note(`${this.name} is stopped`);
    this.#postponed = [];
    this.#stoppedAt = this.world.now;
  }

  /** As SIGCONT does: everything that it has missed happens, in order. */
  continue(): void {
    const postponed = this.#postponed;
    if (postponed === null) return;
    this.#postponed = null;
    if (!this.isAlive) return;
    if (this.world.now - this.#stoppedAt >= AWAY_MS) this.listensSince = this.world.now;
    this.world.note(`${this.name} continues`);
    this.world.resume(postponed.filter(({ isCanceled }) => !isCanceled));
  }

  /** Whether an event has to wait until the program continues. */
  postpones(event: Event): boolean {
    this.#postponed?.push(event);
    return this.#postponed !== null;
  }

  /** Counts an operation. Whether the program dies in it. */
  dies(kind: "files" | "statements"): boolean {
    const left = this.diesAfter[kind];
    if (left === undefined) return false;
    this.diesAfter[kind] = left - 1;
    return left <= 0;
  }

  log(fields: object = {}): Log {
    const line =
      (level: string) =>
      (more: object, message: string): void => {
        if (level === "debug") return;
        const all: Record<string, unknown> = { ...fields, ...more };
        const { error } = all;
        const why = error instanceof Error ? ` (${error.message})` : "";
        this.world.note(`${this.name} ${level}: ${message}${why} ${brief(all)}`);
        this.onLog?.(level, message, all);
      };
    return {
      debug: line("debug"),
      info: line("info"),
      warn: line("warn"),
      error: line("error"),
      child: (more) => this.log({ ...fields, ...more }),
    };
  }

  onLog: ((level: string, message: string, fields: Readonly<Record<string, unknown>>) => void) | null = null;
}

/** The fields that are the same in every run of a seed. */
function brief(fields: Readonly<Record<string, unknown>>): string {
  const { error: _error, pid: _pid, ...rest } = fields;
  return JSON.stringify(rest, (_key, value: unknown) => (value instanceof Error ? value.message : value));
}

const isBefore = (one: Event, other: Event): boolean =>
  one.at < other.at || (one.at === other.at && one.order < other.order);

const peek = (heap: readonly Event[]): Event | undefined => heap[0];

function push(heap: Event[], event: Event): void {
  let at = heap.length;
  heap.push(event);
  while (at > 0) {
    const parent = (at - 1) >> 1;
    const above = heap[parent] as Event;
    if (isBefore(above, event)) break;
    heap[at] = above;
    at = parent;
  }
  heap[at] = event;
}

function pop(heap: Event[]): void {
  const last = heap.pop();
  if (last === undefined || heap.length === 0) return;
  let at = 0;
  for (;;) {
    let child = at * 2 + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && isBefore(heap[child + 1] as Event, heap[child] as Event)) child += 1;
    if (!isBefore(heap[child] as Event, last)) break;
    heap[at] = heap[child] as Event;
    at = child;
  }
  heap[at] = last;
}
