/**
 * `flotilla machine branch NAME`: makes machines that continue as the running machine is now, all or none.
 *
 * Prints their names, so that scripts can use them without --json.
 */
import type { Call } from "../call.ts";
import { findMachine } from "./find.ts";

export interface BranchOptions {
  readonly name?: readonly string[];
  readonly count?: number;
  readonly withSecrets?: boolean;
}

export async function run(call: Call, [reference = ""]: readonly string[], options: BranchOptions): Promise<void> {
  const { name: names = [], count, withSecrets } = options;
  const flotilla = call.flotilla();
  const { id } = await findMachine(flotilla, reference);
  const { clones } = await flotilla.createBranches(id, {
    ...(names.length > 0 ? { names: [...names] } : { count: count ?? 1 }),
    ...(withSecrets === true ? { secrets: "inherit" } : {}),
  });
  if (call.output.isJson) return call.output.json(clones);
  for (const clone of clones) call.output.line(clone.name ?? clone.id);
}
