/**
 * What the operations of the OpenAPI document share: tags, headers, parameters and the shapes of errors.
 *
 * Always: these are plain JSON values, referenced by name, so that the document contains each of them once.
 */
import { ERRORS } from "./errors.ts";
import { IDEMPOTENCY_KEY_FORM } from "./patterns.ts";

/** Descriptions of the endpoint families. */
export const TAG_DESCRIPTIONS: Readonly<Record<string, string>> = {
  status: "Whether the service works; metrics; this description",
  account: "The caller: plan, ceilings, usage and cost",
  usage: "Usage over a time range",
  billing: "Usage and cost of all tenants, for operators",
  apikeys: "API keys of the tenant",
  audit: "Who changed what, and which calls were refused",
  loops: "What the background loops of a server do, for operators",
  machines: "Persistent microVMs: life cycle, commands, files, ports, logs, branches",
  checkpoints: "Instants of machines that are kept, from which others are made",
  leases: "Branches that are lent for a task",
  packages: "Packages of the registry, which machines are made from",
  registry: "Packaged machines",
  images: "OCI images on the nodes",
  apps: "Replicated instances of an image, with rollouts",
  nodes: "Hosts that run machines",
  tokens: "Join tokens, with which nodes register",
  events: "What happened to the tenant's machines, including deleted ones",
  webhooks: "Addresses that receive the tenant's events",
  operations: "Long work, step by step",
  console: "Sign-in of browsers to the console",
  plans: "Ceilings and rates of tenants",
  pools: "Started machines that wait to be claimed",
  tenants: "Tenants, for operators",
  volumes: "Records of volumes, without storage",
};

const text = { type: "string" } as const;
const count = { type: "integer", minimum: 0 } as const;

/** Answer headers, by the name that operations use. */
export const HEADERS = {
  RequestId: {
    wire: "x-request-id",
    schema: text,
    description: "finds the request in the server's log; the caller's own id is used if it is safe",
  },
  ErrorCode: { wire: "x-error-code", schema: text, description: "the machine-readable name of the refusal" },
  RateLimitLimit: { wire: "RateLimit-Limit", schema: count, description: "requests that may arrive as a burst" },
  RateLimitRemaining: { wire: "RateLimit-Remaining", schema: count, description: "requests left of the burst" },
  RateLimitReset: { wire: "RateLimit-Reset", schema: count, description: "seconds until the whole burst is available" },
  XRateLimitRemaining: { wire: "x-ratelimit-remaining", schema: count, description: "same as RateLimit-Remaining" },
  RetryAfter: { wire: "Retry-After", schema: count, description: "seconds after which to try again, where known" },
  WwwAuthenticate: { wire: "WWW-Authenticate", schema: text, description: "`Bearer`" },
  Link: {
    wire: "Link",
    schema: text,
    description: 'with `limit`: the address of the next page, `<…>; rel="next"`; absent on the last one',
  },
  Unsupported: { wire: "x-unsupported", schema: text, description: "what is not a supported part of the service" },
  IdempotencyReplayed: {
    wire: "Idempotency-Replayed",
    schema: { type: "string", enum: ["true"] },
    description: "present when this is the stored answer to an earlier request with the same key",
  },
} as const;
export type HeaderName = keyof typeof HEADERS;

/** The headers as components, without their names on the wire. */
export const headerComponents = Object.fromEntries(
  Object.entries(HEADERS).map(([name, { schema, description }]) => [name, { description, schema }]),
);

/** The headers of an answer, as references. */
export const headerReferences = (names: readonly HeaderName[]) =>
  Object.fromEntries(names.map((name) => [HEADERS[name].wire, { $ref: `#/components/headers/${name}` }]));

export const parameterComponents = {
  IdempotencyKey: {
    name: "Idempotency-Key",
    in: "header",
    required: false,
    description:
      "makes the request safe to repeat: the first answer is stored for 24 hours and given again; the same key with another " +
      "request is refused. If the server died before it answered, a repetition after 60 seconds creates nothing twice and " +
      "answers with what was created; a command whose result was lost this way runs again",
    schema: { type: "string", minLength: 1, maxLength: 255, pattern: IDEMPOTENCY_KEY_FORM },
  },
} as const;

export const IDEMPOTENCY_KEY = { $ref: "#/components/parameters/IdempotencyKey" } as const;

/** Shapes of errors, which no endpoint declares. */
export const errorSchemas = {
  Problem: {
    type: "object",
    description: "RFC 9457, for callers that accept JSON",
    required: ["type", "title", "status", "detail", "code", "requestId"],
    properties: {
      type: text,
      title: text,
      status: { type: "integer" },
      detail: text,
      code: { type: "string", enum: Object.keys(ERRORS) },
      requestId: text,
      details: { $ref: "#/components/schemas/RefusalDetails" },
    },
  },
  Unauthorized: {
    type: "object",
    description: "The key is invalid. Without a key the body is empty",
    required: ["code", "error"],
    properties: { code: text, error: text },
  },
} as const;

const reference = (name: keyof typeof errorSchemas) => ({ schema: { $ref: `#/components/schemas/${name}` } });

export const UNAUTHORIZED = { "application/json": reference("Unauthorized") } as const;

/** The caller chooses with `Accept`; the default is text. */
export const REFUSED = {
  "text/plain": { schema: text },
  "application/problem+json": reference("Problem"),
  "application/json": reference("Problem"),
} as const;
