/**
 * Makes and starts the machines of instances, and stops and deletes those that are not wanted, as rows say.
 *
 * Always: an act may be repeated, also by two servers at once: a machine is made once for its id, and stopped
 * and deleted once. What refuses a machine is written into its instance's row, and the next plan knows it.
 * A machine that runs is stopped, and deleted when it has stopped or its time is over.
 */
import { mapAtMost } from "@flotilla/base/concurrency";
import { ownMessageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import { APP_DISK_GB } from "@flotilla/contract/limits";
import type { CreateMachineRequest } from "@flotilla/contract/machines";
import { createMachine } from "../machines/create.ts";
import { deleteIfMade } from "../machines/remove.ts";
import type { MachineServices } from "../machines/services.ts";
import { startMachine, type StartOptions } from "../machines/start.ts";
import { phaseOf } from "../machines/state.ts";
import { stopMachine } from "../machines/stop.ts";
import { type InstanceRow, isHopelessCode } from "./instances.ts";
import type { Acts } from "./step.ts";
import { type AppRecord, countOnNodes, findReleases, listNodesBeside, type ReleaseRecord } from "./store.ts";
import { noteInstanceError } from "./step-store.ts";
import { hostOf } from "./view.ts";

const AT_A_TIME = 8;
/** How long a machine may take to stop, apart from its grace. */
const STOP_MS_MAX = 60_000;

/** Names the app of a machine; invoices are grouped by it. */
const APP_LABEL = "app";
const RELEASE_LABEL = "flotilla-release";

export async function act(services: MachineServices, { app, make, remove }: Acts, signal: AbortSignal): Promise<void> {
  const numbers = new Set(make.map(({ release }) => release));
  const names = [...numbers].map((number) => ({ appId: app.id, number }));
  const releases = new Map(
    (names.length === 0 ? [] : await findReleases(services.context.db, names)).map((each) => [each.number, each]),
  );
  const beside = make.length === 0 ? [] : await listNodesBeside(services.context.db, app);
  const onNodes = make.length === 0 ? [] : await countOnNodes(services.context.db, app.id);
  const siblings = new Map(
    [...numbers].map((number) => {
      const own = onNodes.filter(({ release }) => release === number);
      return [number, new Map(own.map(({ nodeId, count }) => [nodeId, count]))] as const;
    }),
  );
  const numbered = make.map((each, at) => ({ ...each, at }));
  await mapAtMost(AT_A_TIME, numbered, async ({ machineId, release: number, at }) => {
    const release = releases.get(number);
    // Instances that are made together take turns.
    const from = beside.length === 0 ? 0 : at % beside.length;
    const preferredNodes = [...beside.slice(from), ...beside.slice(0, from)];
    const placing = { preferredNodes, siblings: siblings.get(number) ?? new Map<string, number>() };
    if (release !== undefined) await makeInstance(services, { app, release, machineId, placing, signal });
  });
  await mapAtMost(AT_A_TIME, remove, (row) => removeInstance(services, app, row));
}

interface Making {
  readonly app: AppRecord;
  readonly release: ReleaseRecord;
  readonly machineId: string;
  readonly placing: Required<Pick<StartOptions, "preferredNodes" | "siblings">>;
  readonly signal: AbortSignal;
}

async function makeInstance(services: MachineServices, making: Making): Promise<void> {
  const { app, release, machineId: id, placing, signal } = making;
  const { tenantId, createdBy: keyId } = app;
  const { health } = release.spec;
  try {
    const request = requestOf(services, making);
    const checked = health === null ? {} : { health: { ...health, host: hostOf(services.addresses, app) } };
    await createMachine(services, { id, tenantId, keyId, request, isInstance: true, ...checked });
    await startMachine(services, { id, tenantId, keyId, isAutomatic: false, isDetached: true, ...placing, signal });
  } catch (error) {
    // Deleted meanwhile: the next plan knows.
    if (!(error instanceof Refusal) || error.code === "not_found") {
      if (error instanceof Refusal) return;
      throw error;
    }
    const refusal = { error: ownMessageOf(error), isHopeless: isHopelessCode(error.code) };
    await noteInstanceError(services.context.db, id, refusal);
    await services.context.db.notify("apps", app.id);
  }
}

function requestOf(
  { secrets }: Pick<MachineServices, "secrets">,
  { app, release, machineId }: Making,
): CreateMachineRequest {
  const { spec, secretEnv, resolvedImage, number } = release;
  return {
    source: { type: "image", reference: resolvedImage },
    name: `${app.name.slice(0, 54)}-${machineId.slice(-8)}`,
    resources: { cpus: spec.cpus, memoryMb: spec.memoryMb, diskGb: APP_DISK_GB },
    network: { mode: spec.hasNetwork ? "open" : "blocked" },
    env: { ...spec.env },
    secretEnv: secretEnv === null ? {} : secrets.open(app.id, secretEnv),
    ports: [{ port: spec.port }],
    labels: { [APP_LABEL]: app.name, [RELEASE_LABEL]: String(number) },
  };
}

async function removeInstance(services: MachineServices, { tenantId }: AppRecord, row: InstanceRow): Promise<void> {
  const { machineId: id, machine, removedAt, isNodeLost } = row;
  if (machine === null) return;
  const { clock } = services.context;
  const phase = phaseOf(machine);
  const isLate = removedAt !== null && clock.now() - removedAt > STOP_MS_MAX;
  if (phase === "stopping" && !isLate) return;
  if ((phase === "running" || phase === "starting") && !isNodeLost && !isLate) {
    // Its node answers when it has stopped; the row that changes then wakes its app.
    const { signal } = new AbortController();
    services.inBackground(`stop of ${id}`, async () => {
      await stopMachine(services, { tenantId, id, signal }).catch((error: unknown) => {
        if (!(error instanceof Refusal)) throw error;
      });
    });
    return;
  }
  await deleteIfMade(services, { tenantId, id });
}
