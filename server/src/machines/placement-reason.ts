/**
 * Why a machine is, or is not, where it should run, and what an operator can do about it: the text of an
 * explanation.
 *
 * Pure: facts of the machine, of the placement and of its tenant → two sentences.
 *
 * Always: a text says that a machine runs, starts or can be started only if that is so: a node that does not
 * report, a move and a failure come first. `advice` is null exactly where nothing needs to be done.
 */
import type { PlacementFilter } from "@flotilla/contract/placement";
import type { Explanation } from "../placement/place.ts";
import type { MachineRecord } from "./record.ts";
import { HIDDEN_BY_NODE, includes, phaseOf, UNREACHABLE_STATUSES } from "./state.ts";

/** What an explanation says of a machine that exists. */
export type ExplainedMachine = Pick<
  MachineRecord,
  | "id"
  | "nodeId"
  | "nodeStatus"
  | "moveId"
  | "moveNodeId"
  | "moveStops"
  | "desiredState"
  | "generation"
  | "error"
  | "observedState"
  | "observedGeneration"
  | "observedBootId"
  | "observedReason"
  | "observedReasonCode"
>;

export interface ReasonFacts {
  /** null: it does not exist yet. */
  readonly machine: ExplainedMachine | null;
  readonly explanation: Explanation;
  /** Why its tenant may not start it now; null: it may, or it is active already. */
  readonly tenantRefusal: Reason | null;
  /** The image, if a start fetches it from no registry and no node has it. */
  readonly missingImage: string | null;
}

export interface Reason {
  readonly reason: string;
  readonly advice: string | null;
}

/** What makes a filter leave more nodes, besides another node. */
const ADVICE: Readonly<Record<PlacementFilter, string>> = {
  status: "bring nodes back (`flotilla doctor --fleet` says what each needs)",
  cordon: "`flotilla node uncordon NODE`",
  image: "bring the image to more nodes with `flotilla image import` or `flotilla image pull`",
  architecture: "create it for another architecture",
  labels: "create it with other labels",
  size: "create a smaller one",
  processors: "stop machines or raise FLOTILLA_CPU_OVERCOMMIT",
  promisedMemory: "stop machines or raise FLOTILLA_MEMORY_OVERCOMMIT",
  memory: "stop machines or add memory",
  pressure: "stop machines or add memory",
  disk: "delete machines that are not needed, or enlarge the disk",
};

const ADD_NODE = "add a node that fits (`flotilla token create`)";
const WATCH_RESTARTS = "`flotilla machine events` shows each attempt; after five in ten minutes it is left in error";

export function reasonOf(facts: ReasonFacts): Reason {
  const { machine, tenantRefusal } = facts;
  const nodeId = machine?.nodeId ?? null;
  const error = machine?.error ?? null;
  const { reason, advice } =
    machine === null || nodeId === null ? unplaced(facts) : placed(facts, { ...machine, nodeId });
  const failed = nodeId === null && error !== null ? `the machine failed: ${error}` : null;
  const tenant = tenantRefusal && `its tenant may not start it now: ${tenantRefusal.reason}`;
  const given = [advice, tenantRefusal?.advice ?? null].filter((each) => each !== null);
  return {
    reason: [failed, reason, tenant].filter((part) => part !== null).join("; "),
    advice: given.length === 0 ? null : given.join("; and "),
  };
}

/** Reason of a machine without a disk. */
function unplaced({ explanation, missingImage }: ReasonFacts): Reason {
  const { placement, verdicts } = explanation;
  if (placement.nodeId === null)
    return { reason: `no node admits it: ${placement.reason}`, advice: adviceFor(explanation) };
  if (missingImage !== null)
    return {
      reason: `no node has the image ${missingImage}, and a start does not fetch it, so it fails on any node`,
      advice: "`flotilla image import` on a node brings a local image, `flotilla image pull` one of a registry",
    };
  const fitting = verdicts.filter(({ filter }) => filter === null).length;
  const { nodeId } = placement;
  const what = fitting === 1 ? "is the only one that fits" : `has the lowest score of ${fitting} that fit`;
  return { reason: `node ${nodeId} ${what}`, advice: null };
}

/** What to do about each filter that excluded a node. */
function adviceFor({ filters, verdicts }: Explanation): string {
  const excluding = filters.filter(({ name }) => verdicts.some(({ filter }) => filter === name));
  return [...excluding.map(({ name }) => ADVICE[name]), ADD_NODE].join("; or ");
}

/** Reason of a machine whose disk is on a node. */
function placed(facts: ReasonFacts, machine: ExplainedMachine & { readonly nodeId: string }): Reason {
  const { nodeId, nodeStatus, moveId, moveNodeId } = machine;
  if (nodeStatus !== null && includes(UNREACHABLE_STATUSES, nodeStatus)) return onLostNode(machine);
  if (moveId !== null)
    return {
      reason: `the machine is being moved from node ${nodeId} to node ${moveNodeId}, and starts nowhere else until the move has ended`,
      advice: `\`flotilla operation get ${moveId}\` shows the move, \`flotilla operation cancel ${moveId}\` ends it where the machine was`,
    };
  const leaving =
    nodeStatus === "draining" ? `; the node is draining, so the machine is moved when its turn comes` : "";
  switch (phaseOf(machine)) {
    case "running":
      return { reason: `the machine runs on node ${nodeId}, which has its disk${leaving}`, advice: null };
    case "starting":
      if (machine.observedReason === null)
        return { reason: `the machine is being started on node ${nodeId}, which has its disk${leaving}`, advice: null };
      return {
        reason: `the machine is being started again on node ${nodeId}, which has its disk, with growing pauses; it ended before: ${machine.observedReason}`,
        advice: WATCH_RESTARTS,
      };
    case "stopping":
      return { reason: `the machine is being stopped on node ${nodeId}, which has its disk${leaving}`, advice: null };
    case "deleting":
    case "deleted":
      return { reason: `the machine is being deleted from node ${nodeId}`, advice: null };
    case "failed":
      return failedThere(facts, machine);
    case "created":
    case "stopped":
      return stoppedThere(facts, nodeId);
  }
}

function onLostNode({ nodeId, nodeStatus, ...machine }: ExplainedMachine & { readonly nodeId: string }): Reason {
  const state = { unreachable: "does not report", maintenance: "is away under maintenance", revoked: "was revoked" };
  const status = nodeStatus === "maintenance" || nodeStatus === "revoked" ? nodeStatus : "unreachable";
  const mayRun = includes(HIDDEN_BY_NODE, phaseOf({ ...machine, nodeId }));
  const effect = mayRun ? "it may run there, and starts nowhere else" : "it cannot be started until the node is back";
  const advice = {
    unreachable: `check the host of node ${nodeId}, and that \`flotilla node\` runs there; \`flotilla doctor --fleet\` says more`,
    maintenance: `when the host is back, \`flotilla node uncordon ${nodeId}\` ends the maintenance`,
    revoked: `start the agent of node ${nodeId} with a new join token (\`flotilla token create\`)`,
  };
  return {
    reason: `the machine's disk is on node ${nodeId}, which ${state[status]}; ${effect}`,
    advice: advice[status],
  };
}

function failedThere(facts: ReasonFacts, machine: ExplainedMachine & { readonly nodeId: string }): Reason {
  const { nodeId, id, error, observedReason, observedReasonCode } = machine;
  const reason = `the machine failed on node ${nodeId}, which has its disk: ${error ?? observedReason ?? "no reason is known"}`;
  const again = `\`flotilla machine events ${id}\` says more; \`flotilla machine start ${id}\` tries again`;
  const refused = refusalAt(nodeId, facts.explanation);
  if (refused !== null) return { reason: `${reason}; a start is refused: ${refused.reason}`, advice: refused.advice };
  if (error === null && observedReasonCode !== null)
    return { reason, advice: `its image is the cause: correct that first; ${again}` };
  return { reason, advice: again };
}

function stoppedThere({ explanation }: ReasonFacts, nodeId: string): Reason {
  const refused = refusalAt(nodeId, explanation);
  if (refused === null)
    return { reason: `the machine is stopped, and its disk is on node ${nodeId}, so it starts there`, advice: null };
  return {
    reason: `the machine's disk is on node ${nodeId}, which refuses its start: ${refused.reason}`,
    advice: refused.advice,
  };
}

/**
 * Why the node that has the disk refuses a start, and what opens it or takes the machine elsewhere; null: it
 * admits it.
 */
function refusalAt(nodeId: string, { verdicts }: Explanation): Reason | null {
  const home = verdicts.find((verdict) => verdict.nodeId === nodeId);
  if (home === undefined || home.filter === null) return null;
  const opens = home.filter === "status" ? `\`flotilla node cancel-drain ${nodeId}\`` : ADVICE[home.filter];
  const other = verdicts.find((verdict) => verdict.filter === null);
  const move =
    other === undefined
      ? "no other node admits it now"
      : `or \`flotilla machine move\` takes it to node ${other.nodeId}`;
  return { reason: home.reason, advice: `${opens}; ${move}` };
}
