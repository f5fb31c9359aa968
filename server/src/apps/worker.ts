/**
 * The operations of apps: each watches what a request has begun, and ends as that does. Steps do the work
 * (step.ts), whether or not anyone watches.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { OperationKind } from "@flotilla/contract/operations";
import type { OperationRecord, OperationRun, OperationWorker } from "../family.ts";
import type { MachineServices } from "../machines/services.ts";
import type { ChangeInput } from "./change.ts";
import { factsOf } from "./facts-of.ts";
import { besideCanaries } from "./rollout/canary.ts";
import { rowsOf } from "./step.ts";
import { endRollout, findAnyApp, findRollout, listInstances, lockApp } from "./store.ts";

const PERIOD_MS = 250;
/** How long the cancellation of a superseded operation may take to reach its worker. */
const CANCEL_MS = 10_000;

type Services = Pick<MachineServices, "context">;

/** What a watched thing came to; null: it continues, and `says` is what it waits for. */
type Look = { readonly isOver: true; readonly says: string } | { readonly isOver: false; readonly says: string };

const over = (says: string): Look => ({ isOver: true, says });
const on = (says: string): Look => ({ isOver: false, says });

export function appWorkers(services: Services): readonly OperationWorker[] {
  const rollouts = (["app deploy", "app redeploy", "app rollback"] as const).map((kind) => ({
    kind,
    work: (run: OperationRun) => watch(services, run, (input) => lookAtRollout(services, run, input, true)),
    undo: (operation: OperationRecord) => endCanceled(services, operation),
  }));
  const watching = (
    kind: OperationKind,
    look: (run: OperationRun, input: ChangeInput) => Promise<Look>,
  ): OperationWorker => ({
    kind,
    work: (run) => watch(services, run, (input) => look(run, input)),
  });
  return [
    ...rollouts,
    watching("app promote", (run, input) => lookAtRollout(services, run, input, false)),
    watching("app scale", (_, input) => lookAtCount(services, input)),
    watching("app destroy", (_, input) => lookAtEnd(services, input)),
  ];
}

async function watch(
  { context: { clock } }: Services,
  run: OperationRun,
  look: (input: ChangeInput) => Promise<Look>,
): Promise<void> {
  const [planned] = run.operation.steps;
  await run.step(planned?.name ?? run.operation.kind, async (say) => {
    for (;;) {
      const { isOver, says } = await look(run.operation.input as ChangeInput);
      if (isOver) return says;
      say(says);
      await clock.sleep(PERIOD_MS, run.signal);
      run.signal.throwIfAborted();
    }
  });
}

/** `isUpToPerson`: it is over, too, when a person has to promote it: that is another operation. */
async function lookAtRollout(
  { context: { db, clock } }: Services,
  { signal }: OperationRun,
  { appId, rolloutId = "" }: ChangeInput,
  isUpToPerson: boolean,
): Promise<Look> {
  const rollout = await findRollout(db, rolloutId);
  if (rollout === undefined) return over("nothing is left of it");
  const why = rollout.why ?? "it has ended";
  switch (rollout.outcome) {
    case null:
      break;
    case "succeeded":
      return over(why);
    case "failed":
      throw new Refusal("conflict", `release ${rollout.to} was rolled back: ${why}`);
    case "superseded":
      // The request that superseded it cancels this operation, unless its server died in between.
      await clock.sleep(CANCEL_MS, signal);
      signal.throwIfAborted();
      throw new Refusal("conflict", `the rollout of release ${rollout.to} was superseded: ${why}`);
  }
  const waitingFor = (await findAnyApp(db, appId))?.waitingFor ?? "its next step";
  const isWaiting = isUpToPerson && rollout.progress?.phase === "awaitingPromotion" && !rollout.isPromoted;
  return isWaiting ? over(`it waits for a promotion: ${waitingFor}`) : on(waitingFor);
}

/** The number is that of instances beside canaries, as long as these wait for a person. */
async function lookAtCount({ context: { db } }: Services, { appId, count }: ChangeInput): Promise<Look> {
  const app = await findAnyApp(db, appId);
  if (app === undefined || app.isDestroyed) throw new Refusal("conflict", "the app was destroyed");
  if (app.count !== count) throw new Refusal("conflict", `the app was scaled to ${app.count} instances meanwhile`);
  if (app.waitingFor === null) return over(`${app.count} instances serve`);
  const beside = besideCanaries(factsOf(await rowsOf(db, app)));
  if (beside === null) return on(app.waitingFor);
  const says = `${beside.serving} of ${app.count} instances serve beside the canaries`;
  return beside.isReached ? over(`${says}, which wait for a promotion`) : on(says);
}

async function lookAtEnd({ context: { db } }: Services, { appId }: ChangeInput): Promise<Look> {
  const rows = await listInstances(db, [appId]);
  // Instances of lost nodes end when their node is back.
  const left = rows.filter(({ isNodeLost, machine }) => !isNodeLost && machine !== null && machine.deletedAt === null);
  return left.length === 0 ? over("its instances have ended") : on(`${left.length} instances to end`);
}

/** A deploy that is canceled rolls back; one whose rollout has ended stays as that ended. */
async function endCanceled({ context }: Services, { input, status }: OperationRecord): Promise<void> {
  const { appId, rolloutId = "" } = input as ChangeInput;
  if (status !== "running") return;
  const { db, clock } = context;
  await db.transaction(async (transaction) => {
    await lockApp(transaction, appId);
    const why = "its operation was canceled, or over its deadline";
    await endRollout(transaction, rolloutId, { outcome: "failed", why, now: clock.now() });
  });
  await db.notify("apps", appId);
}
