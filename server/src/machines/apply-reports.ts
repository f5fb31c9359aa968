/**
 * Applies a node's report of its machines, all of them in one statement.
 *
 * Always:
 * - observe.ts decides, and one fenced statement writes the changes of all machines. A machine that lost its
 *   fence is read and decided again.
 * - A report that changes nothing costs one read and no write. Whether an uncertain boot has ended is read
 *   after the row: the write is refused when the row has changed since, so no end is missed that was recorded
 *   with a change of the row.
 * - A machine that the node does not own according to the database is left as it is: the database may have
 *   lost it.
 */
import type { AbsentMachine, Heartbeat, ObservedMachine } from "@flotilla/contract/link/link";
import { ABSENT_MAX } from "@flotilla/contract/link/reports";
import type { Change } from "./change.ts";
import { applyObservation, applyNoTrace, uncertainBoot } from "./observe.ts";
import type { MachineRecord } from "./record.ts";
import { listEndedBoots } from "./run-store.ts";
import type { MachineServices } from "./services.ts";
import { listMachinesOfNode, listMachinesOfNodeById } from "./store.ts";

const WRITE_TRIES_MAX = 4;
/** How many are read with those of other nodes and requests; more have a statement for themselves. */
const READ_TOGETHER_MAX = 8;
/**
 * A complete report that was written before a machine came to the node may arrive after it, by this time at
 * most if it was sent in time.
 */
const NO_TRACE_AFTER_MS = 15_000;

/**
 * Returns the machines that the node has and does not own, and those that it is to remove. `isRestored`: it
 * is the node's first report since the database was restored, until which no machine came to the node: what
 * it does not have is gone, however short ago its row was changed. `writtenAt`: epoch milliseconds of the
 * server's clock; the report may be much older than its arrival.
 */
export async function applyReports(
  services: Pick<MachineServices, "cache" | "context">,
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
    : await machinesOfNode(services, nodeId, [...reports.keys()]);
  const unknown = unknownOf(reports, held);
  const absent = absentOf(reports, held);
  for (let attempt = 0; attempt < WRITE_TRIES_MAX && held.length > 0; attempt += 1) {
    const endedBoots = await listEndedBoots(context.db, uncertainBoots(reports, held));
    const about = { now: context.clock.now(), isRestored, writtenAt, endedBoots };
    const changes = held.flatMap((machine) => changeOf(machine, reports.get(machine.id), about));
    if (changes.length === 0) break;
    const written = await cache.write(changes);
    const lost = changes.map(({ next }) => next.id).filter((id) => !written.has(id));
    held = lost.length === 0 ? [] : await machinesOfNode(services, nodeId, lost);
  }
  return { unknown, absent };
}

async function machinesOfNode(
  { context, cache }: Pick<MachineServices, "cache" | "context">,
  nodeId: string,
  ids: readonly string[],
): Promise<readonly MachineRecord[]> {
  if (ids.length > READ_TOGETHER_MAX) return await listMachinesOfNodeById(context.db, nodeId, ids);
  const machines = await Promise.all(ids.map((id) => cache.readAny(id)));
  return machines.filter((machine) => machine !== undefined && machine.nodeId === nodeId) as readonly MachineRecord[];
}

function changeOf(
  machine: MachineRecord,
  report: ObservedMachine | undefined,
  about: {
    readonly now: number;
    readonly isRestored: boolean;
    readonly writtenAt: number;
    readonly endedBoots: ReadonlySet<string>;
  },
): readonly Change[] {
  const { now, isRestored, writtenAt, endedBoots } = about;
  if (report === undefined && !isRestored && writtenAt - machine.updatedAt < NO_TRACE_AFTER_MS) return [];
  const observation =
    report === undefined ? applyNoTrace(machine, now) : applyObservation(machine, report, now, endedBoots);
  return observation.outcome === "news" ? [observation.change] : [];
}

function uncertainBoots(
  reports: ReadonlyMap<string, ObservedMachine>,
  held: readonly MachineRecord[],
): readonly string[] {
  return held.flatMap((machine) => {
    const report = reports.get(machine.id);
    return report === undefined ? [] : (uncertainBoot(machine, report) ?? []);
  });
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
