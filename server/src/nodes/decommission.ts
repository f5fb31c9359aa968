/**
 * Removes a node that leaves the fleet for good: its row, its credential and what it has reported.
 *
 * Always:
 * - A node that has the disk of a machine is not removed, and neither is one that may be given machines.
 * - The removal is recorded as a revocation, so an earlier join token does not admit the node again, and its
 *   open connections end as those of a revoked node do.
 * - Runs that it has not ended end when it was last seen.
 *
 * One transaction. Deleted machines whose deletion the node has not confirmed count as deleted: what the host
 * still has of them is the operator's to erase.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import { endRunsOfNode } from "../machines/run-store.ts";
import { listDisksOfNode, releaseDeletedMachines } from "../machines/store.ts";
import { notFound } from "../missing.ts";
import { revokeNode } from "./revocation-store.ts";
import { deleteNode, lockNode } from "./store.ts";

const LISTED_MAX = 20;

/** Throws a Refusal that says what keeps the node in the fleet. */
export async function decommissionNode({ db, clock }: Context, id: string): Promise<void> {
  await db.transaction(async (transaction) => {
    const node = await lockNode(transaction, id);
    if (node === undefined) throw notFound("node", id);
    const disks = await listDisksOfNode(transaction, id);
    if (disks.length > 0) throw new Refusal("conflict", stillThere(id, disks));
    if (node.status === "ready" || node.status === "draining") {
      const text = `node ${id} is ${node.status}, so machines may still use it; drain it first, and remove it when it is drained`;
      throw new Refusal("conflict", text);
    }
    await revokeNode(transaction, id, clock.now());
    await endRunsOfNode(transaction, id, node.lastHeartbeatAt ?? node.registeredAt);
    await releaseDeletedMachines(transaction, id);
    await deleteNode(transaction, id);
  });
  await db.notify("nodes", id);
}

interface Disk {
  readonly id: string;
  readonly name: string | null;
  readonly tenantId: string;
}

function stillThere(nodeId: string, disks: readonly Disk[]): string {
  const shown = disks.slice(0, LISTED_MAX).map(({ id, name, tenantId }) => `${id} (${name ?? "no name"}, ${tenantId})`);
  const more = disks.length > shown.length ? `, and ${disks.length - shown.length} more` : "";
  const count = disks.length === 1 ? "1 machine" : `${disks.length} machines`;
  return `node ${nodeId} has the disks of ${count}: ${shown.join(", ")}${more}; move or delete them first`;
}
