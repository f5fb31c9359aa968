/**
 * The registry of everything the API may refuse: code, HTTP status and who can act on it.
 *
 * Domain code throws `Refusal(code, text)` for what a caller may see; anything else that is thrown is a 500 whose
 * message goes to the log only. The mapping to HTTP happens in server/src/http and nowhere else.
 *
 * Texts are one plain sentence: operation, reason, identifier; lower case; then what the caller can do.
 */

export const ERRORS = {
  invalid_json: { status: 400, actor: "caller", meaning: "the body is not JSON" },
  invalid_request: { status: 400, actor: "caller", meaning: "the request is well formed but makes no sense" },
  missing_key: { status: 401, actor: "caller", meaning: "no API key was sent" },
  unknown_key: { status: 401, actor: "caller", meaning: "the API key does not exist or was revoked" },
  expired_key: { status: 401, actor: "caller", meaning: "the API key has expired" },
  payment_required: { status: 402, actor: "caller", meaning: "the tenant is suspended or its budget is used up" },
  missing_scope: { status: 403, actor: "caller", meaning: "the API key lacks the scope the endpoint needs" },
  not_found: { status: 404, actor: "caller", meaning: "no such resource, or not one of the caller's" },
  method_not_allowed: { status: 405, actor: "caller", meaning: "the path exists, but not with this method" },
  body_too_slow: { status: 408, actor: "caller", meaning: "the request, or its body, came too slowly" },
  conflict: { status: 409, actor: "caller", meaning: "the resource's state or name does not allow this" },
  name_taken: { status: 409, actor: "caller", meaning: "another resource of the tenant has this name" },
  idempotency_in_progress: { status: 409, actor: "caller", meaning: "the first request with this key still runs" },
  body_too_large: { status: 413, actor: "caller", meaning: "the body is larger than the endpoint accepts" },
  range_not_satisfiable: { status: 416, actor: "caller", meaning: "the range lies outside the file" },
  invalid_body: { status: 422, actor: "caller", meaning: "the JSON body or a parameter does not fit the schema" },
  idempotency_mismatch: { status: 422, actor: "caller", meaning: "the idempotency key was used with another body" },
  quota_exceeded: { status: 422, actor: "caller", meaning: "a ceiling of the tenant's plan would be exceeded" },
  no_capacity: { status: 422, actor: "operator", meaning: "no node has room for the machine now" },
  image_not_found: { status: 422, actor: "caller", meaning: "the registry, or the node, has no such image" },
  image_refused: { status: 422, actor: "caller", meaning: "the image's registry does not give it out" },
  image_not_allowed: { status: 422, actor: "operator", meaning: "images of this registry are not allowed here" },
  image_wrong_platform: { status: 422, actor: "caller", meaning: "the image is made for other processors or systems" },
  image_not_cached: {
    status: 422,
    actor: "caller",
    meaning: "a machine with a blocked network, and its node does not have the image",
  },
  rate_limited: { status: 429, actor: "caller", meaning: "too many requests, or too much at once" },
  internal: { status: 500, actor: "us", meaning: "a fault of the server; its log has the request id" },
  not_implemented: { status: 501, actor: "us", meaning: "declared, and not served yet" },
  guest_unreachable: { status: 502, actor: "operator", meaning: "the machine's agent does not answer" },
  unavailable: { status: 503, actor: "operator", meaning: "a part the request needs does not answer now" },
  start_failed: { status: 503, actor: "caller", meaning: "the machine could not be started; the text says why" },
  no_space: { status: 507, actor: "operator", meaning: "the disk has no room left" },
} as const satisfies Record<
  string,
  { readonly status: number; readonly actor: "caller" | "operator" | "us"; readonly meaning: string }
>;

/** The machine-readable name of a refusal, sent in header `x-error-code`. */
export type ErrorCode = keyof typeof ERRORS;

/**
 * Why an image can not be had, when trying again changes nothing. A node carries the code beside its text; what has none
 * may be different the next time. The table's CHECK holds the same list.
 */
export const IMAGE_FAULTS = [
  "image_not_found",
  "image_refused",
  "image_not_allowed",
  "image_wrong_platform",
  "image_not_cached",
] as const satisfies readonly ErrorCode[];
export type ImageFault = (typeof IMAGE_FAULTS)[number];

/** What stands for a fault in data from elsewhere; null: none, or one that this version does not know. */
export function imageFaultOf(value: unknown): ImageFault | null {
  return IMAGE_FAULTS.find((code) => code === value) ?? null;
}

/** Says no to a caller. `text` is shown as it is, so it names nothing that the caller may not see. */
export class Refusal extends Error {
  readonly code: ErrorCode;
  /** Answer headers that belong to this refusal, such as `retry-after`. */
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: ErrorCode, text: string, headers: Readonly<Record<string, string>> = {}) {
    super(text);
    this.name = "Refusal";
    this.code = code;
    this.headers = headers;
  }

  get status(): number {
    return ERRORS[this.code].status;
  }
}
