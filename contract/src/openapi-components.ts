/**
 * What the operations of the OpenAPI document have in common: tags, headers, parameters and the shapes of errors.
 *
 * Always: plain JSON values, referred to from operations by name, so that the document says each of them once.
 */
import { ERRORS } from "./errors.ts";

/** Families of endpoints, in words. */
export const TAG_DESCRIPTIONS: Readonly<Record<string, string>> = {
  health: "Whether the service works; metrics; this description",
  account: "The caller: plan, ceilings, usage and cost",
  usage: "Usage over a time range",
  billing: "Usage and cost of all tenants, for operators",
  apikeys: "API keys of the tenant",
  machines: "Persistent microVMs: life cycle, commands, files, ports, logs, branches",
  leases: "Branches that are lent to a task",
  registry: "Packaged machines",
  images: "OCI images on the nodes",
  apps: "Replicated instances of an image, with rollouts",
  nodes: "Hosts that run machines",
  tokens: "Join tokens, with which nodes enter",
  events: "What happened to the tenant's machines, also to those that are gone",
  operations: "Long work, step by step",
  plans: "Ceilings and rates of tenants",
  pools: "Started machines that wait to be claimed",
  tenants: "Tenants, for operators",
  volumes: "Records of volumes; no storage stands behind them",
};

const text = { type: "string" } as const;
const count = { type: "integer", minimum: 0 } as const;

/** Answer headers, by the name under which operations refer to them. */
export const HEADERS = {
  RequestId: {
    wire: "x-request-id",
    schema: text,
    description: "finds the request in the server's log; the caller's own is taken when it is safe",
  },
  ErrorCode: { wire: "x-error-code", schema: text, description: "the machine-readable name of the refusal" },
  RateLimitLimit: { wire: "RateLimit-Limit", schema: count, description: "requests that may come at once" },
  RateLimitRemaining: { wire: "RateLimit-Remaining", schema: count, description: "requests that are left" },
  RateLimitReset: { wire: "RateLimit-Reset", schema: count, description: "seconds until all of them are back" },
  XRateLimitRemaining: { wire: "x-ratelimit-remaining", schema: count, description: "same as RateLimit-Remaining" },
  RetryAfter: { wire: "Retry-After", schema: count, description: "seconds after which to try again, where known" },
  WwwAuthenticate: { wire: "WWW-Authenticate", schema: text, description: "`Bearer`" },
  Link: {
    wire: "Link",
    schema: text,
    description: 'with `limit`: the address of the next page, `<…>; rel="next"`; absent on the last one',
  },
  IdempotencyReplayed: {
    wire: "Idempotency-Replayed",
    schema: { type: "string", enum: ["true"] },
    description: "present when this is the kept answer of an earlier request with the same key",
  },
} as const;
export type HeaderName = keyof typeof HEADERS;

/** A header's entry in components, without the name it has on the wire. */
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
      "makes the request safe to repeat: the first answer is kept for 24 hours and given again; the same key with another " +
      "request is refused. Where the server died before it could answer, a repetition after 60 seconds makes nothing twice and " +
      "answers with what was made; a command that was lost so runs again",
    schema: { type: "string", minLength: 1, maxLength: 255, pattern: "^[\\x20-\\x7e]*$" },
  },
} as const;

export const IDEMPOTENCY_KEY = { $ref: "#/components/parameters/IdempotencyKey" } as const;

/** Shapes of errors; no endpoint declares them. */
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
    },
  },
  Unauthorized: {
    type: "object",
    description: "Of a key that is not good. Without a key the body is empty",
    required: ["code", "error"],
    properties: { code: text, error: text },
  },
} as const;

const reference = (name: keyof typeof errorSchemas) => ({ schema: { $ref: `#/components/schemas/${name}` } });

export const UNAUTHORIZED = { "application/json": reference("Unauthorized") } as const;

/** The caller chooses with `Accept`; without a word the text. */
export const REFUSED = {
  "text/plain": { schema: text },
  "application/problem+json": reference("Problem"),
  "application/json": reference("Problem"),
} as const;
