/**
 * What a release is: the inputs of instances, from a request, and in what two of them differ. Pure.
 *
 * Always: equal inputs make equal instances, so a deploy of the same inputs begins no rollout. How a release
 * is rolled out (its course) is not an input.
 */
import { isIP } from "node:net";
import type { DeployRequest, DeployStrategy, HealthCheck } from "@flotilla/contract/apps";
import { Refusal } from "@flotilla/contract/errors";
import {
  APP_CPUS_DEFAULT,
  APP_MEMORY_MB_DEFAULT,
  APP_PORT_DEFAULT,
  HEALTH_INTERVAL_MS_DEFAULT,
  HEALTH_RETRIES_DEFAULT,
  HEALTH_TIMEOUT_MS_DEFAULT,
  HEALTHY_SECONDS_DEFAULT,
  PLACING_SECONDS_DEFAULT,
  STOP_GRACE_SECONDS_DEFAULT,
} from "@flotilla/contract/limits";
import type { MachineAddresses } from "../machines/addresses.ts";
import { checkArguments, checkEnvironment } from "../machines/environment.ts";
import type { Strategy } from "./rollout/facts.ts";

/** How instances are checked; their node adds the host. Durations in milliseconds. */
export interface HealthSpec {
  readonly type: "http" | "tcp" | "exec";
  readonly path: string | null;
  readonly port: number | null;
  readonly command: readonly string[] | null;
  readonly intervalMs: number;
  readonly timeoutMs: number;
  readonly retries: number;
}

/** The inputs of instances, apart from their image and their secrets. */
export interface ReleaseSpec {
  readonly cpus: number;
  readonly memoryMb: number;
  readonly port: number;
  readonly env: Readonly<Record<string, string>>;
  readonly hasNetwork: boolean;
  /** How long open requests of an instance that leaves may continue. */
  readonly graceMs: number;
  /** null: an instance is healthy once its port accepts connections. */
  readonly health: HealthSpec | null;
}

/** All inputs of instances. */
export interface Inputs {
  /** As it was asked for. */
  readonly image: string;
  readonly digest: string;
  readonly spec: ReleaseSpec;
  readonly secretEnv: Readonly<Record<string, string>>;
}

/** How a release is rolled out. */
export interface Course {
  readonly strategy: Strategy;
  /** While it is rolled out, its health check decides; otherwise an instance serves once its port accepts. */
  readonly usesHealthCheck: boolean;
  readonly placingMs: number;
  readonly checkingMs: number;
}

const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
/** An id of anything is a host name by itself. */
const ID = /^[a-z]+-[0-9a-f]{32}$/;

const refuse = (field: string, text: string): never => {
  throw new Refusal("invalid_request", text, { field });
};

/** The name of an app. Throws a Refusal that says what a name is. */
export function checkName(name: string): string {
  const isGood = LABEL.test(name) && !ID.test(name);
  const shown = JSON.stringify(name);
  return isGood
    ? name
    : refuse("name", `name ${shown} is not a host label: up to 63 lower-case letters, digits and "-" between them`);
}

/**
 * A domain in lower case. No app may have a host of the fleet itself: it would get the keys of its tenants.
 */
export function checkDomain(domain: string, fleet: Pick<MachineAddresses, "isNamed" | "isOwnHost">): string {
  const host = domain.toLowerCase().replace(/\.$/, "");
  const labels = host.split(".");
  const isGood = labels.length > 1 && labels.every((label) => LABEL.test(label)) && isIP(host) === 0;
  if (!isGood || host.length > 253)
    return refuse("domain", `domain ${JSON.stringify(domain)} is not a host name such as shop.example.com`);
  if (fleet.isOwnHost(host))
    return refuse("domain", `domain ${host} is one of this fleet; leave it out, and the app has a name below it`);
  if (!fleet.isNamed) {
    const text = `domain ${host} might be one of this fleet, which does not know its own: its operator sets FLOTILLA_PUBLIC_URL`;
    throw new Refusal("conflict", text, { field: "domain" });
  }
  return host;
}

/**
 * The inputs of a request, without its image. `exposedPort`: the image's; null: it has none, or is not known
 * yet. Throws a Refusal that names the field.
 */
export function specOf(request: DeployRequest, exposedPort: number | null = null): ReleaseSpec {
  const port = request.port ?? exposedPort ?? APP_PORT_DEFAULT;
  return {
    cpus: request.cpus ?? APP_CPUS_DEFAULT,
    memoryMb: request.memoryMb ?? APP_MEMORY_MB_DEFAULT,
    port,
    env: variables("env", request.env),
    hasNetwork: request.network ?? true,
    graceMs: (request.stopGraceSecs ?? STOP_GRACE_SECONDS_DEFAULT) * 1000,
    health: request.health === null || request.health === undefined ? null : healthOf(request.health, port),
  };
}

/** The secret variables. Throws if one is in `env` too, or if all variables together are too large. */
export function secretsOf({ env, secretEnv }: DeployRequest): Record<string, string> {
  const plain = variables("env", env);
  const secret = variables("secretEnv", secretEnv);
  const both = Object.keys(secret).find((name) => Object.hasOwn(plain, name));
  if (both !== undefined) refuse("secretEnv", `${both} is in env and in secretEnv; leave it out of one of them`);
  checkEnvironment({ ...plain, ...secret });
  return secret;
}

function variables(field: string, given: DeployRequest["env"]): Record<string, string> {
  const pairs = given ?? [];
  const names = new Set(pairs.map(({ key }) => key));
  if (names.size < pairs.length) {
    const twice = pairs.find(({ key }, at) => pairs.findIndex((each) => each.key === key) !== at);
    refuse(field, `${field} has ${twice?.key ?? ""} twice; leave one of them out`);
  }
  return checkEnvironment(Object.fromEntries(pairs.map(({ key, value }) => [key, value])));
}

function healthOf(check: HealthCheck, port: number): HealthSpec {
  const { type } = check;
  const command = check.command ?? null;
  if (type === "exec" && command === null)
    refuse("health.command", "health.command is missing: an exec check runs a command in the instance");
  if (type !== "exec" && command !== null)
    refuse("health.command", `health.command is of exec checks, and health.type is ${type}; leave it out`);
  if (type !== "http" && (check.path ?? null) !== null)
    refuse("health.path", `health.path is of http checks, and health.type is ${type}; leave it out`);
  const path = check.path ?? "/";
  if (type === "http" && !/^\/[\x21-\x7e]{0,2047}$/.test(path))
    refuse("health.path", `health.path ${JSON.stringify(path)} is not a path; begin it with "/" and write no spaces`);
  return {
    type,
    path: type === "http" ? path : null,
    port: type === "exec" ? null : (check.port ?? port),
    command: command === null ? null : checkArguments(command, "put it into the image"),
    intervalMs: (check.intervalSecs ?? HEALTH_INTERVAL_MS_DEFAULT / 1000) * 1000,
    timeoutMs: (check.timeoutSecs ?? HEALTH_TIMEOUT_MS_DEFAULT / 1000) * 1000,
    retries: check.retries ?? HEALTH_RETRIES_DEFAULT,
  };
}

const WAIT_SECONDS_DEFAULT = 5;

export function courseOf(
  request: Pick<DeployRequest, "strategy" | "placingDeadlineSecs" | "healthDeadlineSecs">,
): Course {
  const strategy = request.strategy ?? { type: "rolling" };
  return {
    strategy: strategyOf(strategy),
    usesHealthCheck: strategy.type !== "rolling" || (strategy.useHealthCheck ?? true),
    placingMs: (request.placingDeadlineSecs ?? PLACING_SECONDS_DEFAULT) * 1000,
    checkingMs: (request.healthDeadlineSecs ?? HEALTHY_SECONDS_DEFAULT) * 1000,
  };
}

function strategyOf(strategy: DeployStrategy): Strategy {
  switch (strategy.type) {
    case "rolling": {
      const pauses = strategy.useHealthCheck === false;
      const waitMs = pauses ? (strategy.waitSeconds ?? WAIT_SECONDS_DEFAULT) * 1000 : 0;
      return { type: "rolling", batchSize: strategy.batchSize ?? 1, waitMs };
    }
    case "canary":
      return { type: "canary", canaryCount: strategy.canaryCount ?? 1, autoPromote: strategy.autoPromote ?? true };
    case "blueGreen":
      return { type: "blueGreen" };
  }
}

/** How many instances more than asked a strategy may use. */
export function surgeOf(strategy: Strategy, count: number): number {
  switch (strategy.type) {
    case "rolling":
      return strategy.batchSize;
    case "canary":
      return strategy.canaryCount;
    case "blueGreen":
      return count;
  }
}

/** In what the inputs differ, a phrase for each, without any value that may be secret; empty: in nothing. */
export function differences(before: Inputs, after: Inputs): readonly string[] {
  const [one, other] = [before.spec, after.spec];
  const simple = (name: string, from: unknown, to: unknown): readonly string[] => {
    const [was, is] = [JSON.stringify(from), JSON.stringify(to)];
    return was === is ? [] : [`${name} ${was} → ${is}`];
  };
  return [
    ...(before.digest === after.digest
      ? []
      : [`image ${before.image} (${before.digest}) → ${after.image} (${after.digest})`]),
    ...simple("cpus", one.cpus, other.cpus),
    ...simple("memoryMb", one.memoryMb, other.memoryMb),
    ...simple("port", one.port, other.port),
    ...simple("network", one.hasNetwork, other.hasNetwork),
    ...simple("stopGraceSecs", one.graceMs / 1000, other.graceMs / 1000),
    ...simple("health", one.health && sorted(one.health), other.health && sorted(other.health)),
    ...names("env", one.env, other.env),
    ...names("secretEnv", before.secretEnv, after.secretEnv),
  ];
}

/** PostgreSQL keeps the fields of a document in an order of its choice. */
const sorted = (value: object): object =>
  Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));

function names(
  field: string,
  before: Readonly<Record<string, string>>,
  after: Readonly<Record<string, string>>,
): readonly string[] {
  const all = [...new Set([...Object.keys(before), ...Object.keys(after)])].toSorted();
  const changed = all.filter((name) => before[name] !== after[name]);
  return changed.length === 0 ? [] : [`${field} ${changed.join(", ")}`];
}
