/**
 * `flotilla machine tree NAME`: shows a machine with its ancestors and branches, each below what it was
 * branched from, and the checkpoints of each.
 */
import type { CheckpointInfo, Lineage } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { findMachineId } from "./find.ts";

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  const id = await findMachineId(flotilla, reference);
  const { machines, memory } = await flotilla.getLineage(id);
  if (call.output.isJson) return call.output.json({ machines, memory });
  const checkpoints = await flotilla.listCheckpoints();
  for (const line of treeOf({ machines, memory, checkpoints }, id)) call.output.line(line);
}

interface Tree extends Pick<Lineage, "machines" | "memory"> {
  readonly checkpoints: readonly Pick<CheckpointInfo, "id" | "machineId" | "name" | "status">[];
}

const megabytes = (bytes: number): string => (bytes / 1e6).toFixed(0);

/** A line for each machine and checkpoint. A machine whose origin is gone is at the left. `id` is marked. */
export function treeOf({ machines, memory, checkpoints }: Tree, id: string): readonly string[] {
  const uses = new Map(
    memory.map(({ machineId, ownBytes, sharedBytes }) => [
      machineId,
      `  ${megabytes(ownBytes)} MB of memory its own, ${megabytes(sharedBytes)} MB shared`,
    ]),
  );
  const known = new Set(machines.map((machine) => machine.id));
  const linesOf = (parent: string | null, indent: string): string[] =>
    machines
      .filter(({ parentMachineId }) => (known.has(parentMachineId ?? "") ? parentMachineId : null) === parent)
      .flatMap((machine) => [
        `${indent}${machine.name ?? machine.id}  ${machine.state}${uses.get(machine.id) ?? ""}${machine.id === id ? "  <" : ""}`,
        ...checkpoints
          .filter(({ machineId }) => machineId === machine.id)
          .map((checkpoint) => `${indent}  ${checkpoint.name ?? checkpoint.id}  checkpoint, ${checkpoint.status}`),
        ...linesOf(machine.id, `${indent}  `),
      ]);
  return linesOf(null, "");
}
