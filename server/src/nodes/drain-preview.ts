/**
 * What a drain of a node would do now: which machines would move where, which would stay and why, how many
 * bytes, how long.
 *
 * Changes and reserves nothing. Always: order, placement and reasons are computed by the functions that the
 * drain uses.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { OutgoingMachine } from "@flotilla/contract/link/moves";
import type { DrainPlan } from "@flotilla/contract/nodes";
import { describeOutgoing } from "../link/moves.ts";
import { NodeUnreachable } from "../link/refusals.ts";
import { type MachineRecord, nodeOf } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { isActive } from "../machines/state.ts";
import { listMachinesOfNode } from "../machines/store.ts";
import { shownState } from "../machines/view.ts";
import { fileBytes } from "../moves/copy.ts";
import { effectOf, preferredFormat } from "../moves/memory.ts";
import { MOVES_PER_NODE_MAX } from "../moves/store.ts";
import { targetRequest } from "../moves/target.ts";
import { notDrainable } from "./drain.ts";
import { drained } from "./drain-worker.ts";
import { estimateMoves, inTurns, moveSeconds } from "./drain-plan.ts";
import { findNode } from "./store.ts";

/** Time for all answers of the node about its machines. */
const NODE_WAIT_MS = 20_000;
const ASKED_AT_A_TIME = 8;

interface Sized {
  readonly record: MachineRecord;
  /** Why the node cannot say what the machine has. */
  readonly fault: string | null;
  readonly outgoing: OutgoingMachine | null;
}

/** Throws a Refusal when the node does not exist or does not answer. */
export async function planDrain(
  services: Pick<MachineServices, "context" | "link" | "nodes">,
  nodeId: string,
  signal: AbortSignal,
): Promise<DrainPlan> {
  const { db } = services.context;
  const node = await findNode(db, nodeId);
  if (node === undefined || node.status === "revoked" || node.status === "unreachable")
    throw await notDrainable(services.context, nodeId);
  const records = (await listMachinesOfNode(db, nodeId)).filter(({ deletedAt }) => deletedAt === null);
  const turns = inTurns(records.map(drained));
  const sized = await sizesOf(
    services,
    turns.map(({ record }) => record),
    signal,
  );
  const placed = await place(services, nodeId, sized);
  const moves: DrainPlan["moves"] = [];
  const blocked: DrainPlan["blocked"] = [];
  const bases = new Set<string>();
  for (const [index, { record, fault, outgoing }] of sized.entries()) {
    const placement = placed[index];
    const { id: machineId, name, tenantId } = record;
    const shown = { machineId, name, tenantId, state: shownState(record).state };
    if (outgoing === null || placement === undefined)
      blocked.push({ ...shown, reason: fault ?? "it is unknown there" });
    else if (placement.nodeId === null) blocked.push({ ...shown, reason: placement.reason });
    else {
      const toNodeId = record.moveNodeId ?? placement.nodeId;
      const labels = (await services.nodes.find(toNodeId))?.labels ?? {};
      const { memoryFormat } = outgoing;
      const { effect, reason } = effectOf({ machine: record, memoryFormat, target: { id: toNodeId, labels } });
      const files = effect === "migrate" ? outgoing : { ...outgoing, memory: null };
      const bytes = fileBytes(files) + baseBytes(outgoing, toNodeId, bases);
      moves.push({ ...shown, toNodeId, disruption: effect, reason, bytes, seconds: moveSeconds(bytes) });
    }
  }
  const each = moves.map(({ bytes }) => bytes);
  const total = each.reduce((sum, bytes) => sum + bytes, 0);
  return { nodeId, moves, blocked, bytes: total, ...estimateMoves(each, MOVES_PER_NODE_MAX) };
}

/** The base is sent with the first machine of an image that goes to a node; the node may have it already. */
function baseBytes({ image, root }: OutgoingMachine, toNodeId: string, bases: Set<string>): number {
  const key = `${toNodeId} ${image?.digest}`;
  if (bases.has(key)) return 0;
  bases.add(key);
  return root?.bytes ?? 0;
}

/** The node for each of the machines, in this order. */
async function place(services: Pick<MachineServices, "nodes">, nodeId: string, sized: readonly Sized[]) {
  const leaving = await Promise.all(
    sized.map(async ({ record, outgoing }) => ({
      request: {
        ...(await targetRequest(services, record, outgoing === null ? 0 : fileBytes(outgoing))),
        memoryFormat: preferredFormat(record, outgoing?.memoryFormat ?? null),
      },
      isActive: isActive(record) && outgoing !== null,
    })),
  );
  return await services.nodes.planElsewhere(nodeId, leaving);
}

async function sizesOf(
  services: Pick<MachineServices, "link">,
  records: readonly MachineRecord[],
  signal: AbortSignal,
): Promise<readonly Sized[]> {
  const late = AbortSignal.timeout(NODE_WAIT_MS);
  const either = AbortSignal.any([signal, late]);
  const sized: Sized[] = [];
  for (let at = 0; at < records.length; at += ASKED_AT_A_TIME)
    sized.push(
      ...(await Promise.all(
        records.slice(at, at + ASKED_AT_A_TIME).map((record) => sizeOf(services, record, { late, signal: either })),
      )),
    );
  return sized;
}

async function sizeOf(
  { link }: Pick<MachineServices, "link">,
  record: MachineRecord,
  { late, signal }: { readonly late: AbortSignal; readonly signal: AbortSignal },
): Promise<Sized> {
  const node = nodeOf(record);
  try {
    const outgoing = await describeOutgoing(link, node, { machineId: record.id, signal }, { hasContent: false });
    return { record, outgoing, fault: null };
  } catch (error) {
    if (late.aborted) throw new NodeUnreachable(node.nodeId, error);
    if (error instanceof NodeUnreachable || !(error instanceof Refusal)) throw error;
    return { record, outgoing: null, fault: error.message };
  }
}
