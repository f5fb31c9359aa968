/**
 * `flotilla node upgrade NODE…` or `--rolling`: restarts agents as the release that is installed on their
 * hosts, one after the other. `--vmms`: afterwards the machines of each node get VMMs of the program that is
 * installed there.
 *
 * The server does the work: Ctrl-C ends the waiting, not the upgrade.
 */
import { usage } from "../failure.ts";
import type { Call } from "../call.ts";
import { watchOperation } from "../operation/watch.ts";
import { EXIT_INTERRUPTED } from "../stoppable.ts";

export interface UpgradeOptions {
  readonly rolling?: boolean;
  readonly detach?: boolean;
  readonly vmms?: boolean;
}

export async function run(call: Call, ids: readonly string[], { rolling, detach, vmms }: UpgradeOptions) {
  if ((rolling === true) === ids.length > 0)
    throw usage("node upgrade needs nodes, or --rolling for all that are ready");
  const flotilla = call.flotilla();
  const begun = await flotilla.upgradeNodes({
    ...(rolling === true ? {} : { nodeIds: [...ids] }),
    ...(vmms === true ? { vmms } : {}),
  });
  const operation = detach === true ? begun : await watchOperation(call, flotilla, begun);
  if (operation === null) return EXIT_INTERRUPTED;
  if (call.output.isJson) call.output.json(operation);
  else if (detach === true) call.output.line(operation.id);
  else
    for (const { name, message, status } of operation.steps) call.output.line(`${name}: ${message ?? wordOf(status)}`);
  return 0;
}

const wordOf = (status: string): string => (status === "succeeded" ? "done" : "not done");
