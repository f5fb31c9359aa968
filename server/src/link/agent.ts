/**
 * Restarts a node's agent as the program that is installed on its host.
 */
import { Refusal } from "@flotilla/contract/errors";
import { readRestartAnswer } from "@flotilla/contract/link/generated";
import type { RestartAnswer } from "@flotilla/contract/link/membership";
import type { NodeAddress, NodeLink } from "./node-link.ts";
import { NodeRefused, NodeUnreachable } from "./refusals.ts";

/** The node runs the installed program once before it answers. */
const ANSWER_TIMEOUT_MS = 45_000;
const ANSWER_CHARACTERS_MAX = 4_096;

/**
 * Has the incarnation `agentBootId` of the agent end and run again. A repetition restarts no other one. Throws NodeUnreachable,
 * also when the answer was lost, and a Refusal with what the node says.
 */
export async function restartAgent(
  link: NodeLink,
  node: NodeAddress,
  { agentBootId, signal }: { readonly agentBootId: string; readonly signal: AbortSignal },
): Promise<RestartAnswer> {
  const { nodeId } = node;
  try {
    const answer = await link.open(node, {
      method: "POST",
      path: "/v1/agent",
      body: JSON.stringify({ agentBootId }),
      contentType: "application/json",
      headersTimeout: ANSWER_TIMEOUT_MS,
      signal,
    });
    let text = "";
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      text += chunk.toString("utf8");
      if (text.length > ANSWER_CHARACTERS_MAX) throw new Error("the answer is too long");
    }
    return readRestartAnswer(JSON.parse(text));
  } catch (error) {
    if (error instanceof NodeRefused) throw refusal(nodeId, error);
    if (error instanceof Refusal || signal.aborted) throw error;
    throw new NodeUnreachable(nodeId, error);
  }
}

function refusal(nodeId: string, { code, message }: NodeRefused): Refusal {
  if (code === "not_found")
    return new Refusal(
      "conflict",
      `the agent of node ${nodeId} has an earlier version, which cannot be restarted from here: restart it on its host`,
    );
  const what =
    code === "not_runnable"
      ? `${message}; the agent was left running: repair the installation`
      : `it refused: ${message}`;
  return new Refusal("conflict", `node ${nodeId} was not upgraded: ${what}`);
}
