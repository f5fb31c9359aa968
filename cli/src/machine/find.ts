/**
 * Finds the machine that a user names: by its id, its name, or the beginning of its id.
 *
 * Always: an exact id or name wins over a beginning. When no machine or several match, the error lists
 * machines, because the API itself knows machines by id only.
 */
import type { Flotilla, MachineInfo } from "@flotilla/sdk";
import { Failure } from "../failure.ts";

/** Ids are recognized by their form, so that the list is not read for them. */
const ID = /^mach-[0-9a-f]{32}$/;
const BEGINNING = /^(mach-)?[0-9a-f]{4,32}$/;
const NAMES_SHOWN_MAX = 10;

/** Throws a Failure when no machine or more than one matches. */
export async function findMachine(flotilla: Flotilla, reference: string): Promise<MachineInfo> {
  if (ID.test(reference)) return flotilla.getMachine(reference);
  return pickMachine(await flotilla.listMachines(), reference);
}

/** Only the id: one call less when an id is given. */
export async function findMachineId(flotilla: Flotilla, reference: string): Promise<string> {
  return ID.test(reference) ? reference : (await findMachine(flotilla, reference)).id;
}

/** The pure part. */
export function pickMachine(machines: readonly MachineInfo[], reference: string): MachineInfo {
  const exact = machines.filter((machine) => machine.id === reference || machine.name === reference);
  const begins = (machine: MachineInfo): boolean =>
    machine.id.startsWith(reference) || machine.id.startsWith(`mach-${reference}`);
  const found = exact.length > 0 ? exact : BEGINNING.test(reference) ? machines.filter(begins) : [];
  const [machine] = found;
  if (machine !== undefined && found.length === 1) return machine;
  if (found.length > 1) {
    throw new Failure(
      `"${reference}" fits ${found.length} machines: ${shown(found)}`,
      "name it by its whole id or name",
    );
  }
  throw new Failure(
    `there is no machine called "${reference}"`,
    machines.length === 0
      ? "there are no machines: `flotilla machine create IMAGE --name NAME` makes one"
      : `there is: ${shown(machines)}; \`flotilla machine ls\` shows more`,
  );
}

function shown(machines: readonly MachineInfo[]): string {
  const names = machines.slice(0, NAMES_SHOWN_MAX).map((machine) => machine.name ?? machine.id);
  return names.join(", ") + (machines.length > names.length ? ` and ${machines.length - names.length} more` : "");
}
