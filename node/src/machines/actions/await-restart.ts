/**
 * Waits until a machine that ended unexpectedly is to be restarted; then the plan starts it.
 *
 * The pause ends early when the machine is to be stopped or removed. After a crash of the agent the journal
 * holds the time of the restart, and the restart has been counted.
 */
import type { Machine } from "../machine.ts";

export async function awaitRestart(machine: Machine, signal: AbortSignal): Promise<void> {
  const { clock } = machine.deps;
  const { ending, restarts } = machine.journal;
  if (ending?.kind !== "crashed") return;
  const pauseMs = ending.restartAt - clock.now();
  if (pauseMs > 0) {
    machine.progress = `it ended and is restarted in ${Math.ceil(pauseMs / 1000)} s`;
    await clock.sleep(Math.min(pauseMs, PAUSE_MS_MAX), signal);
    signal.throwIfAborted();
  }
  machine.timings.begin();
  void machine.update({ ending: null, restarts: { at: restarts?.at ?? [], isUnderWay: true } });
}

/** Bounds the pause when the clock was set back. */
const PAUSE_MS_MAX = 60_000;
