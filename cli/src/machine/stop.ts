/**
 * `flotilla machine stop NAME…`: shuts machines down; their disks are kept. With --keep-memory it suspends
 * them: a start continues their processes.
 *
 * Several are stopped one after the other. The first failure ends the command; machines stopped before are
 * printed.
 */
import type { MachineInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { findMachine } from "./find.ts";

export interface StopOptions {
  readonly keepMemory?: boolean;
}

export async function run(call: Call, references: readonly string[], options: StopOptions): Promise<void> {
  const flotilla = call.flotilla();
  const found: MachineInfo[] = [];
  for (const reference of references) found.push(await findMachine(flotilla, reference));
  for (const { id, name } of found) {
    const machine = await stop(call, { id, name: name ?? id, keepMemory: options.keepMemory ?? false });
    if (call.output.isJson) call.output.json(machine);
    else call.output.line(name ?? id);
  }
}

interface Stopping {
  readonly id: string;
  readonly name: string;
  readonly keepMemory: boolean;
}

async function stop(call: Call, { id, name, keepMemory }: Stopping): Promise<MachineInfo> {
  using _progress = call.output.progress(`${keepMemory ? "suspending" : "stopping"} ${name}`);
  return keepMemory
    ? await call.flotilla().stopMachine(id, { query: { keepMemory } })
    : await call.flotilla().stopMachine(id);
}
