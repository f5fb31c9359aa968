/**
 * Takes the layers away that a machine's disk is on top of, while the machine runs, so that chains of layers
 * are bounded and the machine can move.
 *
 * Always: the journal names the layers until the disk has what they have, so a crash, of anything and at any
 * time, leaves a disk with the same content. Only one attempt is under way for a machine, and none while an
 * action of the plan runs or a point is made: those end it and wait for that.
 */
import { deadlineSignal } from "@flotilla/base/abort";
import { messageOf } from "@flotilla/base/errors";
import { bytesForNewDisks } from "../disks/disks.ts";
import type { Collapsing } from "./machine.ts";
import type { RunningMachine } from "./node-machine.ts";

/** A disk of this many layers is collapsed when nothing else needs that. */
export const LAYERS_ENOUGH = 8;
const COLLAPSE_DEADLINE_MS = 10 * 60_000;

class Collapse implements Collapsing {
  readonly #controller = new AbortController();
  readonly done: Promise<void>;

  constructor(running: RunningMachine) {
    const { machine } = running;
    this.done = this.#collapse(running).finally(() => (machine.collapsing = null));
    this.done.catch((error: unknown) => machine.log.info({ reason: messageOf(error) }, "a disk keeps its layers"));
  }

  async end(): Promise<void> {
    this.#controller.abort(new Error("something else is done with the machine"));
    await this.done.catch(() => undefined);
  }

  async #collapse({ machine, vm, boot }: RunningMachine): Promise<void> {
    if (vm.points === null) throw new Error("its VM cannot do that");
    const limit = deadlineSignal(machine.deps.clock, COLLAPSE_DEADLINE_MS, this.#controller.signal);
    try {
      const bytes = await machine.disk.layerBytes(machine.journal);
      if ((await bytesForNewDisks(machine.directory)) < bytes) throw new Error("the node's disk is full");
      await vm.points.collapse(boot, limit.signal);
    } finally {
      limit.dispose();
    }
    await machine.update({ layers: [] });
    machine.deps.onLayersFreed();
  }
}

/**
 * Begins it, unless it is under way or there are no layers. Resolves when there are none; rejects with why
 * there are still.
 */
export async function collapse(running: RunningMachine): Promise<void> {
  const { machine } = running;
  if ((machine.journal.layers ?? []).length === 0) return;
  if (machine.branching !== null || machine.isActing) throw new Error("something else is done with the machine");
  machine.collapsing ??= new Collapse(running);
  await machine.collapsing.done;
}
