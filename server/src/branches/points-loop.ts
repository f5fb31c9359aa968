/**
 * Has nodes remove the branch points from which no further machine is made: those of operations that have
 * ended, and those that were replaced.
 *
 * Deletes rows of branch_points, after their nodes have answered. Two servers may ask for the same point: the
 * node's verb is idempotent.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import type { MachineServices } from "../machines/services.ts";
import type { Reconciler } from "../family.ts";
import { removePoint } from "../link/points.ts";
import { deletePoint, listUnusedPoints, type UnusedPoint } from "./store.ts";

const POINTS_PER_ACTIVATION_MAX = 64;

export function pointReconciler(services: Pick<MachineServices, "context" | "link">): Reconciler {
  const { context, link } = services;
  const remove = async ({ id, nodeId, address }: UnusedPoint, signal: AbortSignal): Promise<void> => {
    if (address !== null) await removePoint(link, { nodeId, address }, { pointId: id, signal });
    await deletePoint(context.db, id);
  };
  return {
    name: "points",
    purpose: "has nodes remove the branch points from which no further machine is made",
    periodMs: 2_000,
    wakeOn: [],
    async activate(signal) {
      const points = await listUnusedPoints(context.db, POINTS_PER_ACTIVATION_MAX);
      const errors: string[] = [];
      await Promise.all(
        points.map((point) =>
          remove(point, signal).catch((error: unknown) => {
            errors.push(`${point.id}: ${ownMessageOf(error)}`);
          }),
        ),
      );
      const removed = points.length - errors.length;
      return { counts: { removed }, errors, hasMore: removed === POINTS_PER_ACTIVATION_MAX };
    },
  };
}
