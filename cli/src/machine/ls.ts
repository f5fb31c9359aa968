/**
 * `flotilla machine ls`: the tenant's machines, newest first.
 *
 * With labels: only machines that have all of them.
 */
import type { Call } from "../call.ts";
import { MACHINE_HEADS, machineRow } from "./view.ts";

export interface ListOptions {
  readonly label?: Readonly<Record<string, string>>;
}

export async function run(call: Call, _operands: readonly string[], options: ListOptions): Promise<void> {
  const label = Object.entries(options.label ?? {}).map(([name, value]) => `${name}=${value}`);
  const machines = await call.flotilla().listMachines({ query: { label } });
  if (call.output.isJson) return call.output.json(machines);
  if (machines.length > 0) {
    const now = call.world.clock.now();
    return call.output.table(
      MACHINE_HEADS,
      machines.map((machine) => machineRow(machine, now)),
    );
  }
  call.output.note(
    label.length > 0
      ? "no machine has these labels"
      : "no machines yet; `flotilla machine create local/busybox --name hello --start` makes one",
  );
}
