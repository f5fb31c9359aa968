/**
 * The contract as an OpenAPI 3.1 document. Pure: the same endpoints give the same document.
 *
 * Always: every path of an endpoint is there, aliases too; every refusal it may give is listed by status; schemas
 * that the contract exports under a name are components under that name, all others stand where they are used.
 */
import * as apikeys from "./apikeys.ts";
import * as apps from "./apps.ts";
import * as branches from "./branches.ts";
import type { Access, Answer, Endpoint } from "./endpoint.ts";
import { endpointList } from "./endpoints.ts";
import { ERRORS, type ErrorCode } from "./errors.ts";
import * as exec from "./exec.ts";
import * as files from "./files.ts";
import * as health from "./health.ts";
import * as images from "./images.ts";
import * as machines from "./machines.ts";
import * as nodes from "./nodes.ts";
import * as operations from "./operations.ts";
import * as plans from "./plans.ts";
import * as pools from "./pools.ts";
import type { TSchema } from "./schema.ts";
import * as tenants from "./tenants.ts";
import * as usage from "./usage.ts";

type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json };
interface JsonObject {
  readonly [name: string]: Json;
}

export const API_VERSION = "0.1.0";

const MODULES: readonly Readonly<Record<string, unknown>>[] = [
  apikeys,
  apps,
  branches,
  exec,
  files,
  health,
  images,
  machines,
  nodes,
  operations,
  plans,
  pools,
  tenants,
  usage,
];

const INTRODUCTION = `Machines are persistent microVMs; apps are replicated images. Send an API key as \
\`Authorization: Bearer smk_…\`. Errors are one plain sentence, or RFC 9457 JSON when you accept it; \
\`x-error-code\` names the code and \`x-request-id\` finds the request in the server's log.`;

/** The refusals that an endpoint may give without declaring them. */
export function commonErrors(endpoint: Endpoint): readonly ErrorCode[] {
  const codes: ErrorCode[] = ["internal"];
  // Also where no body is declared: one is read and ignored. What is streamed has no limit of its own.
  if (!isStreamed(endpoint) && endpoint.method !== "GET") codes.push("body_too_large");
  if (endpoint.query !== undefined) codes.push("invalid_body");
  if (endpoint.access === "public") return codes;
  codes.push("missing_key", "unknown_key", "unavailable");
  if (isNodeAccess(endpoint.access)) return codes;
  codes.push("expired_key", "payment_required", "rate_limited");
  if (endpoint.access !== "anyKey") codes.push("missing_scope");
  if (endpoint.method === "POST" && endpoint.body?.kind !== "bytes")
    codes.push("idempotency_in_progress", "idempotency_mismatch");
  return codes;
}

const isStreamed = ({ body, isBridge }: Endpoint): boolean => body?.kind === "bytes" || isBridge === true;

const isNodeAccess = (access: Access): boolean => access === "joinToken" || access === "nodeCredential";

/** The whole document, ready for JSON.stringify. */
export function openApiDocument(endpoints: readonly (readonly [string, Endpoint])[] = endpointList): JsonObject {
  const names = namedSchemas();
  const used = new Set<TSchema>();
  const print = printer(names, used);
  const paths: Record<string, Record<string, Json>> = {};
  for (const [name, endpoint] of endpoints) {
    for (const [index, path] of [endpoint.path, ...(endpoint.aliases ?? [])].entries()) {
      const operations = (paths[path.replace("...}", "}")] ??= {});
      const id = index === 0 ? name : `${name}Alias${index === 1 ? "" : index}`;
      operations[endpoint.method.toLowerCase()] = operation(id, path, endpoint, print);
    }
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Flotilla",
      version: API_VERSION,
      description: INTRODUCTION,
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    security: [{ bearer: [] }],
    tags: [...new Set(endpoints.map(([, { family }]) => family))].map((name) => ({ name })),
    paths,
    components: {
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer", description: "an API key" },
        nodeBearer: { type: "http", scheme: "bearer", description: "a node's join token or credential" },
      },
      schemas: components(names, used, print),
    },
  };
}

type Print = (schema: TSchema) => Json;

/** Schemas that modules export, by the name under which they do. The first name wins. */
function namedSchemas(): ReadonlyMap<TSchema, string> {
  const names = new Map<TSchema, string>();
  for (const module of MODULES) {
    for (const [name, value] of Object.entries(module)) {
      const isSchema = typeof value === "object" && value !== null && /^[A-Z][a-z]/.test(name) && "type" in value;
      if (isSchema && !names.has(value)) names.set(value, name);
    }
  }
  return names;
}

/** Prints schemas with references in place of named ones, and notes which names are used. */
function printer(names: ReadonlyMap<TSchema, string>, used: Set<TSchema>): Print {
  const print = (value: unknown): Json => {
    if (Array.isArray(value)) return value.map(print);
    if (typeof value !== "object" || value === null) return value as Json;
    const name = names.get(value);
    if (name === undefined) return printFields(value);
    used.add(value);
    return { $ref: `#/components/schemas/${name}` };
  };
  const printFields = (value: object): Json =>
    Object.fromEntries(Object.entries(value).map(([name, item]) => [name, print(item)]));
  return print;
}

/** Printing one component may use others, so this goes on until nothing new turns up. */
function components(names: ReadonlyMap<TSchema, string>, used: Set<TSchema>, print: Print): JsonObject {
  const printed = new Map<string, Json>();
  for (const schema of used) {
    const fields = Object.entries(schema).map(([name, value]) => [name, print(value as TSchema)] as const);
    printed.set(names.get(schema) ?? "", Object.fromEntries(fields));
  }
  printed.set("Problem", PROBLEM);
  return Object.fromEntries([...printed].sort(([left], [right]) => (left < right ? -1 : 1)));
}

const PROBLEM: Json = {
  type: "object",
  description: "RFC 9457, for callers that accept JSON",
  required: ["type", "title", "status", "detail", "code", "requestId"],
  properties: {
    type: { type: "string" },
    title: { type: "string" },
    status: { type: "integer" },
    detail: { type: "string" },
    code: { type: "string", enum: Object.keys(ERRORS) },
    requestId: { type: "string" },
  },
};

/** Without a key the body is empty; this is the form for a key that is not good. */
const UNAUTHORIZED: Json = {
  "application/json": {
    schema: {
      type: "object",
      required: ["code", "error"],
      properties: { code: { type: "string" }, error: { type: "string" } },
    },
  },
};

const REFUSED: Json = {
  "text/plain": { schema: { type: "string" } },
  "application/problem+json": { schema: { $ref: "#/components/schemas/Problem" } },
};

function operation(id: string, path: string, endpoint: Endpoint, print: Print): Json {
  const { summary, description, family } = endpoint;
  return {
    operationId: id,
    tags: [family],
    summary,
    ...(description === undefined ? {} : { description }),
    security: security(endpoint.access),
    parameters: parameters(path, endpoint, print),
    ...requestBody(endpoint, print),
    responses: responses(endpoint, print),
    ...(endpoint.isExtra ? { "x-extra": true } : {}),
    ...(endpoint.isUnsupported ? { "x-unsupported": true } : {}),
  };
}

function security(access: Access): Json {
  if (access === "public") return [];
  if (access === "anyKey") return [{ bearer: [] }];
  if (typeof access === "string") return [{ nodeBearer: [] }];
  // One of several scopes is enough, so each is an alternative.
  return access.map((scope) => ({ bearer: [scope] }));
}

function parameters(path: string, endpoint: Endpoint, print: Print): Json {
  const inPath = [...path.matchAll(/\{([a-z_]+)(?:\.\.\.)?\}/g)].map((match) => ({
    name: match[1] ?? "",
    in: "path",
    required: true,
    schema: { type: "string" },
  }));
  const query: { properties?: Record<string, TSchema>; required?: string[] } | undefined = endpoint.query;
  const inQuery = Object.entries(query?.properties ?? {}).map(([name, schema]) => ({
    name,
    in: "query",
    required: query?.required?.includes(name) ?? false,
    schema: print(schema),
  }));
  return [...inPath, ...inQuery];
}

function requestBody({ body }: Endpoint, print: Print): JsonObject {
  if (body === undefined) return {};
  if (body.kind === "bytes") return { requestBody: { required: true, content: { "application/octet-stream": {} } } };
  const content = { "application/json": { schema: print(body.schema) } };
  return { requestBody: { required: body.isOptional !== true, content } };
}

function responses(endpoint: Endpoint, print: Print): Json {
  const printed: Record<string, Json> = {};
  for (const [status, answer] of Object.entries<Answer>(endpoint.answers)) printed[status] = response(answer, print);
  const codes = new Set([...commonErrors(endpoint), ...(endpoint.errors ?? [])]);
  const byStatus = Map.groupBy(codes, (code) => String(ERRORS[code].status));
  for (const [status, of] of [...byStatus].sort(([left], [right]) => Number(left) - Number(right))) {
    printed[status] = {
      description: of.map((code) => `\`${code}\`: ${ERRORS[code].meaning}`).join("; "),
      content: status === "401" ? UNAUTHORIZED : REFUSED,
    };
  }
  return printed;
}

function response(answer: Answer, print: Print): Json {
  const description = answer.description ?? (answer.kind === "empty" ? "no body" : "success");
  if (answer.kind === "empty") return { description };
  if (answer.kind === "json") {
    const streamed = answer.orStream === undefined ? {} : { [answer.orStream]: { schema: { type: "string" } } };
    return { description, content: { "application/json": { schema: print(answer.schema) }, ...streamed } };
  }
  return { description, content: { [answer.contentType]: { schema: { type: "string" } } } };
}
