/**
 * `flotilla machine update NAME…`: changes what may be changed of machines.
 */
import type { MachineInfo, UpdateMachineRequest } from "@flotilla/sdk";
import { usage } from "../failure.ts";
import type { Call } from "../call.ts";
import { findMachine } from "./find.ts";

export interface UpdateOptions {
  readonly disruption?: "migrate" | "restart" | "stop";
  /** Seconds. */
  readonly ttl?: number;
  readonly atEnd?: "delete" | "suspend" | "stop";
  readonly label?: Readonly<Record<string, string>>;
}

export async function run(call: Call, references: readonly string[], options: UpdateOptions): Promise<void> {
  const { disruption, ttl, atEnd, label } = options;
  if ([disruption, ttl, atEnd, label].every((each) => each === undefined))
    throw usage("there is nothing to change", "name it, such as --disruption restart");
  const flotilla = call.flotilla();
  const request: UpdateMachineRequest = {
    ...(disruption === undefined ? {} : { disruption }),
    ...(ttl === undefined ? {} : { ttlSeconds: ttl }),
    ...(atEnd === undefined ? {} : { atEnd }),
    ...(label === undefined ? {} : { labels: label }),
  };
  const found: MachineInfo[] = [];
  for (const reference of references) found.push(await findMachine(flotilla, reference));
  for (const { id } of found) {
    const machine = await flotilla.updateMachine(id, request);
    if (call.output.isJson) call.output.json(machine);
    else call.output.line(machine.name ?? id);
  }
}
