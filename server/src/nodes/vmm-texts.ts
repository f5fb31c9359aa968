/**
 * What became of the machines of a node whose VMMs are replaced, as texts. Pure.
 */
import { counted } from "./drain-plan.ts";

/** `pauseMs`: of its guest; null: it booted. */
export type ReplacedMachine =
  | { readonly machineId: string; readonly kind: "replaced"; readonly pauseMs: number | null }
  /** It had no outdated VMM any more. */
  | { readonly machineId: string; readonly kind: "done" }
  | { readonly machineId: string; readonly kind: "left"; readonly reason: string };

const NAMED_MAX = 10;

export function vmmProgressText(results: readonly ReplacedMachine[], total: number): string {
  const left = results.filter(({ kind }) => kind === "left").length;
  return `${results.length} of ${counted(total)}${left === 0 ? "" : `, ${left} left as they were`}`;
}

/** What was done, and which machines were left and why. */
export function vmmResultText(results: readonly ReplacedMachine[]): string {
  const replaced = results.filter((result) => result.kind === "replaced");
  const pauses = replaced.flatMap(({ pauseMs }) => (pauseMs === null ? [] : [pauseMs])).toSorted((a, b) => a - b);
  const restarted = replaced.length - pauses.length;
  const left = results.filter((result) => result.kind === "left");
  if (replaced.length + left.length === 0) return "all machines run in VMMs of the installed program";
  const middle = pauses[Math.floor((pauses.length - 1) / 2)] ?? 0;
  return [
    pauses.length === 0
      ? null
      : `${counted(pauses.length)} got a new VMM while running, paused for ${middle} ms in the middle and ${pauses.at(-1)} ms at most`,
    restarted === 0 ? null : `${counted(restarted)} restarted`,
    left.length === 0 ? null : `${counted(left.length)} left in the old VMM: ${leftText(left)}`,
  ]
    .filter((part) => part !== null)
    .join("; ");
}

function leftText(left: readonly { readonly machineId: string; readonly reason: string }[]): string {
  const byReason = Map.groupBy(left, ({ reason }) => reason);
  return [...byReason]
    .map(([reason, machines]) => {
      const more = machines.length > NAMED_MAX ? ` and ${machines.length - NAMED_MAX} more` : "";
      const names = machines.slice(0, NAMED_MAX).map(({ machineId }) => machineId);
      return `${names.join(", ")}${more} (${reason})`;
    })
    .join("; ");
}
