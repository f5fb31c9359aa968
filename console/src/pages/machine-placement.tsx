/**
 * Why a machine is on its node, and where else it fits. For operators.
 */
import type { MachineInfo, PlacementExplanation } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api } from "../api.ts";
import { Badge, Button, Cli, ErrorNote, Loading, Panel } from "../ui/parts.tsx";
import { MachineDialogs } from "./machine-actions.tsx";

export function PlacementTab({ machine }: { readonly machine: MachineInfo }) {
  const [isMoving, setIsMoving] = useState(false);
  const read = useQuery({
    queryKey: ["nodes", "placement", machine.id],
    queryFn: ({ signal }) => api.explainMachinePlacement({ query: { machineId: machine.id }, signal }),
  });
  return (
    <>
      <ErrorNote error={read.error} retry={() => void read.refetch()} />
      {read.isPending && <Loading what="the placement" />}
      {read.data !== undefined && <Explanation explanation={read.data} />}
      <div className="actions">
        {machine.nodeId !== null && <Button onClick={() => setIsMoving(true)}>Move it</Button>}
      </div>
      <Cli line={`flotilla machine explain ${machine.name ?? machine.id}`} />
      <MachineDialogs machine={machine} asking={isMoving ? "move" : null} onClose={() => setIsMoving(false)} />
    </>
  );
}

const FILTERS = {
  status: "are ready",
  cordon: "are not cordoned",
  image: "can have the image",
  architecture: "have the processors",
  labels: "have the labels",
  size: "are large enough",
  processors: "have processors left",
  promisedMemory: "have promised less memory",
  memory: "have memory left",
  pressure: "are not under pressure",
  disk: "have disk left",
} as const satisfies Record<PlacementExplanation["filters"][number]["name"], string>;

/** What placement would decide now, filter by filter and node by node. */
export function Explanation({ explanation }: { readonly explanation: PlacementExplanation }) {
  const { nodeId, reason, advice, filters, nodes } = explanation;
  const excluding = filters.filter(({ left }, at) => left < (filters[at - 1]?.left ?? nodes.length));
  return (
    <div className="panels">
      <Panel
        title={explanation.hasDisk ? `It is on ${nodeId}` : nodeId === null ? "It fits nowhere" : `It fits ${nodeId}`}
      >
        <p>{reason}</p>
        {advice !== null && <p className="note">{advice}</p>}
        {excluding.length === 0 ? (
          <p className="dim">No filter excludes a node.</p>
        ) : (
          <ol className="events">
            {excluding.map(({ name, left }) => (
              <li key={name}>
                {left} of {nodes.length} {FILTERS[name]}
              </li>
            ))}
          </ol>
        )}
      </Panel>
      <Panel title="Node by node">
        <ul className="events">
          {nodes.map((node) => (
            <li key={node.nodeId}>
              <span className="grow">
                <Link to="/nodes/$id" params={{ id: node.nodeId }}>
                  {node.nodeId}
                </Link>{" "}
                {node.nodeId === nodeId && <Badge tone="good">{explanation.hasDisk ? "here" : "chosen"}</Badge>}
                {node.reason !== null && <span className="dim block">{node.reason}</span>}
                {node.score !== null && (
                  <span className="dim block">
                    {(["promised", "packing", "busy", "pressure", "image"] as const)
                      .filter((part) => node.score?.[part] !== 0)
                      .map((part) => `${part} ${node.score?.[part].toFixed(2)}`)
                      .join(", ")}
                  </span>
                )}
              </span>
              <span className="dim">{node.score === null ? "excluded" : node.score.total.toFixed(2)}</span>
            </li>
          ))}
        </ul>
        <p className="dim small">The node with the lowest sum is chosen.</p>
      </Panel>
    </div>
  );
}
