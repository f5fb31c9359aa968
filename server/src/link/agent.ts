/**
 * Restarts a node's agent as the program that is installed on its host.
 */
import { Refusal } from "@flotilla/contract/errors";
import { readRestartAnswer } from "@flotilla/contract/link/generated";
import type { RestartAnswer } from "@flotilla/contract/link/membership";
import { requestJson } from "./json-request.ts";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import type { NodeRefused } from "./refusals.ts";

/** The node runs the installed program once before it answers. */
const ANSWER_TIMEOUT_MS = 45_000;

/**
 * Has the incarnation `agentBootId` of the agent end and run again. A repetition restarts no other one.
 * Throws NodeUnreachable, also when the answer was lost, and a Refusal with what the node says.
 */
export async function restartAgent(
  link: NodeLink,
  node: NodeAddress,
  { agentBootId, signal }: { readonly agentBootId: string; readonly signal: AbortSignal },
): Promise<RestartAnswer> {
  return await requestJson(link, node, {
    method: "POST",
    path: "/v1/agent",
    body: JSON.stringify({ agentBootId }),
    headersTimeout: ANSWER_TIMEOUT_MS,
    signal,
    read: readRestartAnswer,
    refusal: (refused) => refusal(node.nodeId, refused),
  });
}

function refusal(nodeId: string, { code, message }: NodeRefused): Refusal {
  const what =
    code === "not_runnable"
      ? `${message}; the agent was left running: repair the installation`
      : `it refused: ${message}`;
  return new Refusal("conflict", `node ${nodeId} was not upgraded: ${what}`);
}
