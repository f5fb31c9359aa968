/**
 * What a deploy would do, and why an app is as it is: in sentences, without a change.
 */
import type { AppExplanation, DeployPlan, DeployRequest } from "@flotilla/contract/apps";
import type { MachineServices } from "../machines/services.ts";
import {
  type Asked,
  inputsOf,
  presentRelease,
  refuseDeployment,
  situationOf,
  type Deployment,
  deploymentOf,
} from "./deploy.ts";
import { factsOf, SETTLED_SURGE } from "./facts-of.ts";
import { instanceId, type InstanceRow } from "./instances.ts";
import { readApp } from "./reading.ts";
import { rehearse, sentencesOf } from "./rehearse.ts";
import { checkName, differences } from "./release.ts";
import { DECISIONS } from "./requests.ts";
import type { AppFacts, Instance } from "./rollout/facts.ts";
import { plan } from "./rollout/plan.ts";
import { rowsOf } from "./step.ts";
import { type AppName, findActiveRollout, findApp } from "./store.ts";
import { readingFacts, statusOf } from "./view.ts";

/** Throws what the deploy would throw, apart from what other requests do meanwhile. */
export async function planDeploy(
  services: MachineServices,
  request: DeployRequest,
  { tenantId, signal }: Pick<Asked, "tenantId" | "signal">,
): Promise<DeployPlan> {
  const { db, clock } = services.context;
  const name = { tenantId, name: checkName(request.name) };
  const deployment = await deploymentOf(services, request, { tenantId, signal });
  await refuseDeployment(services, { name, deployment });
  const app = await findApp(db, name);
  const rollout = app && (await findActiveRollout(db, app.id));
  const present = app && (await presentRelease(db, app, rollout));
  const { effect, why } = DECISIONS.deploy[situationOf(app, rollout)];
  const changed = present === undefined ? [] : differences(inputsOf(services, present), deployment.inputs);
  const count = deployment.count ?? app?.count ?? 1;
  const known = app === undefined ? newFacts(count) : { ...factsOf(await rowsOf(db, app)), count };
  if (present !== undefined && changed.length === 0) {
    const sentences = sentencesOf(plan(known, clock.now()));
    return {
      effect: "none",
      why: "no input differs from the present release",
      release: null,
      differences: [],
      steps: [...sentences],
    };
  }
  const release = (app?.lastRelease ?? 0) + 1;
  const steps = rehearse({ ...known, rollout: rolloutOf(deployment, release) }, clock.now());
  const isNew = effect === "create" || effect === "begin" || effect === "supersede";
  return { effect: isNew ? effect : "begin", why, release, differences: [...changed], steps: [...steps] };
}

const rolloutOf = ({ course }: Deployment, to: number): AppFacts["rollout"] => ({
  to,
  strategy: course.strategy,
  isPromoted: false,
  progress: null,
  placingMs: course.placingMs,
  checkingMs: course.checkingMs,
});

const newFacts = (count: number): AppFacts => ({
  count,
  isDestroyed: false,
  current: null,
  rollout: null,
  instances: [],
  surge: SETTLED_SURGE,
  graceMs: 0,
  unhealthyMs: 0,
  retryAt: null,
});

export async function explainApp(
  { context }: Pick<MachineServices, "context">,
  name: AppName,
): Promise<AppExplanation> {
  const reading = await readApp(context.db, name);
  const { app, rows } = reading;
  const facts = readingFacts(reading);
  const planned = plan(facts, context.clock.now());
  const rowOf = new Map(rows.map((row) => [row.machineId, row]));
  return {
    status: statusOf(app, facts),
    waitingFor: planned.waitingFor,
    next: [...sentencesOf(planned)],
    instances: facts.instances.flatMap((instance) => {
      const row = rowOf.get(instance.id);
      if (row === undefined || instance.state === "gone") return [];
      return [{ id: instanceId(instance.id), sentence: sentenceOf(instance, row) }];
    }),
    failures: app.failures,
    retryAt: app.retryAt === null ? null : new Date(app.retryAt).toISOString(),
    lastFailure: app.failure,
  };
}

function sentenceOf(instance: Instance, { release, retiredWhy, isNodeDrained }: InstanceRow): string {
  const { state, health, isRouted, isConfirmed, openRequests, nodeId, reason } = instance;
  const drained = isNodeDrained ? ", which is drained" : "";
  const where = nodeId === null ? "on no node yet" : `on node ${nodeId}${drained}`;
  const traffic = isRouted
    ? `it gets requests${isConfirmed ? "" : " once every ingress knows it"}`
    : `it gets no requests${isConfirmed ? "" : " once every ingress knows it"}`;
  const checked = state === "running" ? `, ${health === "unknown" ? "not checked yet" : health}` : "";
  const because = reason === null ? "" : ` (${reason})`;
  const leaves = retiredWhy === null ? "" : `; it leaves, because ${retiredWhy}, with ${openRequests} open requests`;
  return `release ${release}, ${state}${checked}${because}, ${where}; ${traffic}${leaves}`;
}
