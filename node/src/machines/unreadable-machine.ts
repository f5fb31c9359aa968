/**
 * A machine whose files this node has but cannot use, for example because a later version of Flotilla wrote
 * its journal. The fleet uses it as a supervisor.
 *
 * Always:
 * - Its directory is not written to, and a VMM that may belong to it continues to run.
 * - It is reported as failed, with the reason and what to do. A start is refused with the same text.
 * - Only a removal of the machine ends the VMM and deletes the files.
 *
 * A restarted agent reads the directory again.
 */
import type { DesiredMachine, ObservedMachine } from "@flotilla/contract/link/link";
import { absentMachine } from "@flotilla/contract/link/absent";
import { noAccess } from "./access.ts";
import { MachineLog } from "./workload/machine-log.ts";
import type { MachineAccess, UnusableMachine } from "./node-machine.ts";
import { logsPathOf } from "./paths.ts";
import { removeMachineFiles } from "./remove-machine-files.ts";
import type { SupervisorDeps } from "./machine-deps.ts";

export interface UnreadableMachineOptions {
  readonly deps: SupervisorDeps;
  readonly machineId: string;
  readonly directory: string;
  /** The user of its VMM and files; null: unknown, or that of another machine. */
  readonly uid: number | null;
  /** A text for the machine's owner: what is wrong, and what to do. */
  readonly reason: string;
  /** Digest of its disk's image; null: unknown. */
  readonly imageDigest: string | null;
  /** Boots whose VMM may be the machine's. */
  readonly bootIds: readonly string[];
}

export class UnreadableMachine implements UnusableMachine {
  readonly access: MachineAccess;
  readonly known = null;
  readonly #machineLog: MachineLog;
  readonly #options: UnreadableMachineOptions;
  #generation = 0;
  #isRemoved = false;

  constructor(options: UnreadableMachineOptions) {
    this.#options = options;
    this.#machineLog = new MachineLog(logsPathOf(options.directory));
    this.access = noAccess(this.#machineLog);
    for (const bootId of options.bootIds) options.deps.liveBoots.add(bootId);
  }

  get machineId(): string {
    return this.#options.machineId;
  }

  get vmmIds(): readonly string[] {
    return this.#options.bootIds;
  }

  get imageDigest(): string | null {
    return this.#options.imageDigest;
  }

  /**
   * Records the generation, and removes the machine when it is to be absent. Rejects if that fails; another
   * call retries.
   */
  async accept({ generation, state }: DesiredMachine): Promise<"accepted" | "stale"> {
    if (generation < this.#generation) return "stale";
    this.#generation = generation;
    if (state === "absent") await this.#remove();
    this.#options.deps.onChange(this.machineId);
    return "accepted";
  }

  observe(): ObservedMachine {
    const { machineId } = this;
    const observed = absentMachine(machineId, this.#generation);
    return this.#isRemoved ? observed : { ...observed, state: "failed", reason: this.#options.reason };
  }

  /** The machine is always settled. */
  settled(): Promise<ObservedMachine> {
    return Promise.resolve(this.observe());
  }

  async #remove(): Promise<void> {
    if (this.#isRemoved) return;
    const { deps, bootIds, directory, machineId, uid } = this.#options;
    for (const bootId of bootIds) deps.liveBoots.delete(bootId);
    await deps.driver.sweep(deps.liveBoots);
    await removeMachineFiles(directory);
    this.#machineLog.close();
    this.#isRemoved = true;
    deps.onRemoved({ machineId, generation: this.#generation, uid });
  }
}
