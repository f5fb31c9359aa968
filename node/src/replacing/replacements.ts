/**
 * Machines that get a VMM of the installed program (docs/decisions/0065-new-vmms.md).
 *
 * Always: one request of a machine is under way; others join it. Nothing of it is on the disk: if the agent
 * ends, the request is repeated.
 */
import { orAborted } from "@flotilla/base/abort";
import { messageOf } from "@flotilla/base/errors";
import type { Driver } from "../driver/driver.ts";
import type { Fleet } from "../machines/fleet.ts";
import type { NodeMachine, RunningMachine } from "../machines/node-machine.ts";
import { type ReplacementMode, type ReplacedVmm, Replacing } from "../machines/replacing.ts";
import { refusalOf } from "./refusal.ts";
import { replaceVmm } from "./replacement.ts";
import { VmmProgram } from "./vmm-program.ts";

/** Time for a machine to boot again. */
const RESTART_MS = 3 * 60_000;

export interface ReplacementsOptions {
  readonly fleet: Pick<Fleet, "list">;
  readonly driver: Pick<Driver, "program" | "installedProgram">;
}

export class Replacements {
  readonly #fleet: ReplacementsOptions["fleet"];
  readonly #program: VmmProgram;
  readonly #underWay = new Map<string, Replacing>();

  constructor({ fleet, driver }: ReplacementsOptions) {
    this.#fleet = fleet;
    this.#program = new VmmProgram(driver);
  }

  /** The machines that run in a VMM of another program than the installed one. */
  async outdated(): Promise<readonly string[]> {
    await this.#program.refresh();
    return this.#fleet.list().flatMap(({ machineId, access, known }) => {
      const record = access.guest === null ? null : (known?.journal.boot?.record ?? null);
      return record !== null && this.#program.isOutdated(record) ? [machineId] : [];
    });
  }

  /**
   * Has the machine run in a VMM of the installed program, as `how` says, and waits for that. When the signal
   * is aborted, only the wait ends.
   */
  async replace(machine: NodeMachine, how: ReplacementMode, signal: AbortSignal): Promise<ReplacedVmm> {
    const replacing = this.#underWay.get(machine.machineId) ?? (await this.#begin(machine, how));
    if (!(replacing instanceof Replacing)) return replacing;
    const ended = await orAborted(replacing.done, signal);
    if (how === "restart") await machine.settled(machine.observe().generation, RESTART_MS, signal);
    return ended;
  }

  async #begin(found: NodeMachine, how: ReplacementMode): Promise<Replacing | ReplacedVmm> {
    const { machineId } = found;
    if (found.known === null || found.access.guest === null) return { outcome: "ended" };
    await this.#program.refresh();
    let running: RunningMachine | null;
    try {
      running = await found.running();
    } catch (error) {
      return { outcome: "refused", reason: messageOf(error) };
    }
    // Another request may have begun meanwhile.
    const other = this.#underWay.get(machineId);
    if (other !== undefined) return other;
    if (running === null) return { outcome: "ended" };
    const { machine, vm } = running;
    const { leaving } = machine;
    const refusal = refusalOf({
      how,
      isOutdated: this.#program.isOutdated(vm.record),
      needsAgentRestart: this.#program.needsAgentRestart,
      isMoving: leaving.isUnderWay || leaving.watched !== null,
      hasSuccessor: vm.successor !== null,
    });
    if (refusal !== null) return refusal;
    const replacing = new Replacing(how, (signal) => replaceVmm(machine, signal));
    this.#underWay.set(machineId, replacing);
    void replacing.done.then(() => this.#underWay.delete(machineId));
    machine.replacing = replacing;
    machine.wake();
    return replacing;
  }
}
