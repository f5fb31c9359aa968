/**
 * Has a node run a machine in a VMM of the program that is installed there.
 */
import { Refusal } from "@flotilla/contract/errors";
import { readReplaceAnswer } from "@flotilla/contract/link/generated";
import type { ReplaceAnswer, ReplaceRequest } from "@flotilla/contract/link/machines";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { NodeRefused, NodeUnreachable } from "./refusals.ts";

/** The node copies the machine's memory, or boots it. */
const ANSWER_TIMEOUT_MS = 10 * 60_000;
const ANSWER_CHARACTERS_MAX = 16_384;

/** A repetition joins the request that is under way. Throws NodeUnreachable, also when the answer was lost, and a Refusal with what the node says. */
export async function replaceVmm(
  link: NodeLink,
  node: NodeAddress,
  { machineId, how, signal }: ReplaceRequest & { readonly machineId: string; readonly signal: AbortSignal },
): Promise<ReplaceAnswer> {
  try {
    const answer = await link.open(node, {
      method: "POST",
      path: `/v1/machines/${machineId}/vmm`,
      body: JSON.stringify({ how } satisfies ReplaceRequest),
      contentType: "application/json",
      headersTimeout: ANSWER_TIMEOUT_MS,
      signal,
    });
    let text = "";
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      text += chunk.toString("utf8");
      if (text.length > ANSWER_CHARACTERS_MAX) throw new Error("the answer is too long");
    }
    return readReplaceAnswer(JSON.parse(text));
  } catch (error) {
    if (error instanceof NodeRefused) throw new Refusal("conflict", `node ${node.nodeId} refused it: ${error.message}`);
    if (error instanceof Refusal || signal.aborted) throw error;
    throw new NodeUnreachable(node.nodeId, error);
  }
}
