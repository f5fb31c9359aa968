/**
 * Has a node run a machine in a VMM of the program that is installed there.
 */
import { Refusal } from "@flotilla/contract/errors";
import { readReplaceAnswer } from "@flotilla/contract/link/generated";
import type { ReplaceAnswer, ReplaceRequest } from "@flotilla/contract/link/machines";
import { requestJson } from "./json-request.ts";
import type { NodeAddress, NodeLink } from "./node-link.ts";

/** The node copies the machine's memory, or boots it. */
const ANSWER_TIMEOUT_MS = 10 * 60_000;

/**
 * A repetition joins the request that is under way. Throws NodeUnreachable, also when the answer was lost,
 * and a Refusal with what the node says.
 */
export async function replaceVmm(
  link: NodeLink,
  node: NodeAddress,
  { machineId, how, signal }: ReplaceRequest & { readonly machineId: string; readonly signal: AbortSignal },
): Promise<ReplaceAnswer> {
  return await requestJson(link, node, {
    method: "POST",
    path: `/v1/machines/${machineId}/vmm`,
    body: JSON.stringify({ how } satisfies ReplaceRequest),
    headersTimeout: ANSWER_TIMEOUT_MS,
    signal,
    read: readReplaceAnswer,
    refusal: ({ message }) => new Refusal("conflict", `node ${node.nodeId} refused it: ${message}`),
  });
}
