/**
 * Why a machine is, or would be, placed on a node.
 */
import { endpoint, json } from "./endpoint.ts";
import { MachineSource, NetworkRequest, NodeLabels, ResourcesRequest } from "./machines.ts";
import { int32, nullable, oneOf, optional, type Static, Type, text } from "./schema.ts";

/** The filters of server/src/placement/place.ts, in the order in which they apply. */
export const PLACEMENT_FILTERS = [
  "status",
  "cordon",
  "image",
  "architecture",
  "labels",
  "size",
  "processors",
  "promisedMemory",
  "memory",
  "pressure",
  "disk",
] as const;
export type PlacementFilter = (typeof PLACEMENT_FILTERS)[number];

const PlacementScore = Type.Object({
  promised: Type.Number({
    description: "share of its processors or memory, or of its ceiling for them, that would be promised to machines",
  }),
  packing: Type.Number({
    description:
      "0 up to half of its ceiling; beyond, it is lower for a fuller node, so that large machines still fit elsewhere",
  }),
  busy: Type.Number({ description: "share of its processors or memory that is in use now" }),
  pressure: Type.Number({
    description:
      "share of the last minute in which processes of its host waited for a processor, memory or the disk, whichever is larger; 0 if it is not reported",
  }),
  image: Type.Number({ description: "the cost of fetching the image; 0 where it is" }),
  total: Type.Number({ description: "the sum; the lowest is the best" }),
});

export const PlacementExplanation = Type.Object({
  nodeId: nullable(
    Type.String({ description: "the node that has the machine's disk, else the one that would be chosen" }),
  ),
  hasDisk: Type.Boolean({ description: "whether the machine's disk is on `nodeId`" }),
  reason: Type.String(),
  advice: nullable(Type.String({ description: "what an operator can do about it; null: nothing is needed" })),
  filters: Type.Array(
    Type.Object({ name: oneOf(PLACEMENT_FILTERS), left: int32({ description: "nodes left by it" }) }),
    {
      description: "in the order in which they apply",
    },
  ),
  nodes: Type.Array(
    Type.Object({
      nodeId: Type.String(),
      filter: nullable(
        oneOf(
          PLACEMENT_FILTERS,
          "the first filter that excludes it; of the node that has the disk: that refuses a start there",
        ),
      ),
      reason: nullable(Type.String({ description: "why it is excluded" })),
      score: nullable(PlacementScore),
    }),
    {
      description:
        "best first, then the excluded ones. Where `hasDisk`, a start uses `nodeId` only, and the others show where a move may go",
    },
  ),
});
export type PlacementExplanation = Static<typeof PlacementExplanation>;

export const PlacementRequest = Type.Object({
  source: MachineSource,
  resources: optional(ResourcesRequest),
  network: optional(NetworkRequest),
  nodeLabels: optional(NodeLabels),
});
export type PlacementRequest = Static<typeof PlacementRequest>;

export const placementEndpoints = {
  explainPlacement: endpoint({
    method: "POST",
    path: "/v1/nodes/placement",
    family: "nodes",
    summary: "Explain on which node a new machine would be placed, and why not on the others",
    description: "Nothing is created or reserved, so a later start may be placed elsewhere.",
    access: ["admin"],
    body: { kind: "json", schema: PlacementRequest },
    answers: { 200: json(PlacementExplanation) },
    errors: ["invalid_json", "invalid_request", "invalid_body", "not_found", "image_wrong_platform"],
  }),
  explainMachinePlacement: endpoint({
    method: "GET",
    path: "/v1/nodes/placement",
    family: "nodes",
    summary: "Explain why a machine is on its node, or where it would be placed now",
    description: "Of a machine of any tenant. Nothing is reserved.",
    access: ["admin"],
    query: Type.Object({ machineId: text({ minLength: 1, maxLength: 128 }) }),
    answers: { 200: json(PlacementExplanation) },
    errors: ["not_found", "invalid_body"],
  }),
} as const;
