/**
 * `flotilla machine branch NAME`: makes machines that continue as the running machine is now, or with
 * `--from` as a checkpoint, all or none.
 *
 * Prints their names, so that scripts can use them without --json.
 */
import type { MadeBranches } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { usage } from "../failure.ts";
import { findMachine } from "./find.ts";

export interface BranchOptions {
  readonly name?: readonly string[];
  readonly count?: number;
  readonly from?: string;
  readonly withSecrets?: boolean;
}

export async function run(call: Call, [reference]: readonly string[], options: BranchOptions): Promise<void> {
  const { clones } = await branches(call, reference, options);
  if (call.output.isJson) return call.output.json(clones);
  for (const clone of clones) call.output.line(clone.name ?? clone.id);
}

async function branches(call: Call, reference: string | undefined, options: BranchOptions): Promise<MadeBranches> {
  const { name: names = [], count, from, withSecrets } = options;
  const batch = names.length > 0 ? { names: [...names] } : { count: count ?? 1 };
  if ((reference === undefined) === (from === undefined))
    throw usage("name either a machine, or a checkpoint with --from", "`flotilla checkpoint ls` lists checkpoints");
  if (from !== undefined && withSecrets === true)
    throw usage(
      "a checkpoint has the secret variables of its machine, or there are none",
      "leave --with-secrets out: `flotilla machine checkpoint --with-secrets` decides it",
    );
  const flotilla = call.flotilla();
  if (from !== undefined) return await flotilla.branchCheckpoint(from, batch);
  const { id } = await findMachine(flotilla, reference ?? "");
  return await flotilla.createBranches(id, { ...batch, ...(withSecrets === true ? { secrets: "inherit" } : {}) });
}
