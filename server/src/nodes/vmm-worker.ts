/**
 * Has the machines of a node run in VMMs of the program that is installed there, as far as their owners
 * permit it (docs/decisions/0065-new-vmms.md). A step of an upgrade of nodes.
 *
 * Always:
 * - At most MACHINES_AT_A_TIME of a node are replaced at the same time.
 * - The owner's choice for moves applies: `migrate` while the machine runs, `restart` by a restart, `stop`
 *   leaves it.
 * - A machine that is not replaced runs on, and is named with the reason. The step succeeds all the same.
 *
 * What is to be done follows from what the node reports, so another server continues the step of one that
 * died: a machine that was replaced is not outdated any more.
 */
import { mapAtMost } from "@flotilla/base/concurrency";
import { Refusal } from "@flotilla/contract/errors";
import { replaceVmm } from "../link/vmm.ts";
import { NodeUnreachable } from "../link/refusals.ts";
import type { MachineRecord } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { listMachinesOfNodeById } from "../machines/store.ts";
import type { OperationRun } from "../family.ts";
import { findNode } from "./store.ts";
import { type ReplacedMachine, vmmProgressText, vmmResultText } from "./vmm-texts.ts";

const MACHINES_AT_A_TIME = 2;
/** Longer than all machines of a large host take. */
export const VMMS_MS_MAX = 24 * 3_600_000;

export const vmmStepOf = (nodeId: string): string => `replace VMMs of ${nodeId}`;

export async function replaceVmmsOf(
  services: Pick<MachineServices, "context" | "link">,
  { run, nodeId }: { readonly run: OperationRun; readonly nodeId: string },
  say: (message: string) => void,
): Promise<string> {
  const { db } = services.context;
  const node = await findNode(db, nodeId);
  if (node === undefined) throw new Refusal("not_found", `node ${nodeId} is not in the cluster any more`);
  const outdated = node.outdatedVmms;
  if (outdated === null)
    throw new Refusal("conflict", `node ${nodeId} has not reported yet which machines run in outdated VMMs; repeat it`);
  const results: ReplacedMachine[] = [];
  await mapAtMost(MACHINES_AT_A_TIME, outdated, async (machineId) => {
    run.signal.throwIfAborted();
    results.push(await replaceOne(services, { run, nodeId, address: node.address, machineId }));
    say(vmmProgressText(results, outdated.length));
  });
  return vmmResultText(results);
}

interface One {
  readonly run: OperationRun;
  readonly nodeId: string;
  readonly address: string;
  readonly machineId: string;
}

async function replaceOne(
  { context, link }: Pick<MachineServices, "context" | "link">,
  { run, nodeId, address, machineId }: One,
): Promise<ReplacedMachine> {
  // Its owner may have changed it since the step began.
  const found = await listMachinesOfNodeById(context.db, nodeId, [machineId]);
  const machine = found.find(({ deletedAt }) => deletedAt === null);
  const left = (reason: string): ReplacedMachine => ({ machineId, kind: "left", reason });
  if (machine === undefined) return { machineId, kind: "done" };
  const how = howReplaced(machine);
  if (typeof how !== "string") return left(how.reason);
  try {
    const answer = await replaceVmm(link, { nodeId, address }, { machineId, how, signal: run.signal });
    if (answer.outcome === "refused") return left(answer.reason ?? "the node does not say why");
    if (answer.outcome === "ended" && answer.reason !== null) return left(`it ended in the middle: ${answer.reason}`);
    if (answer.outcome === "replaced") return { machineId, kind: "replaced", pauseMs: answer.pauseMs };
    return { machineId, kind: "done" };
  } catch (error) {
    run.signal.throwIfAborted();
    if (error instanceof NodeUnreachable || error instanceof Refusal) return left(error.message);
    throw error;
  }
}

/** How the owner permits it; or why not. */
function howReplaced({
  moveId,
  disruption,
}: Pick<MachineRecord, "moveId"> & { readonly disruption: MachineRecord["disruption"] }):
  | "live"
  | "restart"
  | { readonly reason: string } {
  if (moveId !== null) return { reason: "it moves" };
  switch (disruption) {
    case "migrate":
      return "live";
    case "restart":
      return "restart";
    default:
      return { reason: "its owner permits no restart: it gets a new VMM with its next start" };
  }
}
