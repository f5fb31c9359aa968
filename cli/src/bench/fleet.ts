/**
 * The machines of one run of `flotilla bench`: makes them, and removes all of them however the run ends.
 *
 * Always:
 * - A create that was sent is awaited to its end, because otherwise the id of the new machine would be lost.
 *   Once the run is stopped, no further create begins.
 * - Each machine has the label `flotilla-bench`, so that a user can find what a killed run left. The server
 *   deletes each after an hour in any case.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Flotilla, MachineInfo } from "@flotilla/sdk";
import { Failure } from "../failure.ts";

const TTL_SECONDS = 3_600;
const COMMAND = ["true"];
const REMOVED_AT_ONCE = 8;

/** A machine that answered its first command. */
export interface Answered {
  readonly machine: MachineInfo;
  /** Milliseconds from the call of create to the answer of the first command. */
  readonly ttiMs: number;
}

export class BenchFleet {
  readonly #flotilla: Flotilla;
  readonly #clock: Clock;
  readonly #image: string;
  readonly #stopped: AbortSignal;
  readonly #ids = new Set<string>();
  readonly #creating = new Set<Promise<unknown>>();

  constructor(parts: { flotilla: Flotilla; clock: Clock; image: string; stopped: AbortSignal }) {
    this.#flotilla = parts.flotilla;
    this.#clock = parts.clock;
    this.#image = parts.image;
    this.#stopped = parts.stopped;
  }

  /** Create, start and first command. */
  async make(): Promise<Answered> {
    const startedAt = this.#clock.monotonic();
    const { id } = await this.#create();
    const machine = await this.#flotilla.startMachine(id, { signal: this.#stopped });
    await this.runTrue(id);
    return { machine, ttiMs: this.#clock.monotonic() - startedAt };
  }

  async runTrue(id: string): Promise<void> {
    const { exitCode } = await this.#flotilla.exec(id, { command: COMMAND }, { signal: this.#stopped });
    if (exitCode !== 0) throw new Failure(`\`true\` ended with ${exitCode} in machine ${id}`);
  }

  async remove(id: string): Promise<void> {
    await this.#flotilla.deleteMachine(id);
    this.#ids.delete(id);
  }

  /** Removes all remaining machines. Tries each, then throws the first error. */
  async removeAll(): Promise<void> {
    await Promise.allSettled(this.#creating);
    const left = [...this.#ids].values();
    const errors: unknown[] = [];
    const worker = async (): Promise<void> => {
      for (const id of left) await this.remove(id).catch((error: unknown) => errors.push(error));
    };
    await Promise.all(Array.from({ length: REMOVED_AT_ONCE }, worker));
    if (errors.length > 0) throw errors[0];
  }

  async #create(): Promise<MachineInfo> {
    this.#stopped.throwIfAborted();
    const creating = this.#flotilla.createMachine({
      source: { type: "image", reference: this.#image },
      labels: { "flotilla-bench": "true" },
      ttlSeconds: TTL_SECONDS,
    });
    const noted = creating.then(
      ({ id }) => this.#ids.add(id),
      () => {},
    );
    this.#creating.add(noted);
    try {
      return await creating;
    } finally {
      this.#creating.delete(noted);
    }
  }
}
