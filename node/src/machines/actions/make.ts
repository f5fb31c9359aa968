/**
 * Makes what a machine starts from: its image, and its disk.
 *
 * A crash leaves an incomplete image, whose pull the next attempt continues, or half a disk, which is made
 * again.
 */
import type { NewEvent } from "@flotilla/contract/event-types";
import type { Machine } from "../machine.ts";
import { boot } from "./boot.ts";

/** Progress is reported at most this often. */
const PROGRESS_PERIOD_MS = 250;

export async function ensureImage(machine: Machine, signal: AbortSignal): Promise<void> {
  const { clock } = machine.deps;
  const startedAt = clock.monotonic();
  let reportedAt = startedAt;
  const report = {
    event: (event: NewEvent): void => machine.event(event),
    progress: (message: string): void => {
      machine.progress = message;
      if (clock.monotonic() - reportedAt < PROGRESS_PERIOD_MS) return;
      reportedAt = clock.monotonic();
      machine.changed();
    },
  };
  const imageDigest = await machine.disk.ensureImage(machine.requiredSpec(), report, signal);
  void machine.update({ imageDigest });
  machine.timings.note({ imageMs: clock.monotonic() - startedAt });
}

/**
 * Makes the machine's disk, or takes a prepared VM that has such a disk and starts it at once, because no
 * other machine can use it. If that is interrupted, a disk that was made is in the journal.
 */
export async function makeDisk(machine: Machine, signal: AbortSignal): Promise<void> {
  const { clock } = machine.deps;
  const startedAt = clock.monotonic();
  const waiting = await machine.disk.make(machine.requiredSpec(), machine.journal.uid, signal);
  void machine.update({ hasDisk: true });
  machine.timings.note({ diskMs: clock.monotonic() - startedAt });
  if (waiting !== undefined) await boot(machine, signal, waiting);
}
