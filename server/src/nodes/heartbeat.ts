/**
 * Applies a node's heartbeat: its free resources, the observed state of its machines, its events.
 *
 * Always: events and runs are written once, however often they are sent. When a node reports again after a
 * long silence, its machines get an event. machines/apply-reports.ts applies the reports of machines,
 * machines/apply-runs.ts those of runs.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { AbsentMachine, Heartbeat } from "@flotilla/contract/link/link";
import { ABSENT_MAX } from "@flotilla/contract/link/reports";
import type { Context } from "../context.ts";
import { Batcher } from "../db/batcher.ts";
import type { MachineServices } from "../machines/services.ts";
import { applyReports } from "../machines/apply-reports.ts";
import { applyEndedRuns, applyOpenRuns } from "../machines/apply-runs.ts";
import { listAbsentOfNode } from "../machines/store.ts";
import { removeReportedCopies } from "../moves/copies.ts";
import { listEndedMoves } from "../moves/store.ts";
import { deleteDiscarded } from "../pools/make.ts";
import { insertNodeEvents, noteOnNodes } from "../events/store.ts";
import { applyImageReport } from "./image-store.ts";
import type { NodeCertificate } from "../auth/caller.ts";
import { checkLinkVersions } from "./link-version.ts";
import { type BeforeHeartbeat, type HeartbeatFacts, updateHeartbeats, writeUnknownMachines } from "./store.ts";

const LOGGED_MAX = 20;
/** More would only wait for each other. */
const STATEMENTS_MAX = 1;
const HEARTBEATS_MAX = 64;
/** How long a statement of several heartbeats waits for a lock: a start holds its node's for a commit. */
const LOCK_WAIT_MS = 1_000;
/** Unknown machines of one node that are kept for its operator. */
const UNKNOWN_MAX = 1_000;

export interface HeartbeatResult {
  /** Epoch milliseconds. */
  readonly acceptedAt: number;
  readonly acknowledgedRuns?: number;
  /** Machines to remove: reported ones, or any if the node was unreachable or its report is complete. */
  readonly absentMachines?: readonly AbsentMachine[];
  /** Moves that have ended, of those that the node reports: it removes their parts. */
  readonly endedMoves?: readonly string[];
}

/** Records the heartbeats of all nodes: those that come together share a statement. */
export type HeartbeatWriter = Batcher<HeartbeatFacts, BeforeHeartbeat>;

export const heartbeatWriter = ({ clock, db }: Context): HeartbeatWriter =>
  new Batcher({
    ...{ clock, statementsMax: STATEMENTS_MAX, itemsMax: HEARTBEATS_MAX, isRead: false },
    keyOf: ({ id }) => id,
    work: (heartbeats, isAlone) => updateHeartbeats(db, heartbeats, isAlone ? {} : { lockWaitMs: LOCK_WAIT_MS }),
  });

export async function applyHeartbeat(
  services: MachineServices & { readonly heartbeats: HeartbeatWriter },
  { nodeId, certificate }: { readonly nodeId: string; readonly certificate: NodeCertificate | null },
  heartbeat: Heartbeat | null,
): Promise<HeartbeatResult> {
  const { context } = services;
  if (heartbeat !== null) checkLinkVersions(nodeId, heartbeat.link);
  const now = context.clock.now();
  const clockAheadMs = typeof heartbeat?.sentAt === "number" ? Math.round(heartbeat.sentAt - now) : null;
  if (heartbeat?.runs) await applyEndedRuns(context, nodeId, heartbeat.runs);
  const before = await services.heartbeats.do({
    id: nodeId,
    agentBootId: heartbeat?.bootId ?? null,
    isComplete: heartbeat?.isComplete ?? false,
    resources: heartbeat?.resources ?? null,
    agent: heartbeat === null ? null : { ...heartbeat, linkVersion: heartbeat.link.version },
    clockAheadMs,
    certificateExpiresAt: certificate?.expiresAt ?? null,
    now,
  });
  if (before === undefined) throw new Refusal("not_found", `node ${nodeId} is not in the cluster; register it again`);
  if (before.status === "unreachable") {
    await context.db.notify("nodes", nodeId);
    await noteOnNodes(context, [{ nodeId, event: { type: "machine.nodeReturned", data: { nodeId } } }]);
  }
  if (heartbeat === null) return { acceptedAt: now };
  const { runs, images, events, incomingMoves, bootId: agentBootId } = heartbeat;
  const node = { id: nodeId, lastReportAt: before.lastHeartbeatAt, isRestored: before.isRestored };
  const acknowledgedRuns = runs === null ? undefined : await applyOpenRuns(context, node, runs);
  if (images !== null) {
    await applyImageReport(context.db, { nodeId, agentBootId, report: images });
    // Placement caches which nodes have an image.
    await context.db.notify("nodes", nodeId);
  }
  const isBack = before.status === "unreachable" || heartbeat.isComplete;
  // Before its lease is renewed. A failure refuses the heartbeat, and the next one is complete.
  if (isBack) await deleteDiscarded(services, nodeId);
  // It may have waited for a server that was stopped: then its clock seems to be behind what it was.
  const writtenAt = now - Math.max(0, (before.clockAheadMs ?? 0) - (clockAheadMs ?? before.clockAheadMs ?? 0));
  const reported = await handleMachines(services, { ...before, id: nodeId, writtenAt }, heartbeat);
  // The node may not know that its machines were replaced, and need not report machines that it has not
  // begun.
  const absentMachines = isBack ? await listAbsentOfNode(context.db, nodeId, { now, limit: ABSENT_MAX }) : reported;
  const endedMoves = incomingMoves.length === 0 ? [] : await listEndedMoves(context.db, incomingMoves);
  if (events.length > 0) await insertNodeEvents(context, { nodeId, agentBootId, events });
  return {
    acceptedAt: now,
    ...(acknowledgedRuns === undefined ? {} : { acknowledgedRuns }),
    ...(absentMachines.length === 0 ? {} : { absentMachines }),
    ...(endedMoves.length === 0 ? {} : { endedMoves }),
  };
}

/**
 * Applies the report of machines, removes what moves left on the node, and records other machines that it
 * does not own. Returns the machines that it is to remove.
 */
async function handleMachines(
  services: Pick<MachineServices, "cache" | "context" | "inBackground" | "link" | "nodeWaitMs">,
  node: {
    readonly id: string;
    readonly unknownMachines: readonly string[];
    readonly isRestored: boolean;
    readonly writtenAt: number;
  },
  heartbeat: Heartbeat,
): Promise<readonly AbsentMachine[]> {
  const { unknown, absent } = await applyReports(services, node, heartbeat);
  const copies = unknown.length === 0 ? new Set() : await removeReportedCopies(services, node.id, unknown);
  const others = unknown.filter((id) => !copies.has(id));
  const reported = new Set(heartbeat.machines.map(({ machineId }) => machineId));
  const unchanged = heartbeat.isComplete ? [] : node.unknownMachines.filter((id) => !reported.has(id));
  const next = [...new Set([...unchanged, ...others])].toSorted().slice(0, UNKNOWN_MAX);
  if (next.join() === node.unknownMachines.join()) return absent;
  await writeUnknownMachines(services.context.db, node.id, next);
  const machines = next.slice(0, LOGGED_MAX);
  if (next.length === 0) services.context.log.info({ nodeId: node.id }, "node reports no unknown machine any more");
  else services.context.log.warn({ nodeId: node.id, machines, count: next.length }, "node reports unknown machines");
  return absent;
}
