/**
 * What a move does to a machine that runs or is suspended: whether its memory moves with it, and why not.
 *
 * Pure. Always: the move, the drain and its preview decide by this.
 */
import type { MachineRecord } from "../machines/record.ts";
import { isActive } from "../machines/state.ts";

/** The label in which a node reports the format of its VMs' memory. */
const FORMAT_LABEL = "memoryFormat";

/**
 * `none`: it is stopped and has no memory. `migrate`: its memory moves with it. `restart`: it boots on the other node, a suspended
 * one at its next start.
 */
export type MoveEffect = "none" | "migrate" | "restart";

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
  /** Why its memory does not move; null: it does, or there is none. */
  readonly reason: string | null;
}

export function effectOf({ machine, memoryFormat, target }: EffectFacts): EffectOfMove {
  if (!isActive(machine) && machine.observedDetails.suspendedAt === null) return { effect: "none", reason: null };
  const reason = refusalOf(memoryFormat, target);
  return { effect: reason === null ? "migrate" : "restart", reason };
}

/** Whether a node reports that it can load memory of this format. One of an earlier version reports nothing. */
export const canLoad = ({ labels }: Pick<Target, "labels">, memoryFormat: string): boolean =>
  labels[FORMAT_LABEL] === memoryFormat;

/** Why a node cannot load memory of this format; null: it can. */
function refusalOf(memoryFormat: string | null, target: Target): string | null {
  if (memoryFormat === null) return "its node has no memory of it that can be kept";
  if (canLoad(target, memoryFormat)) return null;
  return (
    `node ${target.id} cannot load it: Flotilla, QEMU, the accelerator or the processor differ from those with which ` +
    "the machine was started"
  );
}
