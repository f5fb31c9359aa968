/**
 * Starts a machine and waits until it has booted, and shows progress on a terminal.
 *
 * Uses the API's blocking start: its answer comes when the start has ended, however long that takes.
 */
import type { Flotilla, MachineInfo } from "@flotilla/sdk";
import { FlotillaError } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { Failure } from "../failure.ts";
import type { Progress } from "../output.ts";

const EVENTS_PERIOD_MS = 700;

/** The started machine. Throws a Failure with the reason when it could not be started. */
export async function bootMachine(call: Call, flotilla: Flotilla, machine: MachineInfo): Promise<MachineInfo> {
  const name = machine.name ?? machine.id;
  using progress = call.output.progress(`starting ${name}`);
  const finished = new AbortController();
  const telling = call.output.isWatched ? tell(call, flotilla, machine, progress, finished.signal) : Promise.resolve();
  try {
    return await flotilla.startMachine(machine.id);
  } catch (error) {
    if (!(error instanceof FlotillaError) || !isFailedStart(error.code)) throw error;
    throw new Failure(error.text, `\`flotilla machine events ${name}\` tells what happened before`);
  } finally {
    finished.abort();
    await telling;
  }
}

/** Whether a code is that of a failed start: a fault of the image has a code that names its kind. */
const isFailedStart = (code: string): boolean => code === "start_failed" || code.startsWith("image_");

/** Shows the newest event of this start until the signal is aborted. */
async function tell(
  call: Call,
  flotilla: Flotilla,
  machine: MachineInfo,
  progress: Progress,
  signal: AbortSignal,
): Promise<void> {
  const name = machine.name ?? machine.id;
  const before = await flotilla.listMachineEvents(machine.id, { signal }).catch(() => []);
  const seen = new Set(before.map((event) => event.id));
  while (!signal.aborted) {
    await call.world.clock.sleep(EVENTS_PERIOD_MS, signal);
    // A failure to show progress is ignored: the start itself reports its result.
    const events = await flotilla.listMachineEvents(machine.id, { signal }).catch(() => []);
    const newest = events.filter((event) => !seen.has(event.id)).at(-1);
    if (newest !== undefined) progress.say(`starting ${name}: ${newest.message}`);
  }
}
