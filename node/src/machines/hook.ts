/**
 * Runs a machine's hook at a moment of its life, and does what follows (hooks/consequence.ts).
 *
 * Always:
 * - Moves and new VMMs run no hook: the machine does not notice them. A move that shuts the machine down is a
 *   stop, and a machine whose memory is saved only for its move is not suspended. A kill, a delete, a crash
 *   and a host that goes down too soon run none.
 * - A clone has its own identity before its hook runs, and no network until it has succeeded. A machine that
 *   boots, also from a point's disk, is not a clone.
 *
 * An agent that is killed while a hook runs: the next one ends the clone finally; the others run at least
 * once, since a suspend or a stop is repeated, and the journal says that the hook of a resume is due.
 */
import type { HookMoment } from "@flotilla/contract/hooks";
import type { Vm } from "../driver/driver.ts";
import type { Guest } from "../guest/guest.ts";
import { CONSEQUENCES } from "../hooks/consequence.ts";
import { runHook } from "../hooks/run-hook.ts";
import type { Machine } from "./machine.ts";

/** How long its hook may take at a moment, in milliseconds; 0: it has none. */
export const hookMs = ({ journal }: Machine, moment: HookMoment): number =>
  journal.spec?.hooks?.[moment]?.timeoutMs ?? 0;

/** Rejects with an Error for the machine's owner when the machine must not run, and never otherwise. */
export async function atMoment(
  machine: Machine,
  moment: HookMoment,
  { guest, signal, limitMs = Number.POSITIVE_INFINITY }: Moment,
): Promise<void> {
  const { journal, held, deps, log } = machine;
  const hook = journal.spec?.hooks?.[moment];
  if (hook === undefined || (moment !== "fork" && deps.hostStop.isTooLate)) return;
  // Others may boot meanwhile.
  machine.releaseSlot();
  const inTime = AbortSignal.any([signal, deps.hostStop.tooLate]);
  const { outcome, text } = await runHook(hook, { guest, clock: deps.clock, limitMs, signal: inTime });
  const { then, why } = CONSEQUENCES[moment][outcome];
  log.info({ hook: moment, outcome, then, why }, "a hook has ended");
  if (then === "end") throw new Error(`its ${moment} hook ${text}`);
  // A machine that has lost its VM has more to tell, and another agent runs the hook again.
  if (then === "tell" && held.vm?.guest === guest)
    machine.event({ type: "machine.hookFailed", data: { hook: moment, reason: text } });
}

interface Moment {
  readonly guest: Guest;
  readonly signal: AbortSignal;
  /** As in HookRun; absent: the hook's own time. */
  readonly limitMs?: number;
}

/** Runs the hook of a machine that was resumed, if that is due. Never rejects. */
export async function afterResume(machine: Machine, vm: Vm, signal: AbortSignal): Promise<void> {
  if (machine.journal.boot?.isHookDue !== true) return;
  await atMoment(machine, "resume", { guest: vm.guest, signal });
  const { boot } = machine.journal;
  if (boot !== null && !machine.isReleased) void machine.update({ boot: { ...boot, isHookDue: false } });
}
