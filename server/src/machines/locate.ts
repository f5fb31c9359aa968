/**
 * Finds the machine of a command whose connection broke, so that the command is resumed there (decision 53).
 *
 * Always: it is looked for in the row of the machine, which names the one node on which it may run. Changes
 * of the row are waited for, not polled. A machine that does not run and is not being moved has no commands
 * any more.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Locate } from "../link/open-exec.ts";
import { type MachineRecord, nodeOf } from "./record.ts";
import type { MachineServices } from "./services.ts";
import { includes, isStoppedByMove, phaseOf, UNREACHABLE_STATUSES } from "./state.ts";

/** Locates the machine of one command. */
export function locateFor({ cache }: Pick<MachineServices, "cache">, { tenantId, id }: MachineRecord): Locate {
  let hasMoved = false;
  return async ({ isStale }) => {
    let isCurrent = !isStale;
    for (let hasWaited = false; ; hasWaited = true) {
      const changed = new AbortController();
      const change = cache.changed(id, changed.signal);
      try {
        const known = isCurrent ? cache.current({ tenantId, id }) : undefined;
        const machine = known ?? (await cache.readAny(id));
        if (machine === undefined || machine.deletedAt !== null) throw ended(id);
        const isMoving = machine.moveId !== null && !isStoppedByMove(machine);
        hasMoved ||= isMoving;
        const phase = phaseOf(machine);
        if (!isMoving && phase !== "running" && phase !== "starting") throw ended(id);
        const isAway = machine.nodeStatus !== null && includes(UNREACHABLE_STATUSES, machine.nodeStatus);
        // A start that follows a move ends it. The node of any other machine knows more than its row.
        const isAwaited = isMoving || (phase === "starting" && hasMoved && !isAway);
        if (!isAwaited) return { node: nodeOf(machine), hasWaited };
        isCurrent = true;
        await change;
      } finally {
        changed.abort();
      }
    }
  };
}

const ended = (id: string): Refusal =>
  new Refusal("guest_unreachable", `the command ended with machine ${id}, which does not run any more`);
