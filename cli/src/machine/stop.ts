/**
 * `flotilla machine stop NAME…`: shuts machines down; their disks are kept.
 *
 * Several are stopped one after the other. The first failure ends the command; machines stopped before are printed.
 */
import type { MachineInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { findMachine } from "./find.ts";

export async function run(call: Call, references: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  const found: MachineInfo[] = [];
  for (const reference of references) found.push(await findMachine(flotilla, reference));
  for (const { id, name } of found) {
    const machine = await stop(call, id, name ?? id);
    if (call.output.isJson) call.output.json(machine);
    else call.output.line(name ?? id);
  }
}

async function stop(call: Call, id: string, name: string): Promise<MachineInfo> {
  using _progress = call.output.progress(`stopping ${name}`);
  return await call.flotilla().stopMachine(id);
}
