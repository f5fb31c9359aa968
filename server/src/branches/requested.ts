/**
 * What a request for branches or a checkpoint asks for: the names of the clones, and why a machine cannot be
 * branched or kept. Pure.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { MachineRecord } from "../machines/record.ts";
import { phaseOf } from "../machines/state.ts";

/** Characters of a machine's name. */
export const NAME_CHARACTERS_MAX = 63;

/** How many clones, and their names. */
export interface BatchRequest {
  readonly count?: number | null;
  readonly names?: readonly string[] | null;
  readonly namePrefix?: string | null;
}

/** The names of the clones, in order. Throws a Refusal that names the field. */
export function namesOf(
  { count, names, namePrefix }: BatchRequest,
  source: Pick<MachineRecord, "id" | "name">,
): string[] {
  if (names !== null && names !== undefined && names.length > 0) {
    const twice = names.find((name, at) => names.indexOf(name) !== at);
    if (twice !== undefined)
      refuse("names", `${JSON.stringify(twice)} is in names twice; each machine has its own name`);
    return [...names];
  }
  if (count === null || count === undefined)
    return refuse("count", "either count or names says how many machines are made");
  const prefix = namePrefix ?? source.name ?? source.id;
  const digits = String(count).length;
  if (prefix.length + 1 + digits > NAME_CHARACTERS_MAX)
    refuse(
      "namePrefix",
      `${JSON.stringify(prefix)} is too long for names such as ${prefix}-${count}; give a shorter namePrefix`,
    );
  return Array.from({ length: count }, (_, at) => `${prefix}-${at + 1}`);
}

function refuse(field: string, text: string): never {
  throw new Refusal("invalid_body", text, { field });
}

/** Throws a Refusal when the machine cannot be branched now. */
export function refuseUnbranchable(machine: MachineRecord, secrets: "inherit" | "refuse"): void {
  const { id } = machine;
  if (!machine.isBranchable)
    throw conflict(`machine ${id} is not branchable; create it with branchable: true, or start it with forkable=true`);
  refuseMoving(machine);
  if (phaseOf(machine) !== "running") throw conflict(`machine ${id} is not running; start it, then branch it`);
  refuseSecrets(machine, secrets, {
    what: "its branches would have too; branch it",
    besides: ", or with new values of them",
  });
}

/** Throws a Refusal when no checkpoint of the machine can be made now. Its node says what else it refuses. */
export function refuseUnkept(
  machine: MachineRecord,
  { hasMemory, secrets }: { readonly hasMemory: boolean; readonly secrets: "inherit" | "refuse" },
): void {
  const { id } = machine;
  refuseMoving(machine);
  if (machine.nodeId === null) throw conflict(`machine ${id} was never started, and has no disk yet; start it once`);
  if (hasMemory && phaseOf(machine) !== "running")
    throw conflict(`machine ${id} is not running, and has no memory to keep; start it, or leave memory out`);
  if (hasMemory && !machine.isBranchable)
    throw conflict(
      `machine ${id} was not created as branchable, so its memory cannot be kept; keep its disk alone with memory: false`,
      { field: "memory" },
    );
  refuseSecrets(machine, secrets, { what: "machines from a checkpoint would have too; make it", besides: "" });
}

function refuseMoving({ id, moveId }: MachineRecord): void {
  if (moveId !== null)
    throw conflict(`machine ${id} is being moved by operation ${moveId}; try again when that has ended`);
}

function refuseSecrets(
  { id, secretNames }: MachineRecord,
  secrets: "inherit" | "refuse",
  { what, besides }: { readonly what: string; readonly besides: string },
): void {
  if (secrets === "refuse" && secretNames.length > 0)
    throw conflict(
      `machine ${id} has secret variables (${secretNames.join(", ")}), which ${what} with secrets: "inherit" if they may${besides}`,
      { field: "secrets" },
    );
}

/** What branches have of the secret variables of their source. */
export interface SecretsRequest {
  readonly secrets?: "inherit" | "reissue" | "refuse" | null | undefined;
  readonly secretEnv?: Readonly<Record<string, string>> | null | undefined;
}

/**
 * New values of the secret variables; null: none are asked for. Throws a Refusal unless each has one, and
 * nothing else has.
 */
export function reissuedSecrets(
  { id, secretNames }: Pick<MachineRecord, "id" | "secretNames">,
  { secrets, secretEnv = null }: SecretsRequest,
): Readonly<Record<string, string>> | null {
  const isReissued = secrets === "reissue" || ((secrets ?? null) === null && secretEnv !== null);
  if (!isReissued) {
    if (secretEnv !== null)
      refuse("secretEnv", `secretEnv has values for secrets: "reissue", and secrets is "${secrets}"`);
    return null;
  }
  const given = Object.keys(secretEnv ?? {});
  const missing = secretNames.filter((name) => !given.includes(name));
  if (missing.length > 0)
    refuse(
      "secretEnv",
      `machine ${id} has the secret variables ${missing.join(", ")}; secretEnv needs new values of them`,
    );
  const unknown = given.filter((name) => !secretNames.includes(name));
  if (unknown.length > 0)
    refuse("secretEnv", `machine ${id} has no secret variables ${unknown.join(", ")}; leave them out of secretEnv`);
  return given.length === 0 ? null : (secretEnv ?? null);
}

const conflict = (text: string, details: { readonly field?: string } = {}): Refusal =>
  new Refusal("conflict", text, details);
