/**
 * Creates a machine: from a request to a row, with defaults filled in. Nothing is booted and no image is looked up.
 *
 * Always: the count ceiling and the name are decided by the one statement that inserts, so that any number of creates
 * at once gives exactly the ceiling and one machine per name. One that finds its own id taken was made already, by the same
 * request under an idempotency key, whose answer was lost: that machine is the answer.
 */
import { isIP } from "node:net";
import { Refusal } from "@flotilla/contract/errors";
import { CPUS_DEFAULT, DISK_GB_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import type { CreateMachineRequest, MachineNetwork } from "@flotilla/contract/machines";
import { checkReference } from "../images/reference.ts";
import { checkAbsolutePath, checkArguments, checkEnvironment } from "./environment.ts";
import { type Ceilings, countRefusal, diskRefusal, refuseOversize } from "./quota.ts";
import type { MachineDescription, MachineRecord } from "./record.ts";
import type { MachineServices } from "./services.ts";
import { findAnyMachine, type Insertion, insertMachine } from "./store.ts";
import { readTotals } from "./usage-store.ts";

/** How many ports a machine may publish. The contract allows more, for sites that raise this. */
const PUBLISHED_PORTS_MAX = 4;

const refuse = (text: string): never => {
  throw new Refusal("invalid_request", text);
};

export async function createMachine(
  services: MachineServices,
  options: {
    readonly id: string;
    readonly tenantId: string;
    readonly keyId: string;
    readonly request: CreateMachineRequest;
  },
): Promise<MachineRecord> {
  const { context, plansUrl } = services;
  const ceilings = await services.ceilingsOf(options.tenantId);
  const description = describe(options.request, ceilings);
  checkReference(services.registries, description.source.reference);
  refuseOversize(description, ceilings, plansUrl);
  const { id } = options;
  const machine: MachineRecord = {
    ...NEVER_STARTED,
    ...description,
    id,
    tenantId: options.tenantId,
    // Good for any machine; the database gives it a shorter one if it can.
    hostLabel: id,
    createdBy: options.keyId,
    createdAt: context.clock.now(),
    updatedAt: context.clock.now(),
    desiredAt: context.clock.now(),
  };
  let outcome: Insertion | undefined;
  await services.cache.keep([machine.id], async () => {
    outcome = await insertMachine(context, machine, ceilings.maxMachines);
    return outcome === "inserted" ? [machine] : [];
  });
  if (outcome !== "inserted") {
    const made = await findAnyMachine(context.db, id);
    if (made?.tenantId === options.tenantId) return made;
  }
  if (outcome === "overCount") throw countRefusal(ceilings, plansUrl);
  if (outcome === "overDisk") {
    const held = await readTotals(context.db, options.tenantId);
    throw diskRefusal(description.diskGb, held, ceilings, plansUrl);
  }
  if (outcome === "nameTaken") {
    const text = `a machine with the name ${machine.name} exists already; choose another name or delete that machine`;
    throw new Refusal("name_taken", text);
  }
  return machine;
}

const NEVER_STARTED = {
  desiredState: "stopped",
  generation: 1,
  nodeId: null,
  error: null,
  isAutoStarted: false,
  hasRun: false,
  observedState: "absent",
  observedGeneration: 0,
  observedBootId: null,
  observedReason: null,
  observedProgress: null,
  observedHostPorts: [],
  observedTimings: null,
  readyAt: null,
  reconcileAt: null,
  revision: 1,
  lastActivityAt: null,
  deletedAt: null,
  nodeStatus: null,
  nodeAddress: null,
} as const satisfies Partial<MachineRecord>;

/** The request with defaults. A default is never more than the plan allows; what was asked for is left as it is. */
function describe(request: CreateMachineRequest, ceilings: Ceilings): MachineDescription {
  const { source, resources } = request;
  if (source.type === "smolmachine") refuse("packaged machines cannot be started yet; use a source of type image");
  const command = request.command ?? [];
  return {
    name: request.name ?? null,
    source: {
      type: source.type,
      reference: source.reference,
      ...(source.arch === null || source.arch === undefined ? {} : { arch: source.arch }),
    },
    network: networkOf(request.network),
    env: checkEnvironment(request.env),
    command: command.length === 0 ? null : checkArguments(command, "put it into the image"),
    ports: portsOf(request.ports),
    labels: { ...request.labels },
    workdir: checkAbsolutePath(request.workdir, "workdir"),
    cpus: resources?.cpus ?? Math.min(CPUS_DEFAULT, Math.max(1, ceilings.maxCpus)),
    memoryMb: resources?.memoryMb ?? Math.min(MEMORY_MB_DEFAULT, Math.max(1, ceilings.maxMemoryMb)),
    diskGb: resources?.diskGb ?? Math.min(DISK_GB_DEFAULT, Math.max(1, ceilings.maxDiskGb)),
    isEphemeral: request.ephemeral ?? false,
    isPublic: request.public ?? false,
    isBranchable: request.branchable ?? request.forkable ?? false,
    autoStopSeconds: request.autoStopSeconds ?? null,
    ttlSeconds: request.ttlSeconds ?? null,
    restart: request.restart ?? "always",
  };
}

function networkOf(network: CreateMachineRequest["network"]): MachineNetwork {
  const mode = network?.mode ?? "open";
  if (mode !== "allowCidrs") return { mode };
  const cidrs = (network?.cidrs ?? []).map(cidrOf);
  const hosts = (network?.hosts ?? []).map(hostOf);
  if (cidrs.length + hosts.length === 0) refuse("allowCidrs network mode requires at least one CIDR or host");
  return { mode, cidrs, hosts };
}

/** An address alone is a network of one. */
function cidrOf(text: string): string {
  const [address = "", prefix, ...rest] = text.trim().split("/");
  const family = isIP(address);
  const bits = family === 6 ? 128 : 32;
  const isGood = family !== 0 && rest.length === 0 && (prefix === undefined || /^\d{1,3}$/.test(prefix));
  if (!isGood || Number(prefix ?? bits) > bits)
    refuse(`network cidr ${JSON.stringify(text)} is not a network such as 10.0.0.0/8 or 2001:db8::/32`);
  return `${address}/${Number(prefix ?? bits)}`;
}

function hostOf(text: string): string {
  const host = text.trim().toLowerCase().replace(/\.$/, "");
  const label = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?";
  if (!new RegExp(`^(\\*\\.)?${label}(\\.${label})*$`).test(host) || isIP(host) !== 0)
    refuse(`network host ${JSON.stringify(text)} is not a host name such as api.example.com`);
  return host;
}

function portsOf(ports: CreateMachineRequest["ports"]): readonly { readonly port: number }[] {
  const numbers = new Set((ports ?? []).map(({ port }) => port));
  if (numbers.size > PUBLISHED_PORTS_MAX) refuse(`a machine publishes at most ${PUBLISHED_PORTS_MAX} ports`);
  return [...numbers].map((port) => ({ port }));
}
