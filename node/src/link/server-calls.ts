/**
 * Calls of this node to its server whose bodies and answers are streams: those of the fleet's registry.
 *
 * Always: the node authenticates as in its reports; the credential is read for each call, because a report
 * may replace it.
 */
import { readFile } from "node:fs/promises";
import { Agent as HttpAgent, request as httpRequest } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { join } from "node:path";
import type { CallServer } from "../images/own-registry.ts";
import type { RemoteServer } from "./remote-server.ts";
import { sendCall } from "./send-call.ts";

export interface ServerCallsOptions {
  readonly serverUrl: string;
  /** The Unix socket on which the server of this host listens for nodes; null: it is called at its url. */
  readonly nodeSocket: string | null;
  /** The servers of a node on another host; null: it is on the server's. */
  readonly remote: RemoteServer | null;
  readonly nodeDirectory: string;
}

export interface ServerCalls extends Disposable {
  readonly call: CallServer;
}

export function openServerCalls({ serverUrl, nodeSocket, remote, nodeDirectory }: ServerCallsOptions): ServerCalls {
  const agents = { http: new HttpAgent({ keepAlive: true }), https: new HttpsAgent({ keepAlive: true }) };
  const call: CallServer = async (asked) => {
    const token = await readFile(join(nodeDirectory, "credential"), "utf8").catch(() => null);
    if (token === null) throw new Error("the node has not joined yet");
    const authorized = { ...asked, headers: { ...asked.headers, authorization: `Bearer ${token}` } };
    if (remote !== null) return await remote.call(authorized);
    const plain = { agent: agents.http };
    if (nodeSocket !== null) return await sendCall(httpRequest, { ...plain, socketPath: nodeSocket }, authorized);
    const { protocol, hostname, port } = new URL(serverUrl);
    const place = { host: hostname.replace(/^\[|\]$/g, ""), ...(port !== "" && { port }) };
    return protocol === "https:"
      ? await sendCall(httpsRequest, { ...place, agent: agents.https }, authorized)
      : await sendCall(httpRequest, { ...place, ...plain }, authorized);
  };
  return {
    call,
    [Symbol.dispose]: () => {
      agents.http.destroy();
      agents.https.destroy();
    },
  };
}
