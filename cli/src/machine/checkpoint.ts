/**
 * `flotilla machine checkpoint NAME`: keeps an instant of a machine, and prints the name of the
 * checkpoint, or its id.
 */
import type { Call } from "../call.ts";
import { findMachineId } from "./find.ts";

export interface CheckpointOptions {
  readonly name?: string;
  readonly diskOnly?: boolean;
  readonly withSecrets?: boolean;
}

export async function run(call: Call, [reference = ""]: readonly string[], options: CheckpointOptions): Promise<void> {
  const { name, diskOnly, withSecrets } = options;
  const flotilla = call.flotilla();
  const checkpoint = await flotilla.createCheckpoint(await findMachineId(flotilla, reference), {
    ...(name === undefined ? {} : { name }),
    ...(diskOnly === true ? { memory: false } : {}),
    ...(withSecrets === true ? { secrets: "inherit" } : {}),
  });
  if (call.output.isJson) return call.output.json(checkpoint);
  call.output.line(checkpoint.name ?? checkpoint.id);
}
