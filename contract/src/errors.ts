/**
 * The registry of all refusals of the API: code, HTTP status and who can act on it.
 *
 * Domain code throws `Refusal(code, text)` for what a caller may see. Any other error is a 500 whose message
 * is only logged. The mapping to HTTP is in server/src/http and nowhere else.
 *
 * Texts are one plain sentence: operation, reason, identifier; lower case; then what the caller can do.
 */
import type { RefusalDetails } from "./refusal-details.ts";

export const ERRORS = {
  invalid_json: { status: 400, actor: "caller", meaning: "the body is not JSON" },
  invalid_request: { status: 400, actor: "caller", meaning: "the request is well formed but its values are invalid" },
  missing_key: { status: 401, actor: "caller", meaning: "no API key was sent" },
  unknown_key: { status: 401, actor: "caller", meaning: "the API key does not exist or was revoked" },
  expired_key: { status: 401, actor: "caller", meaning: "the API key has expired" },
  payment_required: { status: 402, actor: "caller", meaning: "the tenant is suspended or its budget is used up" },
  missing_scope: { status: 403, actor: "caller", meaning: "the API key lacks a scope that the endpoint needs" },
  not_owner: { status: 403, actor: "caller", meaning: "the token in the body is not that of the owner" },
  not_found: { status: 404, actor: "caller", meaning: "the resource does not exist, or is another tenant's" },
  method_not_allowed: { status: 405, actor: "caller", meaning: "the path exists, but not with this method" },
  body_too_slow: { status: 408, actor: "caller", meaning: "the request, or its body, arrived too slowly" },
  conflict: { status: 409, actor: "caller", meaning: "the resource's state or name does not allow this" },
  link_version: { status: 409, actor: "operator", meaning: "the node's release and the server's do not work together" },
  name_taken: { status: 409, actor: "caller", meaning: "another resource of the tenant has this name" },
  idempotency_in_progress: { status: 409, actor: "caller", meaning: "the first request with this key still runs" },
  body_too_large: { status: 413, actor: "caller", meaning: "the body is larger than the endpoint accepts" },
  unsupported_encoding: { status: 415, actor: "caller", meaning: "the body is sent compressed or encoded" },
  range_not_satisfiable: { status: 416, actor: "caller", meaning: "the range lies outside the file" },
  invalid_body: { status: 422, actor: "caller", meaning: "the JSON body or a parameter does not fit the schema" },
  idempotency_mismatch: { status: 422, actor: "caller", meaning: "the idempotency key was used with another body" },
  quota_exceeded: { status: 422, actor: "caller", meaning: "a ceiling of the tenant's plan would be exceeded" },
  no_capacity: { status: 422, actor: "operator", meaning: "no node has room for the machine now" },
  image_not_found: { status: 422, actor: "caller", meaning: "the registry, or the node, has no such image" },
  image_refused: { status: 422, actor: "caller", meaning: "the image's registry denies access to it" },
  image_not_allowed: { status: 422, actor: "operator", meaning: "images of this registry are not allowed here" },
  image_wrong_platform: { status: 422, actor: "caller", meaning: "the image is made for other processors or systems" },
  image_not_cached: {
    status: 422,
    actor: "caller",
    meaning: "the machine's network is blocked, and its node does not have the image",
  },
  rate_limited: { status: 429, actor: "caller", meaning: "too many requests, or too many at the same time" },
  internal: { status: 500, actor: "us", meaning: "a bug of the server; its log has the request id" },
  not_implemented: { status: 501, actor: "us", meaning: "declared, but not served yet" },
  guest_unreachable: { status: 502, actor: "operator", meaning: "the machine's agent does not answer" },
  unavailable: { status: 503, actor: "operator", meaning: "a part that the request needs does not answer now" },
  start_failed: { status: 503, actor: "caller", meaning: "the machine could not be started; the text says why" },
  no_space: { status: 507, actor: "operator", meaning: "the disk has no room left" },
} as const satisfies Record<
  string,
  { readonly status: number; readonly actor: "caller" | "operator" | "us"; readonly meaning: string }
>;

/** The machine-readable name of a refusal, sent in header `x-error-code`. */
export type ErrorCode = keyof typeof ERRORS;

/**
 * Why an image is unavailable, when a retry changes nothing. A node sends the code with its text; a failure
 * without a code may be temporary. The table's CHECK has the same list.
 */
export const IMAGE_FAULTS = [
  "image_not_found",
  "image_refused",
  "image_not_allowed",
  "image_wrong_platform",
  "image_not_cached",
] as const satisfies readonly ErrorCode[];
export type ImageFault = (typeof IMAGE_FAULTS)[number];

export interface RefusalFacts extends RefusalDetails {
  /** Answer headers, such as `retry-after`. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** Refuses a call. `text` is shown unchanged, so it names nothing that the caller may not see. */
export class Refusal extends Error {
  readonly code: ErrorCode;
  readonly headers: Readonly<Record<string, string>>;
  readonly details: RefusalDetails;

  constructor(code: ErrorCode, text: string, { headers = {}, ...details }: RefusalFacts = {}) {
    // A refusal is an answer, and its stack is never read: collecting one took a third of a refused request's
    // processor time.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(text);
    Error.stackTraceLimit = stackTraceLimit;
    this.name = "Refusal";
    this.code = code;
    this.headers = headers;
    this.details = details;
  }

  get status(): number {
    return ERRORS[this.code].status;
  }
}
