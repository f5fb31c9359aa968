/**
 * `flotilla machine explain NAME`: why a machine is on its node, or where it would be placed, and why not on
 * the others.
 *
 * By its id it explains a machine of any tenant.
 */
import type { Call } from "../call.ts";
import { findMachineId } from "./find.ts";
import { showPlacement } from "./placement.ts";

export async function run(call: Call, [reference = ""]: readonly string[]): Promise<void> {
  const flotilla = call.flotilla();
  showPlacement(
    call,
    await flotilla.explainMachinePlacement({ query: { machineId: await findMachineId(flotilla, reference) } }),
  );
}
