/**
 * When a branch may take the place of its source, and why not. Pure.
 *
 * Always: a branch takes the place of the machine that it was made from, never of an older ancestor, and a
 * machine is replaced by one branch at most.
 */
import type { MachineRecord } from "../machines/record.ts";
import { shownState } from "../machines/view.ts";
import { NAME_CHARACTERS_MAX } from "./requested.ts";

/** What else decides about a machine, or works on it. */
export interface Ties {
  readonly owner: { readonly kind: "app" | "pool"; readonly id: string } | null;
  readonly leaseId: string | null;
  /** One that runs. */
  readonly operation: { readonly id: string; readonly kind: string } | null;
}

/** What decides about an adoption, as it is while both machines are locked. */
export interface AdoptionFacts {
  readonly branch: MachineRecord;
  readonly branchTies: Ties;
  /** null: the branch has none, or its row is gone. It may be deleted. */
  readonly source: MachineRecord | null;
  readonly sourceTies: Ties;
  /** Another branch that has taken the place of the source. */
  readonly adopter: string | null;
}

/** Why a machine of the two may not be replaced, or replace another one. */
type TieRule = (machine: MachineRecord, ties: Ties) => string | null;

const TIE_RULES = {
  instance: (_, { owner }) =>
    owner?.kind === "app" ? `is an instance of app ${owner.id}, which replaces it; deploy the app` : null,
  pooled: (_, { owner }) => (owner?.kind === "pool" ? `waits in pool ${owner.id}; claim it first` : null),
  leased: (_, { leaseId }) =>
    leaseId === null ? null : `is the branch of lease ${leaseId}, and ends with it; branch it, and use that one`,
  moving: ({ moveId }) =>
    moveId === null ? null : `is being moved by operation ${moveId}; try again when that has ended`,
  busy: (_, { operation }) =>
    operation === null
      ? null
      : `is used by operation ${operation.id} (${operation.kind}); try again when that has ended`,
} as const satisfies Readonly<Record<string, TieRule>>;

/** Rules about both, before those of each. */
const PAIR_RULES = {
  noBranch: ({ branch }) =>
    branch.origin === null
      ? `machine ${branch.id} is not a branch of another machine; only a branch takes the place of its source`
      : null,
  gone: ({ branch, source }) =>
    source === null || source.deletedAt !== null || source.tenantId !== branch.tenantId
      ? `the source of machine ${branch.id}, machine ${branch.origin?.machineId}, was deleted; there is no place to take`
      : null,
  taken: ({ adopter, branch }) =>
    adopter === null ? null : `machine ${adopter} has taken the place of machine ${branch.origin?.machineId} already`,
} as const satisfies Readonly<Record<string, (facts: AdoptionFacts) => string | null>>;

const whyNot = (machine: MachineRecord | null, ties: Ties): string | null => {
  if (machine === null) return null;
  for (const rule of Object.values<TieRule>(TIE_RULES)) {
    const text = rule(machine, ties);
    if (text !== null) return `machine ${machine.id} ${text}`;
  }
  return null;
};

/** The sentence for the caller; null: the branch may take the place now. */
export function adoptionRefusal(facts: AdoptionFacts): string | null {
  for (const rule of Object.values(PAIR_RULES)) {
    const text = rule(facts);
    if (text !== null) return text;
  }
  const { branch, branchTies, source, sourceTies } = facts;
  const { state } = shownState(branch);
  return (
    whyNot(source, sourceTies) ??
    whyNot(branch, branchTies) ??
    (state === "started" ? null : `machine ${branch.id} does not run, it is in state ${state}; start it first`)
  );
}

const KEPT_SUFFIX = "-was";

/** The name of a source that is kept, if no other machine has it. */
export const keptName = ({ id, name }: Pick<MachineRecord, "id" | "name">): string =>
  (name ?? id).slice(0, NAME_CHARACTERS_MAX - KEPT_SUFFIX.length) + KEPT_SUFFIX;
