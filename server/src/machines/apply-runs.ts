/**
 * Writes the runs that a node reports, those that have ended first, and returns the sequence up to which they
 * are acknowledged.
 *
 * Always: a run is acknowledged after it is written. A run of a machine that the database does not know on
 * that node is logged and acknowledged: no tenant can be billed for it.
 *
 * A report that holds every open run of the node also ends the open runs that the node does not know any
 * more: its journal was lost, or the database was restored to an earlier state. They end at the node's
 * previous report, or where a later run of their machine begins.
 */
import type { Run, RunReport } from "@flotilla/contract/link/link";
import type { Context } from "../context.ts";
import { endForgottenRuns, writeRuns } from "./run-store.ts";

/** Runs named in one line of the log. */
const LOGGED_MAX = 20;

/**
 * Writes the runs that have ended. Call it before the heartbeat is recorded: until a run has ended, it is
 * billed up to the last heartbeat of its node.
 */
export async function applyEndedRuns(context: Context, nodeId: string, { runs }: RunReport): Promise<void> {
  const ended = runs.filter(({ endedAt }) => endedAt !== null);
  await write(context, nodeId, ended);
}

/**
 * Writes the others, after `applyEndedRuns`. `lastReportAt`: epoch milliseconds of the node's previous
 * report; null: there was none. `isRestored`: as of `endForgottenRuns`.
 */
export async function applyOpenRuns(
  context: Context,
  node: { readonly id: string; readonly lastReportAt: number | null; readonly isRestored: boolean },
  { runs, sequence, isComplete }: RunReport,
): Promise<number> {
  const open = runs.filter(({ endedAt }) => endedAt === null);
  if (isComplete) {
    // The start of a run says by when one that the node has lost had ended.
    await write(context, node.id, open);
    const bootIds = runs.map(({ bootId }) => bootId);
    const endedAt = node.lastReportAt ?? 0;
    const count = await endForgottenRuns(context, { ...node, sequence, bootIds, endedAt });
    if (count > 0)
      context.log.warn({ nodeId: node.id, count }, "ended open runs that their node does not know any more");
  }
  await write(context, node.id, open);
  return isComplete ? sequence : (runs.at(-1)?.sequence ?? 0);
}

async function write(context: Context, nodeId: string, runs: readonly Run[]): Promise<void> {
  if (runs.length === 0) return;
  const unknown = await writeRuns(context, nodeId, runs);
  const boots = unknown.slice(0, LOGGED_MAX);
  if (unknown.length > 0)
    context.log.warn({ nodeId, boots, count: unknown.length }, "runs of unknown machines were not recorded");
}
