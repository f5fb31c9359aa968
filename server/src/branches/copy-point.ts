/**
 * Copies the point of a branch to another node, once for all clones that begin there. The files travel as
 * those of a machine at rest that moves.
 *
 * Always:
 * - Only the target says what is missing, so a copy continues on any server, after any interruption.
 * - Memory is copied only to a node that can load it.
 * - Nodes that do not answer for PATIENCE_MS without a byte having arrived end it.
 *
 * What has arrived of a copy whose operation has ended is removed by its node (`endedMoves`), and a copy that
 * is complete as any other point (points-loop.ts).
 */
import { Refusal } from "@flotilla/contract/errors";
import type { OutgoingPoint } from "@flotilla/contract/link/points";
import type { OperationRun } from "../family.ts";
import { ContentDiffers } from "../link/moves.ts";
import type { NodeAddress } from "../link/node-link.ts";
import { beginCopy, commitCopy, describePoint, relayPointFile } from "../link/points.ts";
import { NodeUnreachable } from "../link/refusals.ts";
import type { MachineServices } from "../machines/services.ts";
import { MEMORY_FORMAT_LABEL } from "../placement/place.ts";
import { notePointMade, type PointRow } from "./store.ts";

const PATIENCE_MS = 30_000;
const RETRY_MS = 250;
/** More often than this, the source's disk is faulty. */
const CONTENT_TRIES_MAX = 3;

type CopyServices = Pick<MachineServices, "context" | "link" | "nodes">;

export interface PointCopy {
  readonly from: PointRow;
  readonly to: PointRow;
  readonly say: (message: string) => void;
}

/** Resolves when the copy is a point of its node. Throws a Refusal that says why it is not. */
export async function copyPoint(
  services: CopyServices,
  { operation, signal }: Pick<OperationRun, "operation" | "signal">,
  { from, to, say }: PointCopy,
): Promise<void> {
  const { clock } = services.context;
  const nodes = { source: await addressOf(services, from), target: await addressOf(services, to) };
  const call = { tenantId: operation.tenantId, pointId: from.id, copyId: to.id, moveId: operation.id, signal };
  const state = { bytes: 0, movedAt: clock.monotonic(), differed: 0 };
  const onBytes = (bytes: number): void => {
    state.movedAt = clock.monotonic();
    say(`to node ${to.nodeId}: ${((state.bytes + bytes) / 1e6).toFixed(0)} MB`);
  };
  for (;;) {
    signal.throwIfAborted();
    try {
      const found = await describePoint(services.link, nodes.source, call);
      await refuseUnloadable(services, found, to.nodeId);
      const { awaited, isMachine } = await beginCopy(services.link, nodes.target, call, found);
      for (const file of awaited) state.bytes += await relayPointFile(services.link, nodes, call, file, { onBytes });
      if (!isMachine) await commitCopy(services.link, nodes.target, call, found.facts);
      return await noteMade(services, to, found);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof ContentDiffers && (state.differed += 1) < CONTENT_TRIES_MAX) continue;
      if (error instanceof ContentDiffers)
        throw new Refusal("unavailable", `the copy is not what was sent, ${CONTENT_TRIES_MAX} times: check both disks`);
      const isOver = clock.monotonic() - state.movedAt > PATIENCE_MS;
      if (!(error instanceof NodeUnreachable) || isOver) throw error;
    }
    await clock.sleep(RETRY_MS, signal);
  }
}

/** Throws a Refusal when the node cannot load the memory. */
async function refuseUnloadable({ nodes }: CopyServices, { memory }: OutgoingPoint, nodeId: string): Promise<void> {
  if (memory === null || (await nodes.find(nodeId))?.labels[MEMORY_FORMAT_LABEL] === memory.format) return;
  throw new Refusal(
    "conflict",
    `node ${nodeId} cannot load the memory: Flotilla, QEMU, the accelerator or the processor differ from those with ` +
      "which the machine was started",
  );
}

async function noteMade({ context }: CopyServices, { id }: PointRow, { facts, files, memory }: OutgoingPoint) {
  const memoryBytes = memory?.bytes ?? 0;
  const bytes = files.reduce((sum, file) => sum + file.bytes, memoryBytes);
  await notePointMade(context.db, id, { bytes, memoryBytes, pausedMs: facts.pausedMs, madeAt: facts.madeAt });
}

async function addressOf({ nodes }: CopyServices, { nodeId }: PointRow): Promise<NodeAddress> {
  const node = await nodes.find(nodeId);
  if (node === undefined) throw new Refusal("unavailable", `node ${nodeId} was removed`);
  return { nodeId, address: node.address };
}
