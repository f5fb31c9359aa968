/**
 * Makes what a machine starts from: its image, and its disk.
 *
 * A crash leaves an incomplete image, whose pull the next attempt continues, or half a disk, which is made
 * again.
 */
import type { NewEvent } from "@flotilla/contract/event-types";
import type { Point } from "../../points/points.ts";
import type { Machine } from "../machine.ts";
import { boot } from "./boot.ts";

/** Progress is reported at most this often. */
const PROGRESS_PERIOD_MS = 250;

export async function ensureImage(machine: Machine, signal: AbortSignal): Promise<void> {
  const { clock } = machine.deps;
  const startedAt = clock.monotonic();
  let reportedAt = startedAt;
  const report = {
    event: (event: NewEvent): void => machine.event(event),
    progress: (message: string): void => {
      machine.progress = message;
      if (clock.monotonic() - reportedAt < PROGRESS_PERIOD_MS) return;
      reportedAt = clock.monotonic();
      machine.changed();
    },
  };
  const point = pointOf(machine);
  if (point === null) {
    const imageDigest = await machine.disk.ensureImage(machine.requiredSpec(), report, signal);
    void machine.update({ imageDigest });
  } else {
    void machine.update(await machine.disk.ensureImageOf(point));
  }
  machine.timings.note({ imageMs: clock.monotonic() - startedAt });
}

/** The point from which the machine starts; null: from its image. Throws when the node does not have it. */
function pointOf(machine: Machine): Point | null {
  const { point } = machine.requiredSpec();
  if (point === undefined) return null;
  const found = machine.deps.points.find(point.pointId);
  if (found === undefined) throw new Error("the point from which it starts is not on its node");
  return found;
}

/** The layers are in the journal before the disk is on top of them, so that they are kept. */
async function makeDiskFrom(machine: Machine, signal: AbortSignal): Promise<void> {
  const { clock } = machine.deps;
  const startedAt = clock.monotonic();
  const spec = machine.requiredSpec();
  const found = pointOf(machine);
  if (found === null) return;
  const { pointId, layers } = found;
  await machine.update({ layers: [pointId, ...layers] });
  // It may have been released meanwhile.
  const point = pointOf(machine);
  signal.throwIfAborted();
  if (point === null) return;
  const hasMemory = spec.point?.hasMemory === true;
  const memory = await machine.disk.makeFrom(point, hasMemory, { spec, uid: machine.journal.uid });
  await machine.update({ hasDisk: true, memory });
  machine.timings.note({ diskMs: clock.monotonic() - startedAt });
}

/**
 * Makes the machine's disk, or takes a prepared VM that has such a disk and starts it at once, because no
 * other machine can use it. If that is interrupted, a disk that was made is in the journal.
 */
export async function makeDisk(machine: Machine, signal: AbortSignal): Promise<void> {
  const { clock } = machine.deps;
  const startedAt = clock.monotonic();
  if (pointOf(machine) !== null) return await makeDiskFrom(machine, signal);
  const waiting = await machine.disk.make(machine.requiredSpec(), machine.journal.uid, signal);
  void machine.update({ hasDisk: true });
  machine.timings.note({ diskMs: clock.monotonic() - startedAt });
  if (waiting !== undefined) await boot(machine, signal, waiting);
}
