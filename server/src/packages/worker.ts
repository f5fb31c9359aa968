/**
 * The work of an export: a lease on the repository, the export on the machine's node, and its record.
 *
 * Always:
 * - Exports of one machine run one after the other, the oldest first.
 * - While the node pushes, a lease keeps what it has pushed, and permits it to push there.
 * - A start of the machine is never held up: it ends the export.
 *
 * A crash in the middle leaves a lease that runs out, and blobs that no manifest names, which a collection
 * removes. The next server exports again: the node sends only what the registry does not have.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { ExportFault, ExportRequest } from "@flotilla/contract/link/packages";
import { machineNotFound } from "../auth/not-found.ts";
import type { OperationRecord, OperationRun, OperationWorker, StepFigures, StepResult } from "../family.ts";
import { type ExportDone, ExportFailed, exportMachine } from "../link/packages.ts";
import { NodeUnreachable } from "../link/refusals.ts";
import { type MachineRecord, nodeOf, pulledAs } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { hasOlderRunning } from "../operations/store.ts";
import type { Registry } from "../registry/registry.ts";
import { EXPORT_STEPS, type ExportInput, figuresOf, refuseUnexportable } from "./export.ts";
import type { ExportFigures } from "./figures.ts";
import { writePackageEvent } from "./store.ts";

const LOOK_MS = 500;
/** How long a node's agent may be unreachable, or fail for a reason that may be temporary. */
const NODE_PATIENCE_MS = 60_000;
const NODE_RETRY_MS = 2_000;
/** A lease lasts ten minutes after its last use. */
const LEASE_AGAIN_MS = 60_000;
const MB = 1024 ** 2;

type ExportServices = Pick<MachineServices, "cache" | "context" | "link">;
type Leases = Pick<Registry, "find" | "lease" | "release">;

export function exportWorker(services: ExportServices, registry: Leases, figures: ExportFigures): OperationWorker {
  return {
    kind: "machine export",
    async work(run) {
      const { clock } = services.context;
      let made: StepFigures | undefined = figuresOf(run.operation);
      await run.step(EXPORT_STEPS.wait, () => waitForOthers(services, run));
      await run.step(EXPORT_STEPS.export, async (say) => {
        const since = clock.monotonic();
        const done = await exportPatiently(services, registry, { run, say });
        figures.exported({ ...done, ms: clock.monotonic() - since });
        const result = resultOf(run.operation, done);
        made = result;
        return result;
      });
      await run.step(EXPORT_STEPS.record, () => record(services, registry, run.operation, made ?? {}));
    },
    undo: ({ id }) => registry.release(id),
  };
}

async function waitForOthers({ context }: ExportServices, { operation, signal }: OperationRun): Promise<string> {
  let hasWaited = false;
  while (await hasOlderRunning(context.db, operation)) {
    hasWaited = true;
    await context.clock.sleep(LOOK_MS, signal);
    signal.throwIfAborted();
  }
  return hasWaited ? "they have ended" : "there are none";
}

interface Exporting {
  readonly run: OperationRun;
  readonly say: (message: string) => void;
}

/** Continues when the node's agent restarts during the export; the registry keeps what it was sent. */
async function exportPatiently(services: ExportServices, registry: Leases, exporting: Exporting): Promise<ExportDone> {
  const { clock } = services.context;
  const { run, say } = exporting;
  let lastProgressAt = clock.monotonic();
  const onProgress = (): void => {
    lastProgressAt = clock.monotonic();
  };
  for (;;) {
    try {
      return await exportOnce(services, registry, { ...exporting, onProgress });
    } catch (error) {
      run.signal.throwIfAborted();
      const isTemporary = error instanceof NodeUnreachable || (error instanceof ExportFailed && error.fault === null);
      if (!isTemporary || clock.monotonic() - lastProgressAt > NODE_PATIENCE_MS) throw refusalOf(run.operation, error);
      say(`it is tried again: ${error.message}`);
    }
    await clock.sleep(NODE_RETRY_MS, run.signal);
  }
}

async function exportOnce(
  services: ExportServices,
  registry: Leases,
  { run, say, onProgress }: Exporting & { readonly onProgress: () => void },
): Promise<ExportDone> {
  const { operation, signal } = run;
  const { clock, log } = services.context;
  const machine = await machineOf(services, operation);
  const node = nodeOf(machine);
  const { repository } = operation.input as ExportInput;
  const lease = { repository, holder: operation.id, nodeId: node.nodeId, tenantId: operation.tenantId };
  await registry.lease(lease, signal);
  let leasedAt = clock.monotonic();
  return await exportMachine(services.link, node, {
    ...{ machineId: machine.id, request: requestOf(machine, operation), signal },
    onProgress({ message, doneBytes, totalBytes }) {
      onProgress();
      const share = totalBytes === 0 ? "" : ` (${megabytes(doneBytes)} of ${megabytes(totalBytes)} MB)`;
      say(`${message}${share}`);
      if (clock.monotonic() - leasedAt < LEASE_AGAIN_MS) return;
      leasedAt = clock.monotonic();
      registry.lease(lease, signal).catch((error: unknown) => {
        log.warn({ operationId: operation.id, error }, "the lease of an export could not be made longer");
      });
    },
  });
}

const megabytes = (bytes: number): number => Math.ceil(bytes / MB);

/** The machine, if it can be exported now. */
async function machineOf({ cache }: ExportServices, { tenantId, input }: OperationRecord): Promise<MachineRecord> {
  const { machineId } = input as ExportInput;
  const machine = await cache.read({ tenantId, id: machineId });
  if (machine === undefined) throw machineNotFound(machineId);
  refuseUnexportable(machine);
  return machine;
}

/** Secret variables are in no package. */
function requestOf(machine: MachineRecord, operation: OperationRecord): ExportRequest {
  const { repository, tag, includesEnv } = operation.input as ExportInput;
  const { command, env, workdir, ports, labels, source } = machine;
  return {
    ...{ operationId: operation.id, repository, tag },
    image: { reference: pulledAs(source), digest: null },
    configuration: {
      // A machine's command replaces both of its image.
      ...{ entrypoint: command === null ? null : [], command: command === null ? null : [...command] },
      ...{ env: includesEnv ? { ...env } : null, workdir, user: null },
    },
    ports: ports.map(({ port }) => port),
    labels: { ...labels },
    architecture: source.arch ?? null,
  };
}

const CODES: Readonly<Record<ExportFault, "conflict" | "no_space" | "quota_exceeded" | "unavailable">> = {
  ...{ not_found: "conflict", not_stopped: "conflict", suspended: "conflict", started: "conflict" },
  ...{ no_space: "no_space", refused: "quota_exceeded", unreadable: "conflict" },
};

function refusalOf({ input }: OperationRecord, error: unknown): unknown {
  if (!(error instanceof ExportFailed)) return error;
  const { machineId } = input as ExportInput;
  const code = error.fault === null ? "unavailable" : CODES[error.fault];
  return new Refusal(code, `machine ${machineId} was not exported: ${error.message}`);
}

function resultOf({ input }: OperationRecord, done: ExportDone): StepResult {
  const { digest, sizeBytes, sentBytes, layers, sentLayers, platforms } = done;
  const { repository, tag } = input as ExportInput;
  const reference = `${repository}:${tag}`;
  const sent = `${sentLayers} of ${layers} layers sent, ${megabytes(sentBytes)} of ${megabytes(sizeBytes)} MB`;
  return { message: `${digest}: ${sent}`, reference, digest, sizeBytes, sentBytes, platforms: [...platforms] };
}

async function record(
  { context }: ExportServices,
  registry: Leases,
  { id, tenantId, input }: OperationRecord,
  { digest = "", sizeBytes = 0, sentBytes = 0 }: StepFigures,
): Promise<string> {
  const { machineId, repository, tag } = input as ExportInput;
  if ((await registry.find({ repository, target: digest })) === null)
    throw new Refusal("unavailable", `package ${repository}@${digest} was deleted while it was exported`);
  const reference = `${repository}:${tag}`;
  const data = { reference, digest, machineId, sizeBytes, sentBytes };
  await writePackageEvent(context, { tenantId, repository }, { type: "package.exported", data });
  await registry.release(id);
  return reference;
}
