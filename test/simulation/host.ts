/**
 * What the system gives to programs of a simulation: random bytes, deadlines, files and sockets, of the world
 * that runs now. Import it before the programs.
 */
import crypto from "node:crypto";
import { createRequire, syncBuiltinESMExports } from "node:module";
import { type Files, patchFiles } from "./files.ts";
import { type Network, patchNetwork } from "./network.ts";
import type { Program, World } from "./world.ts";

/** What runs now; one at a time in this process. */
interface Host {
  readonly world: World;
  readonly files: Files;
  readonly network: Network;
}

let current: Host | null = null;

function host(): Host {
  if (current === null) throw new Error("no simulation runs");
  return current;
}

export function setHost(next: Host | null): void {
  current = next;
}

const { randomBytes } = crypto;
crypto.randomBytes = ((...parameters: Parameters<typeof randomBytes>) =>
  current?.world.maybeProgram === undefined
    ? randomBytes(...parameters)
    : current.world.ids.bytes(parameters[0])) as typeof randomBytes;
syncBuiltinESMExports();
const { timeout } = AbortSignal;
AbortSignal.timeout = (ms) => {
  const program = current?.world.maybeProgram;
  if (program === undefined) return timeout.call(AbortSignal, ms);
  const late = new AbortController();
  program.world.after(ms, program, () => late.abort(new DOMException("the time is up", "TimeoutError")));
  return late.signal;
};
/**
 * What `setTimeout` returns to a program. A real timer would end what a killed program had begun, and on a
 * slow host only.
 */
class SimulatedTimer {
  readonly #program: Program;
  readonly #ms: number;
  readonly #callback: () => void;
  #due = 0;
  #planned: { cancel(): void } | null = null;

  constructor(program: Program, ms: number, callback: () => void) {
    this.#program = program;
    this.#ms = ms;
    this.#callback = callback;
    this.refresh();
  }

  refresh(): this {
    this.#due = this.#program.world.now + this.#ms;
    this.#planned ??= this.#plan();
    return this;
  }

  clear(): void {
    this.#planned?.cancel();
    this.#planned = null;
  }

  ref(): this {
    return this;
  }
  unref(): this {
    return this;
  }

  /** A timer that is refreshed again and again is one event. */
  #plan(): { cancel(): void } {
    const { world } = this.#program;
    return world.after(this.#due - world.now, this.#program, () => {
      this.#planned = world.now < this.#due ? this.#plan() : null;
      if (this.#planned === null) this.#callback();
    });
  }
}

// Shipped code asks its clock for timers. Those of its packages are meant here, which are the deadlines of
// undici.
const ofUndici = createRequire(import.meta.url)("undici/lib/util/timers.js") as {
  setFastTimeout: SetTimer;
  readonly kFastTimer: symbol;
};
type SetTimer = (callback: (...parameters: unknown[]) => void, ms?: number, ...parameters: unknown[]) => unknown;

function forPrograms(real: SetTimer): SetTimer {
  return (callback, ms = 0, ...parameters) => {
    const program = current?.world.maybeProgram;
    if (program === undefined) return real(callback, ms, ...parameters);
    const timer = new SimulatedTimer(program, ms, () => callback(...parameters));
    // The symbol makes undici clear it by its method.
    return Object.assign(timer, { [ofUndici.kFastTimer]: true });
  };
}

ofUndici.setFastTimeout = forPrograms(ofUndici.setFastTimeout);
// tidy-allow timer: it is replaced
globalThis.setTimeout = forPrograms(globalThis.setTimeout) as typeof globalThis.setTimeout;
patchFiles(
  () => host().world.program,
  () => host().files,
);
patchNetwork(
  () => host().network,
  (path) => host().files.put(path),
);
