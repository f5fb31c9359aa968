/**
 * Creates a machine: from a request to a row, with defaults filled in. Nothing is booted and no image is
 * looked up; of a package the digest is.
 *
 * Always:
 * - The statement that inserts the row checks the count ceiling and the name, so concurrent creates never
 *   exceed the ceiling and give one machine per name.
 * - If the id is taken, the same request under an idempotency key made the machine and its answer was lost:
 *   that machine is the answer.
 * - A machine has the requested sizes or the documented defaults, and is refused if its plan allows less.
 *   Only the default disk is reduced to the plan.
 */
import { isIP } from "node:net";
import { Refusal } from "@flotilla/contract/errors";
import { HOOK_MOMENTS, type MachineHooks } from "@flotilla/contract/hooks";
import { CPUS_DEFAULT, DISK_GB_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import type { MachineHealthCheck } from "@flotilla/contract/link/link";
import type { CreateMachineRequest, MachineNetwork } from "@flotilla/contract/machines";
import { type MadeFrom, madeFrom } from "./from-package.ts";
import { checkAbsolutePath, checkArguments, checkEnvironment } from "./environment.ts";
import { generatedName } from "./names.ts";
import { refuseOverBudget } from "../usage/budget.ts";
import { type Ceilings, countRefusal, diskRefusal, refuseOversize } from "../usage/quota.ts";
import { NOTHING_OBSERVED } from "./observed.ts";
import type { MachineDescription, MachineRecord } from "./record.ts";
import type { MachineServices } from "./services.ts";
import { findAnyMachine, type Insertion, insertMachine } from "./store.ts";
import { readTotals } from "../usage/store.ts";

/** A generated name that is taken is replaced; the chance of a collision is one in hundreds of millions. */
const NAME_TRIES_MAX = 5;

const refuse = (text: string): never => {
  throw new Refusal("invalid_request", text);
};

type CreateServices = Pick<
  MachineServices,
  "cache" | "ceilingsOf" | "context" | "nodes" | "plansUrl" | "portsPerMachine" | "registries" | "registry" | "secrets"
>;

interface CreateOptions {
  readonly id: string;
  readonly tenantId: string;
  readonly keyId: string;
  readonly request: CreateMachineRequest;
  /** Whether another machine may replace it. */
  readonly isFenced?: boolean;
  /** How its node checks it. */
  readonly health?: MachineHealthCheck;
  /** An app owns it: it does not count against the number of machines. */
  readonly isInstance?: boolean;
}

export async function createMachine(services: CreateServices, options: CreateOptions): Promise<MachineRecord> {
  const { plansUrl } = services;
  const { request } = options;
  const ceilings = await services.ceilingsOf(options.tenantId);
  const secretEnv = secretsOf(request);
  const secretNames = Object.keys(secretEnv);
  const made = await madeFrom(services, request, options.tenantId);
  const description = {
    ...describe(request, made, { ceilings, portsMax: services.portsPerMachine }),
    health: options.health ?? null,
    origin: null,
    secretNames,
    secretEnv: secretNames.length === 0 ? null : services.secrets.seal(options.id, secretEnv),
  };
  refuseOversize(description, request.resources, { ceilings, plansUrl, path: "resources." });
  return await insertDescribed(services, options, { ...description, name: request.name ?? null }, ceilings);
}

/** What machines that begin as another one are made with, besides its secret variables. */
export type KeptMachine = Omit<MachineDescription, "health" | "origin" | "secretEnv">;

/** A machine, or what is kept of it. */
export interface BranchSource extends KeptMachine, Pick<MachineRecord, "tenantId" | "secretEnv"> {
  /** The owner of its secret variables. */
  readonly id: string;
}

/**
 * Creates a machine like another one, with its secret variables, that begins as a branch of it. Throws the
 * Refusals of a create.
 */
export async function createBranchOf(
  services: CreateServices,
  source: BranchSource,
  branch: Pick<MachineRecord, "id" | "name" | "origin"> & {
    readonly keyId: string;
    /** Its published ports; null: those of the other. */
    readonly ports: CreateMachineRequest["ports"] | null;
    /** Values of its secret variables; null: those of the other. */
    readonly secretEnv: Readonly<Record<string, string>> | null;
  },
): Promise<MachineRecord> {
  const { id, name, origin, keyId, ports } = branch;
  const ceilings = await services.ceilingsOf(source.tenantId);
  const description: MachineDescription = {
    ...source,
    // No app owns it.
    ...{ name, origin, health: null },
    ports: ports === null ? source.ports : portsOf(ports, services.portsPerMachine),
    secretEnv: secretsOfBranch(services, source, branch),
  };
  refuseOversize(description, {}, { ceilings, plansUrl: services.plansUrl, path: "" });
  return await insertDescribed(services, { id, tenantId: source.tenantId, keyId }, description, ceilings);
}

function secretsOfBranch(
  { secrets }: Pick<CreateServices, "secrets">,
  { id, env, secretEnv: known }: BranchSource,
  branch: { readonly id: string; readonly secretEnv: Readonly<Record<string, string>> | null },
): Buffer | null {
  if (known === null) return null;
  const { secretEnv } = branch;
  if (secretEnv !== null) checkEnvironment({ ...env, ...secretEnv });
  return secrets.seal(branch.id, secretEnv ?? secrets.open(id, known));
}

/** Inserts it if the tenant may have it. `description.name` null: a name is generated. */
async function insertDescribed(
  services: CreateServices,
  options: Omit<CreateOptions, "request" | "health">,
  description: MachineDescription,
  ceilings: Ceilings,
): Promise<MachineRecord> {
  const { plansUrl } = services;
  await refuseOverBudget(services.context, options.tenantId, ceilings);
  const given = description.name;
  for (let attempt = 1; ; attempt += 1) {
    const name = given ?? generatedName(services.context.randomBytes);
    const { outcome, machine } = await insert(services, options, { ...description, name }, ceilings);
    if (outcome === "inserted") return machine;
    const made = await findAnyMachine(services.context.db, options.id);
    if (made?.tenantId === options.tenantId) return made;
    if (outcome === "overCount") throw countRefusal(ceilings, plansUrl);
    if (outcome === "overDisk") {
      const held = await readTotals(services.context.db, options.tenantId);
      throw diskRefusal(description.diskGb, held, ceilings, plansUrl);
    }
    if (given === null && attempt < NAME_TRIES_MAX) continue;
    const text = `a machine with the name ${name} exists already; choose another name or delete that machine`;
    throw new Refusal("name_taken", text);
  }
}

/**
 * Throws a Refusal when the tenant's plan forbids every machine of this size, whose fields the request itself
 * has.
 */
export async function refuseForbiddenSize(
  services: Pick<MachineServices, "ceilingsOf" | "plansUrl">,
  tenantId: string,
  named: CreateMachineRequest["resources"],
): Promise<void> {
  const ceilings = await services.ceilingsOf(tenantId);
  refuseOversize(sizeOf(named, ceilings), named, { ceilings, plansUrl: services.plansUrl, path: "" });
}

/** The requested size, or the defaults. */
const sizeOf = (resources: CreateMachineRequest["resources"], ceilings: Ceilings) => ({
  cpus: resources?.cpus ?? CPUS_DEFAULT,
  memoryMb: resources?.memoryMb ?? MEMORY_MB_DEFAULT,
  diskGb: resources?.diskGb ?? Math.min(DISK_GB_DEFAULT, Math.max(1, ceilings.maxDiskGb)),
});

async function insert(
  { context, cache }: Pick<MachineServices, "context" | "cache">,
  { id, tenantId, keyId, isFenced, isInstance }: Omit<CreateOptions, "request" | "health">,
  description: MachineDescription,
  ceilings: Ceilings,
): Promise<{ readonly outcome: Insertion; readonly machine: MachineRecord }> {
  const machine: MachineRecord = {
    ...description,
    ...NEVER_STARTED,
    fence: isFenced === true ? "on" : null,
    id,
    tenantId,
    // An id is the label of any machine. Most get a shorter one, which is read when they start.
    hostName: id,
    createdBy: keyId,
    createdAt: context.clock.now(),
    updatedAt: context.clock.now(),
    desiredAt: context.clock.now(),
  };
  let outcome: Insertion = "overCount";
  await cache.keep([machine.id], async () => {
    outcome = await insertMachine(context, machine, isInstance === true ? null : ceilings.maxMachines);
    return outcome === "inserted" ? [machine] : [];
  });
  return { outcome, machine };
}

const NEVER_STARTED = {
  desiredState: "stopped",
  keepsMemory: false,
  generation: 1,
  nodeId: null,
  moveId: null,
  moveStops: false,
  moveNodeId: null,
  movedBy: null,
  fence: null,
  error: null,
  isAutoStarted: false,
  hasRun: false,
  ...NOTHING_OBSERVED,
  reconcileAt: null,
  revision: 1,
  lastActivityAt: null,
  deletedAt: null,
  nodeStatus: null,
  nodeAddress: null,
} as const satisfies Partial<MachineRecord>;

/** The request with defaults, without a name. */
function describe(
  request: CreateMachineRequest,
  made: MadeFrom,
  { ceilings, portsMax }: { readonly ceilings: Ceilings; readonly portsMax: number },
): Omit<MachineDescription, "name" | "health" | "origin" | "secretNames" | "secretEnv"> {
  const { resources } = request;
  const command = request.command ?? [];
  return {
    source: made.source,
    network: networkOf(request.network),
    env: checkEnvironment(request.env),
    command: command.length === 0 ? null : checkArguments(command, "put it into the image"),
    ports: portsOf(request.ports, portsMax),
    hooks: hooksOf(request.hooks),
    labels: { ...request.labels },
    workdir: checkAbsolutePath(request.workdir, "workdir"),
    ...sizeOf(resources, ceilings),
    ...(made.diskGb === null ? {} : { diskGb: made.diskGb }),
    isEphemeral: request.ephemeral ?? false,
    isPublic: request.public ?? false,
    isBranchable: request.branchable === true || request.forkable === true,
    autoStopSeconds: request.autoStopSeconds ?? null,
    ttlSeconds: request.ttlSeconds ?? null,
    atEnd: request.atEnd ?? "delete",
    restart: request.restart ?? "always",
    // Nothing is lost by it that another choice keeps, so it is right for callers that do not know the field.
    disruption: request.disruption ?? "migrate",
    nodeLabels: { ...request.nodeLabels },
  };
}

/** The secret variables. Throws if one is also in `env`, or if all variables together are too large. */
function secretsOf({ env, secretEnv }: CreateMachineRequest): Record<string, string> {
  const both = Object.keys(secretEnv ?? {}).find((name) => Object.hasOwn(env ?? {}, name));
  if (both !== undefined) refuse(`${both} is in env and in secretEnv; leave it out of one of them`);
  checkEnvironment({ ...env, ...secretEnv });
  return { ...secretEnv };
}

/** The hooks as given, without what is null. */
function hooksOf(hooks: CreateMachineRequest["hooks"]): MachineHooks | null {
  const given = HOOK_MOMENTS.flatMap((moment) => {
    const hook = hooks?.[moment] ?? null;
    if (hook === null) return [];
    const { timeoutSecs } = hook;
    const command = checkArguments(hook.command, "put it into the image", `hooks.${moment}.command`);
    return [[moment, { command: [...command], ...(typeof timeoutSecs === "number" && { timeoutSecs }) }] as const];
  });
  return given.length === 0 ? null : Object.fromEntries(given);
}

function networkOf(network: CreateMachineRequest["network"]): MachineNetwork {
  const mode = network?.mode ?? "open";
  if (mode !== "allowCidrs") return { mode };
  const cidrs = (network?.cidrs ?? []).map(cidrOf);
  const hosts = (network?.hosts ?? []).map(hostOf);
  if (cidrs.length + hosts.length === 0) refuse("allowCidrs network mode requires at least one CIDR or host");
  return { mode, cidrs, hosts };
}

/** An address alone is a network with one address. */
function cidrOf(text: string): string {
  const [address = "", prefix, ...rest] = text.trim().split("/");
  // A zone names an interface of one host, and means nothing on another.
  if (address.includes("%"))
    refuse(`network cidr ${JSON.stringify(text)} has a zone; write the network without "%" and what follows it`);
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

function portsOf(ports: CreateMachineRequest["ports"], max: number): readonly { readonly port: number }[] {
  const numbers = new Set((ports ?? []).map(({ port }) => port));
  if (numbers.size > max) refuse(`a machine publishes at most ${max} ports here; the operator may allow more`);
  return [...numbers].map((port) => ({ port }));
}
