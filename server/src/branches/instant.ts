/**
 * Has a node make the instant of a machine that an operation needs.
 *
 * Always:
 * - A point whose making was interrupted on its node is replaced by another one, which everything of the
 *   operation then names.
 * - A node that does not answer is asked again for PATIENCE_MS.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { OperationRun } from "../family.ts";
import { makePoint, PointInterrupted } from "../link/points.ts";
import { NodeUnreachable } from "../link/refusals.ts";
import { type MachineRecord, nodeOf } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { findPoint, type MadePoint, notePointMade, replacePoint } from "./store.ts";

/** An agent that was restarted answers again within this time. */
const PATIENCE_MS = 30_000;
const PERIOD_MS = 250;

export interface Instant {
  /** The machine, as it is now. Throws a Refusal when no point of it can be made. */
  readonly source: () => Promise<MachineRecord>;
  readonly hasMemory: boolean;
  /** Machines boot from its disk too. */
  readonly isKept: boolean;
  /** Machines that begin with the point. */
  readonly cloneIds: readonly string[];
}

type InstantServices = Pick<MachineServices, "context" | "link">;

/** The point of the operation, made. */
export async function makeInstant(services: InstantServices, run: OperationRun, instant: Instant): Promise<MadePoint> {
  const { clock } = services.context;
  const since = clock.monotonic();
  for (;;) {
    const made = await tryInstant(services, run, instant).catch(async (error: unknown) => {
      const isOver = clock.monotonic() - since > PATIENCE_MS;
      if (!(error instanceof NodeUnreachable) || isOver || run.signal.aborted) throw error;
      await clock.sleep(PERIOD_MS, run.signal);
      run.signal.throwIfAborted();
      return null;
    });
    if (made !== null) return made;
  }
}

/** null: its making was interrupted, and another one is to be made. */
async function tryInstant(
  { context, link }: InstantServices,
  { operation, signal }: OperationRun,
  instant: Instant,
): Promise<MadePoint | null> {
  const { hasMemory, isKept, cloneIds } = instant;
  const point = await findPoint(context.db, operation.id);
  if (point === undefined) throw new Refusal("unavailable", "its node was removed for good");
  const source = await instant.source();
  const node = nodeOf(source);
  if (node.nodeId !== point.nodeId)
    throw new Refusal("conflict", `machine ${source.id} was moved to another node; try again`);
  try {
    const made = await makePoint(link, node, { pointId: point.id, machineId: source.id, hasMemory, isKept, signal });
    await notePointMade(context.db, point.id, made);
    return made;
  } catch (error) {
    if (!(error instanceof PointInterrupted)) throw error;
    const to = context.ids.make("point");
    await replacePoint(context, operation.id, { from: point.id, to, machineIds: cloneIds });
    return null;
  }
}
