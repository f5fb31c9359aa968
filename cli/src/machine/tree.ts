/**
 * `flotilla machine tree NAME`: shows a machine with its ancestors and branches, each below what it was
 * branched from.
 */
import type { MachineInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { findMachineId } from "./find.ts";

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  const id = await findMachineId(flotilla, reference);
  const { machines } = await flotilla.getLineage(id);
  if (call.output.isJson) return call.output.json(machines);
  for (const line of treeOf(machines, id)) call.output.line(line);
}

/** A line for each machine. One whose origin is gone is at the left. `id` is marked. Pure. */
export function treeOf(machines: readonly MachineInfo[], id: string): readonly string[] {
  const known = new Set(machines.map((machine) => machine.id));
  const linesOf = (parent: string | null, indent: string): string[] =>
    machines
      .filter(({ parentMachineId }) => (known.has(parentMachineId ?? "") ? parentMachineId : null) === parent)
      .flatMap((machine) => [
        `${indent}${machine.name ?? machine.id}  ${machine.state}${machine.id === id ? "  <" : ""}`,
        ...linesOf(machine.id, `${indent}  `),
      ]);
  return linesOf(null, "");
}
