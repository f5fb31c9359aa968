/**
 * Calls a route of a node's agent, as a server does.
 */
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { json } from "node:stream/consumers";
import { LINK_HEADER, linkHeader, OWN_LINK_VERSIONS } from "@flotilla/contract/link/version";
import { linkSocketPath } from "../../node/src/link/socket-path.ts";

/**
 * The answer's body. `nodeDirectory`: `node` in the data directory of the agent. Rejects when it is not JSON,
 * and when the agent ends before.
 */
export async function callAgent(nodeDirectory: string, path: string, body: object, method = "POST"): Promise<unknown> {
  const text = JSON.stringify(body);
  const headers = {
    [LINK_HEADER]: linkHeader(OWN_LINK_VERSIONS),
    "content-type": "application/json",
    "content-length": `${Buffer.byteLength(text)}`,
  };
  const sent = request({ socketPath: linkSocketPath(nodeDirectory), method, path, headers });
  sent.end(text);
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return await json(response);
}
