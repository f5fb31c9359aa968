/**
 * Which states each fault has met: of machines, nodes, operations and moves. A test demands every pair that
 * can occur.
 *
 * A fault of a node meets that node, its machines, and what moves from or to it; other faults meet
 * everything. The states are those of the last step, at most STEP_MS_MAX old for messages and exact for other
 * faults.
 */
import { phaseOf } from "../../server/src/machines/state.ts";
import { BRANCH_STEPS } from "../../server/src/branches/branch.ts";
import { MOVE_STEPS } from "../../server/src/moves/plan.ts";
import { ALIKE, FAULTS, type Fault } from "./faults.ts";
import type { Rows } from "./rows.ts";

/** Every state, as it is counted. */
const STATES: readonly string[] = [
  ...["created", "stopped", "starting", "running", "stopping", "failed", "deleting", "deleted"].map(
    (phase) => `machine ${phase}`,
  ),
  ...["machine suspended", "machine moving", "machine waiting in a pool"],
  ...["machine fenced", "machine whose fence is lifted", "machine replaced"],
  ...["node held", "node lost"],
  ...["ready", "draining", "drained", "unreachable"].map((status) => `node ${status}`),
  ...["node cordoned", "node under maintenance"],
  ...["machine move", "machine branch", "node drain"].flatMap((kind) => [
    `${kind} running`,
    `${kind} canceling`,
    `${kind} continued`,
  ]),
  ...Object.values(MOVE_STEPS).map((name) => `move: ${name}`),
  ...Object.values(BRANCH_STEPS).map((name) => `branch: ${name}`),
];

/** Pairs that cannot occur, with the reason. */
const IMPOSSIBLE: readonly { readonly fault: Fault | "any of a node"; readonly state: string; readonly why: string }[] =
  [{ fault: "any of a node", state: "machine created", why: "it was never started, so it is on no node" }];

/** What lasts for a moment only, so that few faults meet it. */
const BRIEF: ReadonlySet<string> = new Set([
  ...[
    "node unreachable",
    "machine move canceling",
    "machine move continued",
    "machine branch running",
    "machine branch canceling",
    "machine branch continued",
    "node drain canceling",
    "node drain continued",
    "machine whose fence is lifted",
    "machine replaced",
    "node held",
    "node lost",
  ],
  ...[MOVE_STEPS.change, MOVE_STEPS.start].map((name) => `move: ${name}`),
  ...Object.values(BRANCH_STEPS).map((name) => `branch: ${name}`),
]);

/**
 * What a run must have met: every fault every state that is possible, and one of those that are alike each
 * brief state.
 */
export function unmetPairs(met: ReadonlyMap<string, number>): readonly string[] {
  const faults = Object.keys(FAULTS) as Fault[];
  const isMet = (fault: Fault, state: string): boolean => {
    const alike = BRIEF.has(state) ? ALIKE.find((faultsAlike) => faultsAlike.includes(fault)) : undefined;
    return (alike ?? [fault]).some((each) => met.has(`${each}/${state}`));
  };
  return faults.flatMap((fault) =>
    STATES.filter((state) => isPossible(fault, state) && !isMet(fault, state)).map((state) => `${fault}/${state}`),
  );
}

const isPossible = (fault: Fault, state: string): boolean =>
  !IMPOSSIBLE.some(
    (pair) =>
      pair.state === state && (pair.fault === fault || (pair.fault === "any of a node" && FAULTS[fault] === "node")),
  );

/** The counts as a table of text: a line for each state, a column for each fault. */
export function tableOf(met: ReadonlyMap<string, number>): readonly string[] {
  const faults = Object.keys(FAULTS) as Fault[];
  const head = ["state", ...faults.map((_, at) => String.fromCodePoint(65 + at))];
  const rows = STATES.map((state) => [
    state,
    ...faults.map((fault) => (isPossible(fault, state) ? String(met.get(`${fault}/${state}`) ?? 0) : "–")),
  ]);
  const line = (cells: readonly string[]) =>
    cells.map((cell, at) => (at === 0 ? cell.padEnd(34) : cell.padStart(7))).join("");
  return [...faults.map((fault, at) => `${String.fromCodePoint(65 + at)}: ${fault}`), line(head), ...rows.map(line)];
}

const BRIEF_STEPS: readonly (string | null)[] = [MOVE_STEPS.change, MOVE_STEPS.start, ...Object.values(BRANCH_STEPS)];

/** Whether something is in a state that lasts for a moment only. */
export const hasBriefState = ({ operations }: Rows): boolean =>
  operations.some(
    ({ status, canceledAt, attempt, step }) =>
      status === "running" && (canceledAt !== null || attempt > 1 || BRIEF_STEPS.includes(step)),
  );

/** Whether a node is away for so long that it is decided about its machines, or a fence is being lifted. */
export const hasRareState = ({ nodes, machines }: Rows): boolean =>
  nodes.some(({ isHeld, isLost }) => isHeld || isLost) ||
  machines.some(({ fence, isDeleted }) => fence === "lifting" && !isDeleted);

/** Its node does not know that yet. */
const isReplaced = ({ id, observedState }: Rows["machines"][number], replaced: ReadonlySet<string>): boolean =>
  observedState !== "absent" && replaced.has(id);

/**
 * A node that has a replaced machine, so that a fault of a node can meet this seldom state; null: none has.
 */
export const nodeOfReplaced = ({ machines }: Rows, replaced: ReadonlySet<string>): string | null =>
  machines.find((machine) => isReplaced(machine, replaced))?.nodeId ?? null;

/** The states that a fault meets now. `replaced`: machines. `node`: the one that it concerns; null: all. */
export function statesMet(rows: Rows, replaced: ReadonlySet<string>, node: string | null): readonly string[] {
  const concerns = (...nodes: readonly (string | null)[]): boolean => node === null || nodes.includes(node);
  const machines = rows.machines.filter(({ nodeId, moveNodeId }) => concerns(nodeId, moveNodeId));
  const nodes = rows.nodes.filter(({ id }) => concerns(id));
  const byId = new Map(rows.machines.map((machine) => [machine.id, machine]));
  const operations = rows.operations.filter(({ status, kind, resourceId }) => {
    const machine = byId.get(resourceId);
    const isConcerned =
      kind === "node drain" ? concerns(resourceId) : concerns(machine?.nodeId ?? null, machine?.moveNodeId ?? null);
    return status === "running" && isConcerned;
  });
  return [
    ...machines.map((machine) => `machine ${phaseOf(machine)}`),
    ...machines.filter(({ isSuspended, isDeleted }) => isSuspended && !isDeleted).map(() => "machine suspended"),
    ...machines.filter(({ moveId }) => moveId !== null).map(() => "machine moving"),
    ...machines.filter(({ isInPool, isDeleted }) => isInPool && !isDeleted).map(() => "machine waiting in a pool"),
    ...machines
      .filter(({ fence, observedState, isDeleted }) => fence === "on" && observedState === "running" && !isDeleted)
      .map(() => "machine fenced"),
    ...machines
      .filter(({ fence, isDeleted }) => fence === "lifting" && !isDeleted)
      .map(() => "machine whose fence is lifted"),
    ...machines.filter((machine) => isReplaced(machine, replaced)).map(() => "machine replaced"),
    ...nodes.filter(({ isHeld }) => isHeld).map(() => "node held"),
    ...nodes.filter(({ isLost }) => isLost).map(() => "node lost"),
    ...nodes.map(({ status }) => `node ${status}`),
    ...nodes.filter(({ cordonedAt }) => cordonedAt !== null).map(() => "node cordoned"),
    ...nodes.filter(({ isInMaintenance }) => isInMaintenance).map(() => "node under maintenance"),
    ...operations.map(({ kind, canceledAt }) => `${kind} ${canceledAt === null ? "running" : "canceling"}`),
    ...operations.filter(({ attempt }) => attempt > 1).map(({ kind }) => `${kind} continued`),
    ...operations
      .filter(({ kind, step }) => kind === "machine move" && step !== null)
      .map(({ step }) => `move: ${step}`),
    ...operations
      .filter(({ kind, step }) => kind === "machine branch" && step !== null)
      .map(({ step }) => `branch: ${step}`),
  ];
}
