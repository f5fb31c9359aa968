/**
 * `flotilla machine start NAME`: boots a machine and waits until it runs; with --detach it does not wait.
 *
 * Starting a running machine changes nothing and is not an error.
 */
import type { MachineInfo } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { bootMachine } from "./boot.ts";
import { findMachine } from "./find.ts";

type VmOrigin = NonNullable<NonNullable<MachineInfo["startTimings"]>["vm"]>;

export interface StartOptions {
  readonly detach?: boolean;
  readonly explain?: boolean;
}

export async function run(call: Call, [reference = ""]: readonly string[], options: StartOptions): Promise<void> {
  const flotilla = call.flotilla();
  const found = await findMachine(flotilla, reference);
  const startedAt = call.world.clock.monotonic();
  const machine = options.detach
    ? await flotilla.startMachine(found.id, { query: { detach: true } })
    : await bootMachine(call, flotilla, found);
  const elapsedMs = call.world.clock.monotonic() - startedAt;
  if (call.output.isJson) call.output.json(machine);
  else if (options.explain) for (const line of explain(machine.startTimings, elapsedMs)) call.output.line(line);
  else call.output.line(machine.name ?? machine.id);
}

const ORIGINS: Readonly<Record<VmOrigin, string>> = {
  prepared: "a prepared one",
  template: "restored from a template",
  boot: "booted",
};

/**
 * One line for each phase. Time that the node does not account for is spent in the server, the database and
 * on the network.
 */
export function explain(timings: MachineInfo["startTimings"], elapsedMs: number): readonly string[] {
  const { vm, imageMs, diskMs, bootMs, configureMs, totalMs } = timings ?? {};
  const rows: readonly (readonly [string, number | undefined, (string | undefined)?])[] = [
    ["image", imageMs],
    ["disk", diskMs],
    ["virtual machine", bootMs, vm && `  ${ORIGINS[vm]}`],
    ["guest set-up", configureMs],
    ["all on the node", totalMs],
    ["as seen from here", elapsedMs],
  ];
  return rows.flatMap(([name, ms, remark = ""]) =>
    ms === undefined ? [] : [`${name.padEnd(18)}${ms.toFixed(1).padStart(9)} ms${remark}`],
  );
}
