/**
 * A machine of which nothing is observed: every field has its default.
 */
import { readObservedMachine } from "./generated.ts";
import type { ObservedMachine } from "./machines.ts";

/** `generation`: the newest that the node has accepted. */
export function absentMachine(machineId: string, generation: number): ObservedMachine {
  return readObservedMachine({ machineId, generation, state: "absent" });
}
