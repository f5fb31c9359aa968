/**
 * The names of the API's schemas, which every printer of the contract uses: the OpenAPI document and the SDK.
 *
 * Always:
 * - A schema that a module of the list exports has the name of its export.
 * - Equal schemas share one name, and no two names mean the same or two schemas.
 * - A body, query or answer that only one endpoint has, and no module exports, is named after the endpoint
 *   (`StopMachineQuery`). One that several have is exported under its own name.
 * - Every endpoint is of a module of the list. Anything else is an Error when this module is loaded.
 */
import * as apikeys from "./apikeys.ts";
import * as apps from "./apps.ts";
import * as audit from "./audit.ts";
import * as billing from "./billing.ts";
import * as branches from "./branches.ts";
import * as checkpoints from "./checkpoints.ts";
import * as consoles from "./console.ts";
import type { Answer, Endpoint } from "./endpoint.ts";
import { endpointList } from "./endpoints.ts";
import * as events from "./events.ts";
import * as exec from "./exec.ts";
import * as files from "./files.ts";
import * as hooks from "./hooks.ts";
import * as images from "./images.ts";
import * as loops from "./loops.ts";
import * as logs from "./logs.ts";
import * as machines from "./machines.ts";
import * as nodes from "./nodes.ts";
import * as operations from "./operations.ts";
import * as packages from "./packages.ts";
import * as placement from "./placement.ts";
import * as plans from "./plans.ts";
import * as pools from "./pools.ts";
import * as registry from "./registry.ts";
import * as refusalDetails from "./refusal-details.ts";
import * as schema from "./schema.ts";
import type { TSchema } from "./schema.ts";
import * as status from "./status.ts";
import * as tenants from "./tenants.ts";
import * as usage from "./usage.ts";
import * as volumes from "./volumes.ts";
import * as webhooks from "./webhooks.ts";

type Module = Readonly<Record<string, unknown>>;
type Endpoints = readonly (readonly [string, Endpoint])[];

const MODULES: readonly Module[] = [
  apikeys,
  apps,
  audit,
  billing,
  branches,
  checkpoints,
  consoles,
  events,
  exec,
  files,
  hooks,
  images,
  loops,
  logs,
  machines,
  nodes,
  operations,
  packages,
  placement,
  plans,
  pools,
  registry,
  refusalDetails,
  schema,
  status,
  tenants,
  usage,
  volumes,
  webhooks,
];

export interface Shapes {
  readonly byName: ReadonlyMap<string, TSchema>;
  nameOf(schema: unknown): string | undefined;
}

/** The schemas of all families. */
export const shapes = nameShapes(MODULES, endpointList);

/** Names the exported schemas, then the others that the endpoints have. */
export function nameShapes(modules: readonly Module[], endpoints: Endpoints): Shapes {
  const byName = new Map<string, TSchema>();
  const names = new Map<string, string>();
  const give = (name: string, schema: TSchema, text: string): void => {
    const other = names.get(text);
    if (other !== undefined && other !== name) throw new Error(`${other} and ${name} are the same schema: keep one`);
    if (other === undefined && byName.has(name)) throw new Error(`two schemas are called ${name}: rename one`);
    byName.set(name, schema);
    names.set(text, name);
  };
  for (const [name, value] of modules.flatMap((module) => Object.entries(module)))
    if (isNamed(name, value)) give(name, value, JSON.stringify(value));

  checkModules(modules, endpoints);
  const unnamed = endpoints
    .flatMap(([name, endpoint]) => unnamedShapes(name, endpoint))
    .filter(({ text }) => !names.has(text));
  for (const [text, uses] of Map.groupBy(unnamed, (use) => use.text)) {
    const [first] = uses;
    if (first === undefined) continue;
    const users = new Set(uses.map(({ name }) => name));
    if (users.size > 1) throw new Error(`${[...users].join(" and ")} are the same schema: export it under one name`);
    give(first.name, first.schema, text);
  }
  return { byName, nameOf: (value) => names.get(JSON.stringify(value)) };
}

/** The exports of a module that are schemas: `MachineInfo`, but neither `machineEndpoints` nor `STATES`. */
function isNamed(name: string, value: unknown): value is TSchema {
  if (!/^[A-Z][a-z]/.test(name) || typeof value !== "object" || value === null) return false;
  return "type" in value || "anyOf" in value;
}

/** Throws when an endpoint is of none of the modules, whose schemas would be without names. */
function checkModules(modules: readonly Module[], endpoints: Endpoints): void {
  const tables = modules.flatMap((module) => Object.entries(module)).filter(([name]) => name.endsWith("Endpoints"));
  const known = new Set(tables.flatMap(([, table]) => Object.values(table as Record<string, Endpoint>)));
  for (const [name, endpoint] of endpoints)
    if (!known.has(endpoint)) throw new Error(`shapes.ts does not list the module of ${name}`);
}

interface Use {
  readonly name: string;
  readonly schema: TSchema;
  readonly text: string;
}

/** The objects of an endpoint, with names that say what they are of it. */
function unnamedShapes(name: string, { query, body, answers }: Endpoint): readonly Use[] {
  const pascal = name.slice(0, 1).toUpperCase() + name.slice(1);
  const found: readonly (readonly [string, TSchema | undefined])[] = [
    [`${pascal}Query`, query],
    [`${pascal}Request`, body?.kind === "json" ? body.schema : undefined],
    ...Object.values(answers).map((answer) => [`${pascal}Answer`, schemaOf(answer)] as const),
  ];
  return found.flatMap(([own, schema]) =>
    schema !== undefined && isObject(schema) ? [{ name: own, schema, text: JSON.stringify(schema) }] : [],
  );
}

function schemaOf(answer: Answer): TSchema | undefined {
  if (answer.kind === "json") return answer.schema;
  return answer.kind === "stream" ? answer.orJson : undefined;
}

/** Whether values of a schema are objects of named fields, or one of several such. */
function isObject(schema: unknown): boolean {
  if (typeof schema !== "object" || schema === null) return false;
  return "properties" in schema || ("anyOf" in schema && (schema.anyOf as readonly unknown[]).every(isObject));
}
