/**
 * Printed by scripts/generate-sdk.ts from the contract; not edited by hand: change contract/src and run
 * `npm run golden`.
 * The codes of the API's refusals, each with what its caller can do.
 */
export const ADVICE = {
  invalid_json: "send a body that is JSON",
  invalid_request: "change the values that the text names",
  missing_key: "give the client an API key",
  unknown_key: "make another key: this one was revoked, or is of another Flotilla",
  expired_key: "make another key with a later end",
  payment_required: "raise the budget, or have the operator reactivate the tenant",
  missing_scope: "use a key with the scope that the text names",
  not_owner: "send the token that made the resource",
  not_found: "check the id; lists show what the key may see",
  method_not_allowed: "use a client of the server's release",
  body_too_slow: "send the call again on a faster connection",
  conflict: "read the resource, and send the call again when its state allows it",
  link_version: "install the server's release on the node",
  name_taken: "choose another name, or use the resource that has this one",
  idempotency_in_progress: "send the same call with the same idempotency key again in a moment",
  body_too_large: "send less at once; files have their own calls",
  unsupported_encoding: "send the body as it is, not compressed",
  range_not_satisfiable: "ask for a range inside the file",
  invalid_body: "correct the field that `details` names",
  idempotency_mismatch: "use a new idempotency key for another request",
  quota_exceeded: "delete or stop what is not needed, or ask for a larger plan",
  no_capacity: "try again later or with a smaller machine; the operator can add nodes",
  image_not_found: "check the image's name and tag",
  image_refused: "give the registry's credentials, or use an image that is public",
  image_not_allowed: "use an image of an allowed registry",
  image_wrong_platform: "use an image for the processors of the nodes",
  image_not_cached: "pull the image to the node first, or allow the machine its network",
  rate_limited: "send fewer calls, and wait as long as `Retry-After` says",
  internal: "report the request id to the operator",
  not_implemented: "this Flotilla does not serve that yet",
  guest_unreachable: "start the machine, which restarts one that hangs",
  unavailable: "send the call again in a moment",
  start_failed: "read the text and the machine's log, then start it again",
  no_space: "delete files, or make a machine with a larger disk",
} as const;

/** The server's code of a refusal. */
export type ErrorCode = keyof typeof ADVICE;
