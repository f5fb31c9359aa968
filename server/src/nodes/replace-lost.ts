/**
 * What is replaced of nodes that do not report, as an operator sees it, and the operator's decision that it
 * is.
 *
 * Always: only machines that may be replaced are, whatever is decided: a machine without a fence may run on
 * its node.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { LostNodes } from "@flotilla/contract/nodes";
import type { Context } from "../context.ts";
import { judgeLoss } from "./brake.ts";
import { listJudged, listLost, type LostNode, markLost } from "./loss-store.ts";

const instant = (at: number | null): string | null => (at === null ? null : new Date(at).toISOString());

const lostNode = (node: LostNode): LostNodes["nodes"][number] => ({
  nodeId: node.id,
  lastHeartbeatAt: instant(node.lastHeartbeatAt),
  decision: node.lostAt !== null ? "replaced" : "held",
  decidedAt: instant(node.lostAt ?? node.heldAt),
  reason:
    node.lostAt !== null
      ? null
      : (node.heldReason ?? (node.isInMaintenance ? "it is under maintenance" : "it is not decided yet")),
  replaceable: node.replaceable,
  staying: node.staying,
});

/** Every unreachable node, and what the command would do. */
export async function readLost({ db, clock }: Context): Promise<LostNodes> {
  const [nodes, judged] = await Promise.all([listLost(db), listJudged(db)]);
  const judgement = judgeLoss(judged, { now: clock.now(), sinceMs: Number.POSITIVE_INFINITY });
  const held = nodes.find(({ heldReason }) => heldReason !== null)?.heldReason ?? null;
  const reason = held ?? (judgement?.verdict === "hold" ? judgement.reason : null);
  return { isHeld: reason !== null, reason, nodes: nodes.map(lostNode) };
}

/**
 * Decides it for these nodes, or for all that are unreachable and not under maintenance. The pools do it
 * then. Throws a Refusal for a node that reports or does not exist.
 */
export async function replaceLost(context: Context, nodeIds: readonly string[] | null): Promise<LostNodes> {
  const { db, clock, log } = context;
  const unreachable = await listLost(db);
  const stranger = nodeIds?.find((id) => !unreachable.some((node) => node.id === id));
  if (stranger !== undefined)
    throw new Refusal(
      "conflict",
      `node ${stranger} is not unreachable, so its machines are not replaced; GET /v1/nodes shows their status`,
      { call: "GET /v1/nodes" },
    );
  const meant = nodeIds ?? unreachable.filter(({ isInMaintenance }) => !isInMaintenance).map(({ id }) => id);
  const lost = await markLost(db, meant, clock.now());
  if (lost.length > 0) {
    log.warn({ nodes: lost.map(({ id }) => id) }, "an operator has what can be replaced of these nodes replaced");
    await db.notify("pools", "");
  }
  return await readLost(context);
}
