/**
 * `flotilla app deploy NAME IMAGE`: deploys an app, or updates the one of this name, and waits until the new
 * release serves. With --dry-run it only says what would be done.
 *
 * Always: only what was given is sent, so that the server's defaults, and what the app has, apply to the
 * rest. What is wrong with a field is the server's to say.
 */
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import type { DeployPlan, DeployRequest } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { localFailure, usage } from "../failure.ts";
import { readSecrets } from "../machine/secrets.ts";
import { endChange, type WaitOptions } from "./wait.ts";

export interface DeployOptions extends WaitOptions {
  readonly dryRun?: boolean;
  readonly file?: string;
  readonly replicas?: number;
  readonly port?: number;
  readonly cpus?: number;
  readonly memory?: number;
  readonly env?: Readonly<Record<string, string>>;
  readonly secret?: readonly string[];
  readonly health?: string;
  readonly domain?: string;
  readonly private?: boolean;
  readonly network: boolean;
  readonly grace?: number;
  readonly beside?: string;
  readonly strategy?: "rolling" | "canary" | "blueGreen";
  readonly batch?: number;
  readonly canaries?: number;
  readonly waitForPromote?: boolean;
  readonly placingDeadline?: number;
  readonly healthDeadline?: number;
}

export async function run(call: Call, operands: readonly string[], options: DeployOptions): Promise<number | void> {
  const file = options.file === undefined ? {} : await readRequest(call, options.file);
  const secrets = await readSecrets(call.world, options.secret ?? []);
  const request = deployRequest(file, operands, { ...options, secrets });
  const flotilla = call.flotilla();
  if (options.dryRun === true) return showPlan(call, await flotilla.planDeploy(request));
  return await endChange(call, await flotilla.deployApp(request), options);
}

async function readRequest({ world }: Call, file: string): Promise<Readonly<Record<string, unknown>>> {
  const path = resolve(world.directory, file);
  const text = await readFile(path, "utf8").catch((error: unknown) => {
    throw localFailure(error, file);
  });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw usage(`${file} is not JSON: ${(error as Error).message}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw usage(`${file} holds no JSON object`, 'it begins with {, as in {"name": "web", "image": "local/busybox"}');
  return value as Readonly<Record<string, unknown>>;
}

type Given = Omit<DeployOptions, keyof WaitOptions | "dryRun" | "file" | "secret"> & {
  readonly secrets: Readonly<Record<string, string>>;
};

/** The body: the file's fields, and over them what the command line gives. Pure. */
export function deployRequest(
  file: Readonly<Record<string, unknown>>,
  [givenName, givenImage]: readonly string[],
  given: Given,
): DeployRequest {
  const name = givenName ?? file["name"];
  const image = givenImage ?? file["image"];
  if (name === undefined) throw usage("the app has no name", "flotilla app deploy NAME IMAGE, or a file with --file");
  if (image === undefined)
    throw usage("the app has no image", 'flotilla app deploy NAME IMAGE, or "image" in the file of --file');
  const options = {
    replicas: given.replicas,
    port: given.port,
    cpus: given.cpus,
    memoryMb: given.memory,
    domain: given.domain,
    stopGraceSecs: given.grace,
    coLocateWith: given.beside,
    placingDeadlineSecs: given.placingDeadline,
    healthDeadlineSecs: given.healthDeadline,
    strategy: strategyOf(given),
    ...(given.private === true ? { publicIngress: false } : {}),
    ...(given.network ? {} : { network: false }),
    ...(given.health === undefined ? {} : { health: { type: "http", path: given.health } }),
    ...variables("env", file["env"], given.env ?? {}),
    ...variables("secretEnv", file["secretEnv"], given.secrets),
  };
  const set = Object.entries(options).filter(([, value]) => value !== undefined);
  return { ...file, name, image, ...Object.fromEntries(set) } as DeployRequest;
}

/** Variables of the command line replace those of the file with the same name. */
function variables(field: string, before: unknown, given: Readonly<Record<string, string>>): Record<string, unknown> {
  const added = Object.entries(given).map(([key, value]) => ({ key, value }));
  if (added.length === 0) return {};
  const kept = Array.isArray(before)
    ? (before as readonly unknown[]).filter((variable) => !isOneOf(given, variable))
    : [];
  return { [field]: [...kept, ...added] };
}

function isOneOf(given: Readonly<Record<string, string>>, variable: unknown): boolean {
  const key = typeof variable === "object" && variable !== null && "key" in variable ? variable.key : undefined;
  return typeof key === "string" && Object.hasOwn(given, key);
}

const STRATEGY_OF = {
  batch: ["--batch", "rolling"],
  canaries: ["--canaries", "canary"],
  waitForPromote: ["--wait-for-promote", "canary"],
} as const;

function strategyOf(given: Given): DeployRequest["strategy"] {
  const used = (["batch", "canaries", "waitForPromote"] as const).filter((name) => given[name] !== undefined);
  const [first] = used;
  const type = given.strategy ?? (first === undefined ? undefined : STRATEGY_OF[first][1]);
  const wrong = used.find((name) => STRATEGY_OF[name][1] !== type);
  if (wrong !== undefined) throw usage(`${STRATEGY_OF[wrong][0]} belongs to --strategy ${STRATEGY_OF[wrong][1]}`);
  switch (type) {
    case undefined:
      return undefined;
    case "rolling":
      return { type, ...(given.batch === undefined ? {} : { batchSize: given.batch }) };
    case "canary":
      return {
        type,
        ...(given.canaries === undefined ? {} : { canaryCount: given.canaries }),
        ...(given.waitForPromote === true ? { autoPromote: false } : {}),
      };
    case "blueGreen":
      return { type };
  }
}

function showPlan({ output }: Call, plan: DeployPlan): void {
  if (output.isJson) return output.json(plan);
  output.line(plan.why);
  for (const difference of plan.differences) output.line(`  ${difference}`);
  plan.steps.forEach((step, at) => output.line(`${String(at + 1).padStart(2)}. ${step}`));
}
