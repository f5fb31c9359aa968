/**
 * `flotilla machine rm NAME…`: deletes machines in any state, with their disks.
 *
 * All names are looked up before the first is deleted, so a mistyped one deletes nothing. With --usage the
 * settled usage and cost of each are shown; with --json they are an array.
 */
import { renderMicros } from "@flotilla/base/money";
import { renderSpan } from "@flotilla/base/span";
import type { MachineInfo, MachineUsageResponse } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { findMachine } from "./find.ts";

export interface RemoveOptions {
  readonly usage?: boolean;
}

export async function run(call: Call, references: readonly string[], options: RemoveOptions): Promise<void> {
  const flotilla = call.flotilla();
  const found = new Map<string, MachineInfo>();
  for (const reference of references) {
    const machine = await findMachine(flotilla, reference);
    found.set(machine.id, machine);
  }
  const settled: MachineUsageResponse[] = [];
  for (const { id, name } of found.values()) {
    const usage = await remove(call, id, { name: name ?? id, includeUsage: options.usage === true });
    if (usage !== undefined) settled.push(usage);
    call.output.line((name ?? id) + (usage === undefined ? "" : `: ${usageText(usage)}`));
  }
  if (call.output.isJson && options.usage) call.output.json(settled);
}

async function remove(
  call: Call,
  id: string,
  options: { readonly name: string; readonly includeUsage: boolean },
): Promise<MachineUsageResponse | undefined> {
  using _progress = call.output.progress(`deleting ${options.name}`);
  const query = options.includeUsage ? { includeUsage: true } : undefined;
  return await call.flotilla().deleteMachine(id, { query });
}

function usageText({ usage, cost }: MachineUsageResponse): string {
  const up = renderSpan(usage.totalUptimeSeconds * 1000);
  return `up ${up}, ${usage.execCount} execs, cost ${renderMicros(cost.totalMicros)}`;
}
