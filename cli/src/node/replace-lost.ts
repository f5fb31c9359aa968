/**
 * `flotilla node replace-lost [NODE…]`: replaces what can be replaced of nodes that do not report. Without
 * nodes: of all that are unreachable and not under maintenance. `--dry-run` shows it.
 */
import { renderSpan } from "@flotilla/base/span";
import type { LostNodes } from "@flotilla/sdk";
import type { Call } from "../call.ts";

export interface ReplaceLostOptions {
  readonly dryRun?: boolean;
}

export async function run(call: Call, ids: readonly string[], { dryRun }: ReplaceLostOptions): Promise<void> {
  const flotilla = call.flotilla();
  const lost =
    dryRun === true
      ? await flotilla.listLostNodes()
      : await flotilla.replaceLostNodes(ids.length === 0 ? {} : { nodeIds: [...ids] });
  const shown = { ...lost, nodes: lost.nodes.filter(({ nodeId }) => ids.length === 0 || ids.includes(nodeId)) };
  if (call.output.isJson) return call.output.json(shown);
  if (shown.reason !== null) call.output.note(`nothing is replaced by itself: ${shown.reason}`);
  if (shown.nodes.length === 0) return call.output.note("no such node is unreachable");
  call.output.table(HEADS, rows(shown, call.world.clock.now(), dryRun === true));
}

const HEADS = ["NODE", "LAST SEEN", "MACHINES", "REPLACED", "WAIT FOR THE NODE"];

/** Pure. */
const rows = ({ nodes }: LostNodes, now: number, isDryRun: boolean): readonly (readonly string[])[] =>
  nodes.map(({ nodeId, lastHeartbeatAt, decision, reason, replaceable, staying }) => [
    nodeId,
    lastHeartbeatAt === null ? "never" : `${renderSpan(now - Date.parse(lastHeartbeatAt))} ago`,
    decision === "replaced"
      ? "are replaced"
      : isDryRun
        ? `would be replaced (held: ${reason ?? ""})`
        : `held: ${reason ?? ""}`,
    String(replaceable),
    String(staying),
  ]);
