/**
 * Runs a machine's actions, one at a time, until the plan says that it has settled.
 *
 * Always:
 * - The plan is computed again after each action.
 * - An action that fails ends the attempt to run the machine, or is repeated after a pause, as state.ts says.
 *   Nothing here rejects.
 *
 * Runs only while there is something to do. Nothing of it is on the disk.
 */
import { orAborted } from "@flotilla/base/abort";
import { dirname } from "node:path";
import { messageOf } from "@flotilla/base/errors";
import type { DesiredState } from "@flotilla/contract/link/link";
import { imageFaultIn } from "../images/image-refused.ts";
import { ACTIONS } from "./actions/actions.ts";
import { failureText } from "./failure-text.ts";
import type { Machine } from "./machine.ts";
import { diskPathOf } from "./paths.ts";
import { type Next, plan } from "./plan.ts";
import { type Action, isAttempt, isInterruptedBy } from "./state.ts";

const LONG: readonly Action[] = ["ensureImage", "awaitMove", "replaceVmm"];
const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 30_000;

export class MachineQueue {
  readonly #machine: Machine;
  #current: { readonly action: Action; readonly controller: AbortController } | null = null;
  #isRunning = false;
  #retries = 0;
  #retry: AbortController | null = null;

  constructor(machine: Machine) {
    this.#machine = machine;
  }

  /** The action that runs now. */
  get action(): Action | null {
    return this.#current?.action ?? null;
  }

  /** Aborts a running action that does not serve the desired state. */
  interrupt(desired: DesiredState): void {
    if (this.#current === null || !isInterruptedBy(this.#current.action, desired)) return;
    this.#current.controller.abort(new Error(`the machine is to be ${desired}`));
  }

  /** Continues immediately, without waiting for the next retry. */
  wake(): void {
    this.#retry?.abort();
    void this.run();
  }

  /** The agent shuts down: actions that may take long are aborted; every other one ends soon by itself. */
  release(): void {
    if (this.#current !== null && LONG.includes(this.#current.action)) {
      this.#current.controller.abort(new Error("the node agent shuts down"));
    }
    this.#retry?.abort();
  }

  /** Executes the plan until it has settled. A change during a run is seen by that run. */
  async run(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    const machine = this.#machine;
    for (;;) {
      if (machine.isReleased || machine.isRemoved) break;
      const next = plan(machine.situation());
      if (next.kind === "settled") break;
      await this.#step(next);
    }
    this.#isRunning = false;
    machine.changed();
  }

  async #step({ action, when }: Extract<Next, { kind: "act" }>): Promise<void> {
    const machine = this.#machine;
    const { clock } = machine.deps;
    const { generation } = machine.journal;
    const controller = new AbortController();
    const startedAt = clock.monotonic();
    this.#current = { action, controller };
    machine.isActing = true;
    machine.changed();
    try {
      // A kill ends the point that is being made.
      if (machine.branching !== null && action !== "kill") await orAborted(machine.branching, controller.signal);
      if (action !== "kill") await machine.collapsing?.end();
      await ACTIONS[action](machine, controller.signal);
      this.#retries = 0;
      machine.log.debug({ action, when, ms: Math.round(clock.monotonic() - startedAt) }, "action done");
    } catch (error) {
      if (machine.isReleased) return;
      if (controller.signal.aborted) machine.log.info({ action }, "action interrupted");
      else if (isAttempt(action)) machine.fail(generation, this.#textOf(error), imageFaultIn(error));
      else await this.#waitToRetry(action, error);
    } finally {
      // A machine keeps its slot until its VM is configured.
      if (machine.held.state !== "up") machine.releaseSlot();
      machine.progress = null;
      machine.isQueued = false;
      machine.isActing = false;
      this.#current = null;
    }
  }

  #textOf(error: unknown): string {
    const { directory, deps, log } = this.#machine;
    const text = failureText(error, {
      nodeDirectory: dirname(deps.machinesDirectory),
      diskPath: diskPathOf(directory),
    });
    if (text !== messageOf(error)) log.warn({ error }, "a file of a machine cannot be used");
    return text;
  }

  async #waitToRetry(action: Action, error: unknown): Promise<void> {
    const { log, deps } = this.#machine;
    const delayMs = Math.min(RETRY_MS_MIN * 2 ** this.#retries, RETRY_MS_MAX);
    this.#retries += 1;
    log.warn({ action, error, delayMs }, "action failed; trying again");
    this.#retry = new AbortController();
    await deps.clock.sleep(delayMs, this.#retry.signal);
    this.#retry = null;
  }
}
