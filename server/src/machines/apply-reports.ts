/**
 * Applies a node's report of its machines, all of them in one statement.
 *
 * Always:
 * - observe.ts decides, and one fenced statement writes the changes of all machines. A machine that lost its fence is read
 *   and decided again.
 * - A report that changes nothing costs one read and no write.
 * - A machine that the node does not own according to the database is left as it is: the database may have lost it.
 */
import type { AbsentMachine, Heartbeat, ObservedMachine } from "@flotilla/contract/link";
import { ABSENT_MAX } from "@flotilla/contract/link/reports";
import type { Change } from "./change.ts";
import { applyObservation, applyNoTrace } from "./observe.ts";
import type { MachineRecord } from "./record.ts";
import type { MachineServices } from "./services.ts";
import { listMachinesOfNode, listMachinesOfNodeById } from "./store.ts";

const WRITE_TRIES_MAX = 4;
/** A complete report that was written before a machine came to the node may arrive after it, by so much if it was sent in time. */
const NO_TRACE_AFTER_MS = 15_000;

/**
 * Returns the machines that the node has and does not own, and those that it is to remove. `isRestored`: it is the node's first report since the database was
 * restored, until which no machine came to the node: what it does not have is gone, however short ago its row was changed. `writtenAt`: epoch
 * milliseconds of the server's clock; the report may be much older than its arrival.
 */
export async function applyReports(
  services: MachineServices,
  {
    id: nodeId,
    isRestored,
    writtenAt,
  }: { readonly id: string; readonly isRestored: boolean; readonly writtenAt: number },
  heartbeat: Heartbeat,
): Promise<{ readonly unknown: readonly string[]; readonly absent: readonly AbsentMachine[] }> {
  const { context, cache } = services;
  const reports = new Map(heartbeat.machines.map((report) => [report.machineId, report]));
  if (reports.size === 0 && !heartbeat.isComplete) return { unknown: [], absent: [] };
  let held: readonly MachineRecord[] = heartbeat.isComplete
    ? await listMachinesOfNode(context.db, nodeId)
    : await listMachinesOfNodeById(context.db, nodeId, [...reports.keys()]);
  const unknown = unknownOf(reports, held);
  const absent = absentOf(reports, held);
  for (let attempt = 0; attempt < WRITE_TRIES_MAX && held.length > 0; attempt += 1) {
    const changes = held.flatMap((machine) =>
      changeOf(machine, reports.get(machine.id), { now: context.clock.now(), isRestored, writtenAt }),
    );
    if (changes.length === 0) break;
    const written = await cache.write(changes);
    const lost = changes.map(({ next }) => next.id).filter((id) => !written.has(id));
    held = lost.length === 0 ? [] : await listMachinesOfNodeById(context.db, nodeId, lost);
  }
  return { unknown, absent };
}

function changeOf(
  machine: MachineRecord,
  report: ObservedMachine | undefined,
  { now, isRestored, writtenAt }: { readonly now: number; readonly isRestored: boolean; readonly writtenAt: number },
): readonly Change[] {
  if (report === undefined && !isRestored && writtenAt - machine.updatedAt < NO_TRACE_AFTER_MS) return [];
  const observation = report === undefined ? applyNoTrace(machine, now) : applyObservation(machine, report, now);
  return observation.outcome === "news" ? [observation.change] : [];
}

function unknownOf(reports: ReadonlyMap<string, ObservedMachine>, held: readonly MachineRecord[]): readonly string[] {
  const known = new Set(held.map(({ id }) => id));
  const unknown = [...reports.values()].filter(({ machineId, state }) => state !== "absent" && !known.has(machineId));
  return unknown.map(({ machineId }) => machineId);
}

function absentOf(
  reports: ReadonlyMap<string, ObservedMachine>,
  held: readonly MachineRecord[],
): readonly AbsentMachine[] {
  return held
    .filter(({ id, desiredState }) => desiredState === "absent" && (reports.get(id)?.state ?? "absent") !== "absent")
    .slice(0, ABSENT_MAX)
    .map(({ id, generation }) => ({ machineId: id, generation }));
}
