/**
 * What a move does to a machine that runs or is suspended: what its owner chose, whether its memory moves
 * with it, and why not.
 *
 * Pure. Always: the move, the drain and its preview decide by this.
 */
import type { MachineRecord } from "../machines/record.ts";
import { isActive } from "../machines/state.ts";
import { MEMORY_FORMAT_LABEL } from "../placement/place.ts";

/**
 * `none`: it is stopped and has no memory. `migrate`: its memory moves with it. `restart`: it boots on the
 * other node, a suspended one at its next start. `stop`: it is stopped and stays so.
 */
export type MoveEffect = "none" | "migrate" | "restart" | "stop";

export interface EffectFacts {
  readonly machine: MachineRecord;
  /** What its node says of its memory; null: it has none that can be kept. */
  readonly memoryFormat: string | null;
  readonly target: Target;
}

interface Target {
  readonly id: string;
  readonly labels: Readonly<Record<string, string>>;
}

export interface EffectOfMove {
  readonly effect: MoveEffect;
  /** Why its memory does not move although its owner permits it; null: it does, or there is none. */
  readonly reason: string | null;
}

export function effectOf({ machine, memoryFormat, target }: EffectFacts): EffectOfMove {
  if (!isActive(machine) && machine.observedDetails.suspendedAt === null) return { effect: "none", reason: null };
  // A choice about machines that run: the memory of a suspended one is not in the way.
  if (isActive(machine) && machine.disruption !== "migrate") return { effect: machine.disruption, reason: null };
  const reason = refusalOf(memoryFormat, target);
  return { effect: reason === null ? "migrate" : "restart", reason };
}

/** The format that the machine's new node should have; null: none of its memory moves. */
export const preferredFormat = (machine: MachineRecord, memoryFormat: string | null): string | null =>
  isActive(machine) && machine.disruption !== "migrate" ? null : memoryFormat;

/** Whether a node reports that it can load memory of this format. */
export const canLoad = ({ labels }: Pick<Target, "labels">, memoryFormat: string): boolean =>
  labels[MEMORY_FORMAT_LABEL] === memoryFormat;

/** Why a node cannot load memory of this format; null: it can. */
function refusalOf(memoryFormat: string | null, target: Target): string | null {
  if (memoryFormat === null) return "its node has no memory of it that can be kept";
  if (canLoad(target, memoryFormat)) return null;
  return (
    `node ${target.id} cannot load it: Flotilla, QEMU, the accelerator or the processor differ from those with which ` +
    "the machine was started"
  );
}
