/**
 * `flotilla machine tree NAME`: shows a machine with its ancestors and branches, each below what it was
 * branched from, and the checkpoints of each.
 */
import type { CheckpointInfo, MachineInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { findMachineId } from "./find.ts";

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  const id = await findMachineId(flotilla, reference);
  const { machines } = await flotilla.getLineage(id);
  if (call.output.isJson) return call.output.json(machines);
  const checkpoints = await flotilla.listCheckpoints();
  for (const line of treeOf(machines, checkpoints, id)) call.output.line(line);
}

/** A line for each machine and checkpoint. A machine whose origin is gone is at the left. `id` is marked. */
export function treeOf(
  machines: readonly MachineInfo[],
  checkpoints: readonly Pick<CheckpointInfo, "id" | "machineId" | "name" | "status">[],
  id: string,
): readonly string[] {
  const known = new Set(machines.map((machine) => machine.id));
  const linesOf = (parent: string | null, indent: string): string[] =>
    machines
      .filter(({ parentMachineId }) => (known.has(parentMachineId ?? "") ? parentMachineId : null) === parent)
      .flatMap((machine) => [
        `${indent}${machine.name ?? machine.id}  ${machine.state}${machine.id === id ? "  <" : ""}`,
        ...checkpoints
          .filter(({ machineId }) => machineId === machine.id)
          .map((checkpoint) => `${indent}  ${checkpoint.name ?? checkpoint.id}  checkpoint, ${checkpoint.status}`),
        ...linesOf(machine.id, `${indent}  `),
      ]);
  return linesOf(null, "");
}
