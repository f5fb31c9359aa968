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
import { readSecrets } from "./secrets.ts";

export interface BranchOptions {
  readonly name?: readonly string[];
  readonly count?: number;
  readonly from?: string;
  readonly withSecrets?: boolean;
  readonly secret?: readonly string[];
}

export async function run(call: Call, [reference]: readonly string[], options: BranchOptions): Promise<void> {
  const { clones } = await branches(call, reference, options);
  if (call.output.isJson) return call.output.json(clones);
  for (const clone of clones) call.output.line(clone.name ?? clone.id);
}

async function branches(call: Call, reference: string | undefined, options: BranchOptions): Promise<MadeBranches> {
  const { name: names = [], count, from, withSecrets, secret } = options;
  const batch = names.length > 0 ? { names: [...names] } : { count: count ?? 1 };
  if ((reference === undefined) === (from === undefined))
    throw usage("name either a machine, or a checkpoint with --from", "`flotilla checkpoint ls` lists checkpoints");
  if (from !== undefined && (withSecrets === true || secret !== undefined))
    throw usage(
      "a checkpoint has the secret variables of its machine, or there are none",
      "leave --with-secrets and --secret out: `flotilla machine checkpoint --with-secrets` decides it",
    );
  if (withSecrets === true && secret !== undefined)
    throw usage("--with-secrets keeps the values, and --secret gives new ones", "leave one of them out");
  const flotilla = call.flotilla();
  if (from !== undefined) return await flotilla.branchCheckpoint(from, batch);
  const { id } = await findMachine(flotilla, reference ?? "");
  const kept = withSecrets === true ? ({ secrets: "inherit" } as const) : {};
  const secretEnv = secret === undefined ? {} : { secretEnv: await readSecrets(call.world, secret) };
  return await flotilla.createBranches(id, { ...batch, ...kept, ...secretEnv });
}
