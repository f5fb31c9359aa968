/**
 * Applies a node's heartbeat: that it runs, its free resources, the observed state of its machines, its events.
 *
 * Always: events are written once, however often they are sent. When a node reports again after a long silence, its
 * machines get an event. machines/take-reports.ts applies the reports of machines.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Heartbeat } from "@flotilla/contract/link";
import { readHeartbeat } from "@flotilla/contract/link/generated";
import { InvalidMessage } from "@flotilla/contract/link/read";
import type { MachineServices } from "../machines/services.ts";
import { takeReports } from "../machines/take-reports.ts";
import { insertNodeEvents, noteOnNode } from "../events/store.ts";
import { checkLinkVersions } from "./link-version.ts";
import { updateHeartbeat } from "./store.ts";

export async function takeHeartbeat(services: MachineServices, nodeId: string, body: unknown): Promise<number> {
  const { context } = services;
  const heartbeat = body === undefined || body === null ? null : heartbeatOf(body);
  if (heartbeat !== null) checkLinkVersions(nodeId, heartbeat.link);
  const now = context.clock.now();
  const before = await updateHeartbeat(context.db, {
    id: nodeId,
    agentBootId: heartbeat?.bootId ?? null,
    resources: heartbeat?.resources ?? null,
    now,
  });
  if (before === undefined) throw new Refusal("not_found", `node ${nodeId} is not in the cluster; register it again`);
  if (before === "unreachable") {
    await context.db.notify("nodes", nodeId);
    await noteOnNode(context, { nodeId, level: "info", message: `node ${nodeId} reports again` });
  }
  if (heartbeat !== null) await takeReports(services, nodeId, heartbeat);
  if (heartbeat !== null && heartbeat.events.length > 0)
    await insertNodeEvents(context, { nodeId, agentBootId: heartbeat.bootId, events: heartbeat.events });
  return now;
}

/** Throws a Refusal that says what does not fit. */
function heartbeatOf(body: unknown): Heartbeat {
  try {
    return readHeartbeat(body);
  } catch (error) {
    if (error instanceof InvalidMessage) throw new Refusal("invalid_body", `heartbeat does not fit: ${error.message}`);
    throw error;
  }
}
