/**
 * Draws docs/states.md from the tables of the code: the phases of a machine on the server, what users see of them,
 * the life of a node, and what the node agent does next.
 *
 * Always: asks the same functions that the programs ask, over all combinations of facts, and copies no table; so the
 * page cannot say something that the code does not do. Runs under `npm run golden`.
 */
import { DESIRED_STATES, OBSERVED_STATES } from "@flotilla/contract/link";
import { MACHINE_STATES } from "@flotilla/contract/machines";
import { NODE_STATUSES } from "@flotilla/contract/nodes";
import { observedState, plan } from "../node/src/machines/plan.ts";
import { type Situation, VM_STATES } from "../node/src/machines/state.ts";
import { MACHINE_EVENTS, MACHINE_PHASES, type MachineFacts, nextPhase, phaseOf } from "../server/src/machines/state.ts";
import { NODE_EVENTS, nextStatus } from "../server/src/nodes/state.ts";
import { shownState } from "../server/src/machines/view.ts";

const HEAD = `# States

Printed by \`npm run golden\` from the tables in the code; not edited by hand. Words: see the glossary in
[architecture.md](architecture.md).
`;

/** The whole page. */
export function renderStates(): string {
  return [HEAD, renderPhases(), renderShown(), renderNodeStatus(), renderNode()].join("\n");
}

function renderPhases(): string {
  const rows = MACHINE_PHASES.map((phase) => [
    `**${phase}**`,
    ...MACHINE_EVENTS.map((event) => nextPhase(phase, event) ?? ""),
  ]);
  return `## A machine on the server: phases

From [server/src/machines/state.ts](../server/src/machines/state.ts). A phase is computed from what was asked and what
a node reported, and never stored. Rows: where the machine is. Columns: what happens. An empty cell changes nothing: a
refusal for what was asked, a late report for what was observed.

${table(["phase", ...MACHINE_EVENTS], rows)}
`;
}

function renderShown(): string {
  const shown = new Map<string, Set<string>>();
  for (const facts of allFacts()) {
    const away = { ...facts, nodeStatus: null, readyAt: null };
    const words = shown.get(phaseOf(facts)) ?? new Set();
    shown.set(phaseOf(facts), words.add(shownState(away).state));
  }
  const rows = MACHINE_PHASES.map((phase) => [
    `**${phase}**`,
    [...(shown.get(phase) ?? [])].toSorted((one, other) => orderOf(one) - orderOf(other)).join(", "),
  ]);
  return `## What users see of a phase

From [server/src/machines/view.ts](../server/src/machines/view.ts). Where a phase has several words, the observed
state decides. While its node is away, a machine that may run there is shown as \`error\`.

${table(["phase", "state in the API"], rows)}
`;
}

function orderOf(word: string): number {
  return (MACHINE_STATES as readonly string[]).indexOf(word);
}

/** Every combination of facts about a machine that a decision looks at. */
function* allFacts(): Generator<MachineFacts> {
  for (const desiredState of DESIRED_STATES)
    for (const observedState of OBSERVED_STATES)
      for (const nodeId of [null, "node"])
        for (const error of [null, "gave up"])
          for (const observedGeneration of [1, 2]) {
            const isPossible = nodeId !== null || (observedState === "absent" && desiredState !== "running");
            const facts = { desiredState, generation: 2, nodeId, error, observedState, observedGeneration };
            if (isPossible) yield { ...facts, observedBootId: null, observedReason: null };
          }
}

function renderNodeStatus(): string {
  const rows = NODE_STATUSES.map((status) => [
    `**${status}**`,
    ...NODE_EVENTS.map((event) => nextStatus(status, event) ?? ""),
  ]);
  return `## A node on the server

From [server/src/nodes/state.ts](../server/src/nodes/state.ts). Rows: the status that is stored. Columns: what happens.
An empty cell is a refusal, or changes nothing.

${table(["status", ...NODE_EVENTS], rows)}
`;
}

function renderNode(): string {
  const rows: string[][] = [];
  for (const vm of [null, ...VM_STATES])
    for (const desired of DESIRED_STATES) {
      const lines = new Set<string>();
      for (const situation of situations(vm, desired)) {
        const next = plan(situation);
        const action = next.kind === "act" ? `${next.action} — ${next.when}` : "nothing";
        lines.add(`${action} | ${observedState(next)}`);
      }
      for (const line of lines) rows.push([vm ?? "none", desired, line]);
    }
  return `## A machine on its node: what is done next

From [node/src/machines/plan.ts](../node/src/machines/plan.ts), where the first rule that fits wins. \`VM\` is what the
node agent knows of the virtual machine; further facts (image, disk, how the last attempt ended) tell lines with the
same beginning apart.

${table(["VM", "wanted", "next — because", "reported meanwhile"], rows)}
`;
}

function* situations(vm: Situation["vm"], desired: Situation["desired"]): Generator<Situation> {
  for (const ending of [null, "failed", "poweredOff", "crashed"] as const)
    for (const [hasDisk, hasImage] of [
      [false, false],
      [false, true],
      [true, true],
    ] as const) {
      const ended = ending === null ? null : { generation: 1, kind: ending, reason: "", restartAt: 0 };
      yield { desired, generation: 1, hasImage, hasDisk, vm, ending: ended };
    }
}

function table(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [line(heads), line(heads.map(() => "---")), ...rows.map(line)].join("\n");
}
