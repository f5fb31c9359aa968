/**
 * The sandboxes that this gateway has seen, and the ends of their time.
 *
 * Always:
 * - It is memory only: what is lost with it is learnt again from the next call, with the caller's key or the
 *   one that the sandbox was last used with (remembered.ts).
 * - A sandbox whose time is over is ended here within the second. The server does it a little later, also
 *   without a gateway.
 * - No more than KNOWN_MAX are kept; those that were used longest ago are forgotten.
 */
import type { Clock, Timer } from "@flotilla/base/clock";
import type { MachineInfo } from "@flotilla/sdk";
import { sandboxOf } from "./ids.ts";
import { endOf, type Facts } from "./record.ts";

const KNOWN_MAX = 10_000;

export interface Known {
  readonly sandboxId: string;
  readonly key: string;
  readonly facts: Facts;
  /** Epoch milliseconds; null: it does not end by itself. */
  readonly endAt: number | null;
  /** The ports of its helpers that have answered since it last began to run. */
  helpers: ReadonlySet<number>;
}

export interface KnownParts {
  readonly clock: Clock;
  /** Called when the time of a sandbox is over. */
  readonly end: (known: Known) => void;
}

export class KnownSandboxes {
  readonly #parts: KnownParts;
  readonly #known = new Map<string, { known: Known; timer: Timer | null }>();

  constructor(parts: KnownParts) {
    this.#parts = parts;
  }

  find(sandboxId: string): Known | undefined {
    const entry = this.#known.get(sandboxId);
    if (entry === undefined) return undefined;
    this.#known.delete(sandboxId);
    this.#known.set(sandboxId, entry);
    return entry.known;
  }

  /** Replaces what was known before. */
  learn(machine: MachineInfo, facts: Facts, key: string): Known {
    const sandboxId = sandboxOf(machine.id);
    const before = this.#known.get(sandboxId);
    before?.timer?.cancel();
    const isRunning = machine.state === "started";
    const helpers = (isRunning && before?.known.helpers) || new Set<number>();
    const known: Known = { sandboxId, key, facts, endAt: isRunning ? endOf(machine) : null, helpers };
    this.#known.delete(sandboxId);
    this.#known.set(sandboxId, { known, timer: this.#timerOf(known) });
    for (const [oldest] of this.#known) {
      if (this.#known.size <= KNOWN_MAX) break;
      this.forget(oldest);
    }
    return known;
  }

  forget(sandboxId: string): void {
    this.#known.get(sandboxId)?.timer?.cancel();
    this.#known.delete(sandboxId);
  }

  #timerOf(known: Known): Timer | null {
    const { clock, end } = this.#parts;
    return known.endAt === null ? null : clock.timer(known.endAt - clock.now(), () => end(known));
  }
}

/** Whether its time is over, although it may not have ended yet. */
export const isOver = ({ endAt }: Known, now: number): boolean => endAt !== null && now >= endAt;
