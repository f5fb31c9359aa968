/**
 * Where a request may be forwarded to, and which of several ports gets it. Pure.
 */
import type { MachineName } from "../machines/record.ts";

export interface TargetPort {
  readonly machine: MachineName;
  /** null: the first one that is published. */
  readonly port: number | null;
}

/** What a target is chosen by. */
export interface Choice {
  /** How many requests are open there. */
  readonly openIn: (machineId: string) => number;
  /** Whether it refused a moment ago. */
  readonly isPassedOver: (machineId: string) => boolean;
  /** Machines that this request was tried on. */
  readonly tried: ReadonlySet<string>;
  /** Counts requests: the next one begins with the next of those that are equal. */
  readonly turn: number;
}

/**
 * The target with the fewest open requests, of those that were not tried and did not refuse lately; of
 * equals, they take turns. Those that refused are chosen only if nothing else is left. null: all were tried.
 */
export function chooseTarget(targets: readonly TargetPort[], choice: Choice): TargetPort | null {
  const { openIn, isPassedOver, tried, turn } = choice;
  const left = targets.filter(({ machine }) => !tried.has(machine.id));
  const accepting = left.filter(({ machine }) => !isPassedOver(machine.id));
  const among = accepting.length > 0 ? accepting : left;
  let chosen: TargetPort | null = null;
  let fewest = Infinity;
  for (let step = 0; step < among.length; step += 1) {
    const target = among[(turn + step) % among.length];
    const open = target === undefined ? Infinity : openIn(target.machine.id);
    if (target !== undefined && open < fewest) [chosen, fewest] = [target, open];
  }
  return chosen;
}
