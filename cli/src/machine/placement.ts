/**
 * How the explanation of a placement is displayed: the decision, then each node with its score or what
 * excludes it.
 */
import type { PlacementExplanation } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { clean } from "../table.ts";

const percent = (share: number): string => `${Math.round(share * 100)} %`;

export function showPlacement({ output }: Call, explanation: PlacementExplanation): void {
  if (output.isJson) return output.json(explanation);
  const { nodeId: home, hasDisk, reason, nodes, advice } = explanation;
  output.line(reason);
  if (advice !== null) output.line(`what to do: ${advice}`);
  if (nodes.length === 0) return;
  output.line();
  output.table(
    ["NODE", "PROMISED", "PACKING", "BUSY", "PRESSURE", "IMAGE", "SCORE", "EXCLUDED BECAUSE"],
    nodes.map(({ nodeId, score, reason: why }) => {
      const name = hasDisk && nodeId === home ? `${nodeId} (disk)` : nodeId;
      if (score === null) return [name, "", "", "", "", "", "", clean(why ?? "")];
      const image = score.image === 0 ? "there" : "fetched";
      return [
        name,
        percent(score.promised),
        score.packing.toFixed(2),
        percent(score.busy),
        percent(score.pressure),
        // A disk brings its image along.
        hasDisk ? "" : image,
        score.total.toFixed(2),
        "",
      ];
    }),
  );
  output.note(leftText(explanation));
  if (hasDisk && nodes.length > 1)
    output.note(
      `it starts only on node ${home}, which has its disk; the others show where \`flotilla machine move\` may take it`,
    );
}

/** How many nodes were left by each filter that excluded some. Pure. */
export function leftText({ nodes, filters }: Pick<PlacementExplanation, "nodes" | "filters">): string {
  let before = nodes.length;
  const steps: string[] = [];
  for (const { name, left } of filters) {
    if (left < before) steps.push(`${left} left by ${name}`);
    before = left;
  }
  return `nodes: ${nodes.length}${steps.length === 0 ? ", no filter excludes one" : `; ${steps.join(", ")}`}`;
}
