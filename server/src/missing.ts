/**
 * The answers about what does not exist, or not for the caller. Pure.
 *
 * Always: the text and the data name the call that lists what there is.
 */
import { type ErrorCode, Refusal } from "@flotilla/contract/errors";

const KINDS = {
  apikey: { noun: "API key", list: "/v1/apikeys" },
  app: { noun: "app", list: "/v1/apps" },
  authority: { noun: "authority", list: "/v1/nodes/authorities" },
  checkpoint: { noun: "checkpoint", list: "/v1/checkpoints" },
  node: { noun: "node", list: "/v1/nodes" },
  plan: { noun: "plan", list: "/v1/plans" },
  pool: { noun: "pool", list: "/v1/pools" },
  tenant: { noun: "tenant", list: "/v1/tenants" },
  token: { noun: "join token", list: "/v1/tokens" },
  webhook: { noun: "webhook", list: "/v1/webhooks" },
} as const;

/** `code`: another one where the id is in a body. */
export function notFound(kind: keyof typeof KINDS, id: string, code: ErrorCode = "not_found"): Refusal {
  const { noun, list } = KINDS[kind];
  const call = `GET ${list}`;
  return new Refusal(code, `${noun} ${id} was not found; ${call} lists them`, { resource: { kind, id }, call });
}
