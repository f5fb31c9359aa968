/**
 * How the explanation of a placement is displayed: the decision, then each node with its score or what excludes it.
 */
import type { PlacementExplanation } from "@flotilla/sdk";
import type { Call } from "../call.ts";

const percent = (share: number): string => `${Math.round(share * 100)} %`;

export function showPlacement({ output }: Call, explanation: PlacementExplanation): void {
  if (output.isJson) return output.json(explanation);
  const { reason, filters, nodes } = explanation;
  output.line(reason);
  if (nodes.length === 0) return;
  output.line();
  output.table(
    ["NODE", "PROMISED", "PACKING", "BUSY", "IMAGE", "SCORE", "EXCLUDED BECAUSE"],
    nodes.map(({ nodeId, score, reason: why }) =>
      score === null
        ? [nodeId, "", "", "", "", "", why ?? ""]
        : [
            nodeId,
            percent(score.promised),
            score.packing.toFixed(2),
            percent(score.busy),
            score.image === 0 ? "there" : "fetched",
            score.total.toFixed(2),
            "",
          ],
    ),
  );
  let before = nodes.length;
  const steps: string[] = [];
  for (const { name, left } of filters) {
    if (left < before) steps.push(`after ${name} ${left}`);
    before = left;
  }
  if (steps.length > 0) output.note(`nodes: ${nodes.length}, ${steps.join(", ")}`);
}
