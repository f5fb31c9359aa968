/**
 * The contract as an OpenAPI 3.1 document. Pure: the same endpoints give the same document.
 *
 * Always:
 * - Every endpoint is described once, under its first path. `x-aliases` lists the others, which would only
 *   duplicate the methods of generated clients.
 * - Every possible refusal is listed by status: a reference to the answer of that status, described by its
 *   codes.
 * - Schemas with a name (shapes.ts) are components; all others are inline.
 */
import type { Access, Answer, Endpoint } from "./endpoint.ts";
import { endpointList } from "./endpoints.ts";
import { ERRORS, type ErrorCode } from "./errors.ts";
import {
  errorSchemas,
  type HeaderName,
  headerComponents,
  headerReferences,
  IDEMPOTENCY_KEY,
  parameterComponents,
  REFUSED,
  TAG_DESCRIPTIONS,
  UNAUTHORIZED,
} from "./openapi-components.ts";
import { RELEASE } from "./release.ts";
import type { TSchema } from "./schema.ts";
import { shapes } from "./shapes.ts";

type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json };
interface JsonObject {
  readonly [name: string]: Json;
}

export const API_VERSION = RELEASE;

const INTRODUCTION = `Machines are persistent microVMs; apps are replicated images. Send an API key as \
\`Authorization: Bearer smk_…\`. Errors are one plain sentence, or RFC 9457 JSON if you accept it; \
\`x-error-code\` has the code and \`x-request-id\` finds the request in the server's log. Answers to a key, including \
refusals, have \`RateLimit-*\` headers.`;

/** The refusals that an endpoint may give without declaring them. */
export function commonErrors(endpoint: Endpoint): readonly ErrorCode[] {
  const codes: ErrorCode[] = ["internal"];
  // Also where no body is declared: one is read and ignored. Streamed bodies have no limit, and end with
  // their connection.
  if (!isStreamed(endpoint) && endpoint.method !== "GET") codes.push("body_too_large", "body_too_slow");
  if (endpoint.body !== undefined && endpoint.isBridge !== true) codes.push("unsupported_encoding");
  if (endpoint.query !== undefined) codes.push("invalid_body");
  if (endpoint.access === "public") return codes;
  codes.push("missing_key", "unknown_key", "unavailable");
  if (isNodeAccess(endpoint.access)) return codes;
  codes.push("expired_key", "payment_required", "rate_limited");
  if (endpoint.access !== "anyKey") codes.push("missing_scope");
  if (takesIdempotencyKey(endpoint)) codes.push("invalid_request", "idempotency_in_progress", "idempotency_mismatch");
  return codes;
}

const takesIdempotencyKey = ({ method, access, isBridge }: Endpoint): boolean =>
  method === "POST" && access !== "public" && !isNodeAccess(access) && isBridge !== true;

const isStreamed = ({ body, isBridge }: Endpoint): boolean => body?.kind === "bytes" || isBridge === true;

const isNodeAccess = (access: Access): boolean => access === "joinToken" || access === "nodeCredential";

/** The whole document, ready for JSON.stringify. */
export function openApiDocument(): JsonObject {
  const paths: Record<string, Record<string, Json>> = {};
  for (const [name, endpoint] of endpointList) {
    const operations = (paths[plainPath(endpoint.path)] ??= {});
    operations[endpoint.method.toLowerCase()] = operation(name, endpoint);
    if (endpoint.hasHead) operations["head"] = headOperation(name, endpoint);
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Flotilla",
      version: API_VERSION,
      description: INTRODUCTION,
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "/", description: "the server that served this description" }],
    security: [{ bearer: [] }],
    tags: [...new Set(endpointList.map(([, { family }]) => family))].map((name) => ({
      name,
      description: TAG_DESCRIPTIONS[name] ?? name,
    })),
    paths,
    components: {
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer", description: "an API key" },
        nodeBearer: { type: "http", scheme: "bearer", description: "a node's join token or credential" },
      },
      parameters: parameterComponents,
      headers: headerComponents,
      schemas: schemaComponents(),
      responses: refusalComponents(),
    },
  };
}

/** OpenAPI cannot express a parameter that is the rest of the path. */
const plainPath = (path: string): string => path.replace("...}", "}");

/** Prints a schema: a named one as the reference to its component. */
function print(value: unknown): Json {
  const name = shapes.nameOf(value);
  return name === undefined ? printFields(value) : { $ref: `#/components/schemas/${name}` };
}

function printFields(value: unknown): Json {
  if (Array.isArray(value)) return value.map(print);
  if (typeof value !== "object" || value === null) return value as Json;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, print(item)]));
}

/** The named schemas, except queries: those are printed as parameters. */
function schemaComponents(): JsonObject {
  const queries = new Set(endpointList.map(([, { query }]) => shapes.nameOf(query)));
  const printed = [...shapes.byName]
    .filter(([name]) => !queries.has(name))
    .map(([name, schema]) => [name, printFields(schema)] as const);
  const all = [...printed, ...Object.entries<Json>(errorSchemas)];
  return Object.fromEntries(all.sort(([left], [right]) => (left < right ? -1 : 1)));
}

function operation(name: string, endpoint: Endpoint): JsonObject {
  const { summary, description, family, aliases } = endpoint;
  return {
    operationId: name,
    tags: [family],
    summary,
    ...(description === undefined ? {} : { description }),
    security: security(endpoint),
    parameters: parameters(endpoint),
    ...requestBody(endpoint),
    responses: responses(endpoint),
    ...(aliases === undefined ? {} : { "x-aliases": aliases.map(plainPath) }),
    ...(endpoint.isExtra ? { "x-extra": true } : {}),
    ...(endpoint.isUnsupported ? { "x-unsupported": true } : {}),
  };
}

/** The same answers without their bodies. */
function headOperation(name: string, endpoint: Endpoint): Json {
  const get = operation(name, endpoint);
  const answers = Object.entries(get["responses"] as Record<string, JsonObject>).map(([status, answer]) => {
    const { $ref, content: _, ...rest } = answer;
    return [status, $ref === undefined ? rest : { ...rest, headers: headerReferences(errorHeaders(status)) }] as const;
  });
  const summary = `${endpoint.summary}: the headers alone`;
  return { ...get, operationId: `${name}Head`, summary, responses: Object.fromEntries(answers) };
}

function security({ access, alsoNeeds = [] }: Endpoint): Json {
  if (access === "public") return [];
  if (access === "anyKey") return [{ bearer: [] }];
  if (typeof access === "string") return [{ nodeBearer: [] }];
  // One of the scopes suffices, so each is an alternative.
  return access.map((scope) => ({ bearer: [scope, ...alsoNeeds] }));
}

function parameters(endpoint: Endpoint): Json {
  const inPath = [...endpoint.path.matchAll(/\{([a-z_]+)(?:\.\.\.)?\}/g)].map((match) => ({
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
  return [...inPath, ...inQuery, ...(takesIdempotencyKey(endpoint) ? [IDEMPOTENCY_KEY] : [])];
}

const OCTETS = "application/octet-stream";
/** The form that generators recognize as bytes. */
const BYTES: Json = { type: "string", format: "binary" };

function requestBody({ body }: Endpoint): JsonObject {
  if (body === undefined) return {};
  if (body.kind === "bytes") return { requestBody: { required: true, content: { [OCTETS]: { schema: BYTES } } } };
  const content = { "application/json": { schema: print(body.schema) } };
  return { requestBody: { required: body.isOptional !== true, content } };
}

function responses(endpoint: Endpoint): Json {
  const printed: Record<string, Json> = {};
  for (const [status, answer] of Object.entries<Answer>(endpoint.answers)) printed[status] = response(endpoint, answer);
  for (const [status, codes] of refusals(endpoint))
    printed[status] = {
      $ref: `#/components/responses/${refusalName(status)}`,
      description: codes.map((code) => `\`${code}\`: ${ERRORS[code].meaning}`).join("; "),
    };
  return endpoint.isBridge ? { ...printed, ...guestAnswers(endpoint) } : printed;
}

/** The refusals that an endpoint may give, by status in ascending order. */
export function refusals(endpoint: Endpoint): readonly (readonly [string, readonly ErrorCode[]])[] {
  const codes = new Set([...commonErrors(endpoint), ...(endpoint.errors ?? [])]);
  const byStatus = Map.groupBy(codes, (code) => String(ERRORS[code].status));
  return [...byStatus].sort(([left], [right]) => Number(left) - Number(right));
}

const refusalName = (status: string): string => `Refused${status}`;

/** The answer of each status: operations refer to it, and say which codes are theirs. */
function refusalComponents(): JsonObject {
  const statuses = [...new Set(Object.values(ERRORS).map(({ status }) => String(status)))].sort();
  return Object.fromEntries(statuses.map((status) => [refusalName(status), refusalAnswer(status)]));
}

function refusalAnswer(status: string): JsonObject {
  const codes = Object.entries(ERRORS).filter(([, error]) => String(error.status) === status);
  return {
    description: codes.map(([code]) => `\`${code}\``).join(", "),
    headers: headerReferences(errorHeaders(status)),
    content: status === "401" ? UNAUTHORIZED : REFUSED,
  };
}

/**
 * A guest may answer anything; refusals of the server are listed by status, and only they have the header.
 */
function guestAnswers({ method }: Endpoint): JsonObject {
  const description = "the guest's answer; a refusal of the server has `x-error-code`";
  return {
    ...(method === "GET" ? { 101: { description: "the guest accepted the WebSocket handshake" } } : {}),
    default: { description, content: { "*/*": { schema: BYTES } } },
  };
}

/** On all answers to a key, once its request was counted; of refusals only 429 lists them, for brevity. */
const RATE_HEADERS: readonly HeaderName[] = [
  "RateLimitLimit",
  "RateLimitRemaining",
  "RateLimitReset",
  "XRateLimitRemaining",
];

const isCounted = ({ access }: Endpoint): boolean => access !== "public" && !isNodeAccess(access);

function errorHeaders(status: string): readonly HeaderName[] {
  const always = ["RequestId", "ErrorCode"] as const;
  if (status === "401") return [...always, "WwwAuthenticate"];
  if (status === "503") return [...always, "RetryAfter"];
  return status === "429" ? [...always, ...RATE_HEADERS, "RetryAfter"] : always;
}

function answerHeaders(endpoint: Endpoint): readonly HeaderName[] {
  const query: { properties?: object } = endpoint.query ?? {};
  return [
    "RequestId",
    ...(isCounted(endpoint) ? RATE_HEADERS : []),
    ...("cursor" in (query.properties ?? {}) ? (["Link"] as const) : []),
    ...(takesIdempotencyKey(endpoint) ? (["IdempotencyReplayed"] as const) : []),
    ...(endpoint.isUnsupported === true ? (["Unsupported"] as const) : []),
  ];
}

function response(endpoint: Endpoint, answer: Answer): Json {
  const own = answer.kind === "empty" ? [] : Object.entries(answer.headers ?? {});
  const headers = {
    ...headerReferences(answerHeaders(endpoint)),
    ...Object.fromEntries(own.map(([name, description]) => [name, { description, schema: { type: "string" } }])),
  };
  if (answer.kind === "empty") return { description: answer.description ?? "no body", headers };
  return { description: describe(answer), headers, content: content(answer) };
}

/**
 * Where the caller may ask for an event stream instead of JSON, only the JSON is declared: generated clients
 * would make a union of both, in which every caller has to cast.
 */
function describe({ description = "success", ...answer }: Exclude<Answer, { kind: "empty" }>): string {
  if (answer.kind === "stream" || answer.orStream === undefined) return description;
  return `${description}; ${answer.orStreamWhen}, as \`${answer.orStream}\``;
}

function content(answer: Exclude<Answer, { kind: "empty" }>): Json {
  if (answer.kind === "json") return { "application/json": { schema: print(answer.schema) } };
  const schema = answer.contentType.startsWith("text/") ? { type: "string" } : BYTES;
  const json = answer.orJson === undefined ? {} : { "application/json": { schema: print(answer.orJson) } };
  return { [answer.contentType]: { schema }, ...json };
}
