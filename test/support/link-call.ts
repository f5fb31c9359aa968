/**
 * Calls a route of a node's agent, as a server does.
 */
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { json } from "node:stream/consumers";
import { LINK_HEADER, linkHeader, OWN_LINK_VERSIONS } from "@flotilla/contract/link/version";
import { linkSocketPath } from "../../node/src/link/socket-path.ts";

/**
 * The answer's body. `nodeDirectory`: `node` in the data directory of the agent. Rejects when it is not JSON.
 */
export async function callAgent(nodeDirectory: string, path: string, body: object): Promise<unknown> {
  const headers = { [LINK_HEADER]: linkHeader(OWN_LINK_VERSIONS), "content-type": "application/json" };
  const sent = request({ socketPath: linkSocketPath(nodeDirectory), method: "POST", path, headers });
  sent.end(JSON.stringify(body));
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return await json(response);
}
