/**
 * Steps every app that has something to do (step.ts), and makes and deletes machines as its rows say
 * (acts.ts).
 *
 * Always: two servers may step the same app: they do it one after the other, by the lock of its row. What a
 * dead server has written and not done is done by the next activation of any server.
 */
import { mapAtMost } from "@flotilla/base/concurrency";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Reconciler, Report } from "../family.ts";
import type { MachineServices } from "../machines/services.ts";
import { act } from "./acts.ts";
import { stepApp } from "./step.ts";
import { listDueApps } from "./store.ts";

const APPS_AT_A_TIME = 64;
const STEPPED_AT_A_TIME = 8;

export function appReconciler(services: MachineServices): Reconciler {
  return {
    name: "apps",
    purpose: "rolls releases of apps out, replaces instances that failed, and keeps the tables of targets",
    periodMs: 1_000,
    wakeOn: ["apps"],
    activate: (signal) => stepAll(services, signal),
  };
}

async function stepAll(services: MachineServices, signal: AbortSignal): Promise<Report> {
  const { db, clock } = services.context;
  const errors: string[] = [];
  const counts = { stepped: 0, changed: 0 };
  let after = "";
  for (;;) {
    const due = await listDueApps(db, { now: clock.now(), after, limit: APPS_AT_A_TIME });
    await mapAtMost(STEPPED_AT_A_TIME, due, async (id) => {
      if (signal.aborted) return;
      try {
        counts.stepped += 1;
        if (await stepAndAct(services, id, signal)) counts.changed += 1;
      } catch (error) {
        errors.push(`${id}: ${ownMessageOf(error)}`);
      }
    });
    after = due.at(-1) ?? after;
    // What was changed may be followed by another step at once.
    if (due.length < APPS_AT_A_TIME || signal.aborted)
      return { counts, errors, hasMore: counts.changed > 0 && errors.length === 0 };
  }
}

/** Whether anything was changed. */
async function stepAndAct(services: MachineServices, id: string, signal: AbortSignal): Promise<boolean> {
  const step = await stepApp(services.context, id);
  if (step === undefined) return false;
  if (step.routeVersion !== null) void services.context.db.notify("routes", id);
  await act(services, step.acts, signal);
  return step.hasChanged;
}
