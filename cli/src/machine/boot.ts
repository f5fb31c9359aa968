/**
 * Starts a machine and waits until it has booted, while whoever watches sees what is going on.
 *
 * The start is the API's blocking call, so its answer comes as soon as there is one. A server waits a limited time and
 * then answers `start_timeout` although the start goes on (a large image may take minutes to fetch); from there the
 * machine's state is read until it has settled.
 */
import type { Flotilla, MachineInfo } from "@flotilla/sdk";
import { FlotillaError } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { Failure } from "../failure.ts";
import type { Progress } from "../output.ts";

const STATE_PERIOD_MS = 500;
const EVENTS_PERIOD_MS = 700;

/** The started machine. Throws a Failure with the reason when it could not be started. */
export async function bootMachine(call: Call, flotilla: Flotilla, machine: MachineInfo): Promise<MachineInfo> {
  const name = machine.name ?? machine.id;
  using progress = call.output.progress(`starting ${name}`);
  const finished = new AbortController();
  const telling = call.output.isWatched ? tell(call, flotilla, machine, progress, finished.signal) : Promise.resolve();
  try {
    return await start(call, flotilla, machine.id);
  } catch (error) {
    if (!(error instanceof FlotillaError) || error.code !== "start_failed") throw error;
    throw new Failure(error.text, `\`flotilla machine events ${name}\` tells what happened before`);
  } finally {
    finished.abort();
    await telling;
  }
}

async function start(call: Call, flotilla: Flotilla, id: string): Promise<MachineInfo> {
  try {
    return await flotilla.startMachine(id);
  } catch (error) {
    if (!(error instanceof FlotillaError) || error.code !== "start_timeout") throw error;
  }
  for (;;) {
    const machine = await flotilla.getMachine(id);
    if (machine.state === "started") return machine;
    if (machine.state === "error") throw new Failure(`start ${machine.name ?? id}: ${machine.error ?? "it failed"}`);
    if (machine.state === "stopped") throw new Failure(`${machine.name ?? id} was stopped before it had started`);
    await call.world.clock.sleep(STATE_PERIOD_MS);
  }
}

/** Shows the newest event of this start until the signal ends it. */
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
    // What cannot be shown is no reason to fail: the start itself says how it went.
    const events = await flotilla.listMachineEvents(machine.id, { signal }).catch(() => []);
    const newest = events.filter((event) => !seen.has(event.id)).at(-1);
    if (newest !== undefined) progress.say(`starting ${name}: ${newest.message}`);
  }
}
