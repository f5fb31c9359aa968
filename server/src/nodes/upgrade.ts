/**
 * Requests the upgrade of nodes to the release that is installed on their hosts, as one operation.
 * upgrade-worker.ts does the work.
 *
 * Always: one such operation works at a time, so no two nodes are without their agent at the same time.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { MachineServices } from "../machines/services.ts";
import { beginOnce, writeOperation } from "../operations/begin.ts";
import { findRunningOperation } from "../operations/store.ts";
import type { OperationRecord } from "../family.ts";
import { findNode, listNodes, lockUpgrades } from "./store.ts";
import { vmmStepOf, VMMS_MS_MAX } from "./vmm-worker.ts";
import { refusalFor, upgradeStepOf, type UpgradeInput, UPGRADE_MS_MAX } from "./upgrade-worker.ts";

/** The operation's resource: all nodes are one, so that it is found whichever nodes it has. */
const RESOURCE = { kind: "fleet", id: "nodes" } as const;

export interface UpgradeRequest {
  readonly operationId: string;
  readonly tenantId: string;
  /** null: all nodes that report and can be upgraded. */
  readonly nodeIds: readonly string[] | null;
  /** Also the VMMs of their machines. */
  readonly vmms: boolean;
}

/** Throws a Refusal when a named node cannot be upgraded now, or none can. */
export const requestUpgrade = (
  { context }: Pick<MachineServices, "context">,
  request: UpgradeRequest,
): Promise<OperationRecord> => beginOnce(context, request, () => begin(context, request));

async function begin(context: MachineServices["context"], request: UpgradeRequest): Promise<OperationRecord> {
  const nodeIds = await chooseNodes(context.db, request.nodeIds);
  const { vmms } = request;
  const input: UpgradeInput = { nodeIds, vmms };
  const upgrade = {
    id: request.operationId,
    tenantId: request.tenantId,
    kind: "node upgrade",
    resource: { ...RESOURCE, name: nodeIds.length === 1 ? (nodeIds[0] ?? "") : `${nodeIds.length} nodes` },
    input,
    steps: nodeIds.flatMap((id) => [upgradeStepOf(id), ...(vmms ? [vmmStepOf(id)] : [])]),
    deadlineMs: nodeIds.length * (UPGRADE_MS_MAX + (vmms ? VMMS_MS_MAX : 0)),
  } as const;
  const operation = await context.db.transaction(async (transaction) => {
    // The first of several callers makes the operation and the others find it.
    await lockUpgrades(transaction);
    const running = await findRunningOperation(transaction, { kind: "node upgrade", resourceId: RESOURCE.id });
    // A repetition of the same request finds it by its id.
    if (running !== undefined && running.id !== request.operationId) {
      const text = `nodes are being upgraded by ${running.id}; wait until it has ended, or cancel it`;
      throw new Refusal("conflict", text);
    }
    return await writeOperation(context, transaction, upgrade);
  });
  await context.db.notify("operations", operation.id);
  return operation;
}

async function chooseNodes(
  db: Parameters<typeof listNodes>[0],
  wanted: readonly string[] | null,
): Promise<readonly string[]> {
  if (wanted === null) {
    const ready = (await listNodes(db)).filter(({ status }) => status === "ready");
    if (ready.length === 0) throw new Refusal("unavailable", "no node is ready; check that one runs");
    return ready.map(({ id }) => id);
  }
  const chosen = [...new Set(wanted)];
  for (const id of chosen) {
    const refusal = refusalFor(id, await findNode(db, id));
    if (refusal !== null) throw refusal;
  }
  return chosen;
}
