/**
 * Marks nodes that have not reported for HEARTBEAT_LOST_MS as unreachable, so that their machines show it.
 *
 * Writes nodes.status only, through nodes/store.ts; a heartbeat sets it back. Several servers may find the same
 * silent node, and one write wins.
 *
 * Always: the absence of a node under maintenance raises no alarm. A server that has just started, or had no database until just now, marks no node: meanwhile no node could report.
 */
import { HEARTBEAT_LOST_MS } from "@flotilla/contract/link";
import type { Context } from "../context.ts";
import { noteOnNode } from "../events/store.ts";
import { markUnreachable } from "../nodes/store.ts";
import type { Reconciler } from "./driver.ts";

export function nodeReconciler(context: Context, lostAfterMs: number = HEARTBEAT_LOST_MS): Reconciler {
  let reportsSince = context.clock.monotonic();
  return {
    name: "nodes",
    purpose: "marks nodes that have stopped reporting as unreachable",
    periodMs: 2_000,
    wakeOn: [],
    async activate() {
      if (context.clock.monotonic() - reportsSince < lostAfterMs) return { errors: [], counts: {} };
      const silentSince = context.clock.now() - lostAfterMs;
      const lost = await markUnreachable(context.db, silentSince).catch((error: unknown) => {
        reportsSince = context.clock.monotonic();
        throw error;
      });
      for (const { id: nodeId, isInMaintenance } of lost) {
        await context.db.notify("nodes", nodeId);
        const why = isInMaintenance ? "is under maintenance" : "does not report";
        const message = `node ${nodeId} ${why}; the machine is shown again when the node is back`;
        await noteOnNode(context, { nodeId, level: isInMaintenance ? "info" : "warn", message });
      }
      const isAlarm = lost.some(({ isInMaintenance }) => !isInMaintenance);
      return { errors: [], counts: { lost: lost.length }, isRepair: isAlarm };
    },
  };
}
