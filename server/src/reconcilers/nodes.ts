/**
 * Marks nodes that have not reported for HEARTBEAT_LOST_MS as unreachable, so that their machines show it.
 *
 * Writes nodes.status only, through nodes/store.ts; a heartbeat sets it back. Several servers may find the same
 * silent node, and one write wins.
 *
 * Always: a server that has just started marks no node: while no server ran, no node could report.
 */
import { HEARTBEAT_LOST_MS } from "@flotilla/contract/link";
import type { Context } from "../context.ts";
import { noteOnNode } from "../events/store.ts";
import { markUnreachable } from "../nodes/store.ts";
import type { Reconciler } from "./driver.ts";

export function nodeReconciler(context: Context, lostAfterMs: number = HEARTBEAT_LOST_MS): Reconciler {
  const startedAt = context.clock.monotonic();
  return {
    name: "nodes",
    purpose: "marks nodes that have stopped reporting as unreachable",
    periodMs: 2_000,
    wakeOn: [],
    async activate() {
      if (context.clock.monotonic() - startedAt < lostAfterMs) return { errors: [], counts: {} };
      const lost = await markUnreachable(context.db, context.clock.now() - lostAfterMs);
      for (const nodeId of lost) {
        await context.db.notify("nodes", nodeId);
        const message = `node ${nodeId} does not report; the machine is shown again when the node is back`;
        await noteOnNode(context, { nodeId, level: "warn", message });
      }
      return { errors: [], counts: { lost: lost.length }, isRepair: lost.length > 0 };
    },
  };
}
