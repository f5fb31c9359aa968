/**
 * Which nodes a server or an ingress that has just started cannot reach yet. They learn of an ingress with a
 * heartbeat, try a server that they know again, and then park connections.
 *
 * Always: a node that cannot connect holds it back for PATIENCE_MS, and not longer.
 */
import type { Context } from "../context.ts";
import { listParkingNodes } from "./ingress-store.ts";
import type { ParkedConnections } from "./parked.ts";

/** Two heartbeats and the certificate before them, on a host that is busy. */
const PATIENCE_MS = 30_000;
/** How many nodes are named. */
const NAMED_MAX = 3;

/** The function that is returned says what is missing, for `/readyz`; null: nothing. */
export function nodesAwaitedBy(
  { db, clock }: Pick<Context, "db" | "clock">,
  parked: Pick<ParkedConnections, "countOf">,
): () => Promise<string | null> {
  const startedAt = clock.monotonic();
  return async () => {
    if (clock.monotonic() - startedAt >= PATIENCE_MS) return null;
    const missing = (await listParkingNodes(db)).filter((id) => parked.countOf(id) === 0);
    if (missing.length === 0) return null;
    const others = missing.length - NAMED_MAX;
    const named = missing.slice(0, NAMED_MAX).join(", ");
    return `nodes have not connected here yet: ${named}${others > 0 ? ` and ${others} others` : ""}`;
  };
}
