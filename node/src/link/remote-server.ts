/**
 * Calls from a node to the servers of its fleet on other hosts: its registration, its heartbeats, and those
 * of the fleet's registry.
 *
 * Always: a call goes to the server that answered last; when it cannot be reached, the next call goes to
 * another one. Without any other, FLOTILLA_URL is called again.
 */
import { type IncomingMessage, request as httpRequest } from "node:http";
import { Agent, type RequestOptions as HttpsOptions, request as httpsRequest } from "node:https";
import type { Clock } from "@flotilla/base/clock";
import { parseJoinToken } from "@flotilla/contract/link/fleet";
import { connectToJoin, endpointOf, explained, fleetOptions } from "./fleet-tls.ts";
import type { Membership } from "./membership.ts";
import type { ServerCall } from "../images/own-registry.ts";
import { sendCall } from "./send-call.ts";
import { type Answer, type Post, send } from "./post.ts";

/** An unused connection is kept for the next heartbeats. */
const KEEP_MS = 30_000;

export interface RemoteServerOptions {
  readonly serverUrl: string;
  readonly joinToken: string | null;
  readonly membership: Membership;
  readonly clock: Clock;
}

export class RemoteServer {
  readonly membership: Membership;
  readonly #options: RemoteServerOptions;
  #agent: Agent | null = null;
  #turn = 0;

  constructor(options: RemoteServerOptions) {
    this.#options = options;
    this.membership = options.membership;
    // Its certificate or whom it trusts may have changed.
    this.membership.watch(() => {
      this.#agent?.destroy();
      this.#agent = null;
    });
  }

  /** Throws an Error when there is no answer. */
  async post(post: Post): Promise<Answer> {
    const { identity, authority } = this.membership;
    if (identity === null || authority === null) return await this.#postToJoin(post);
    return await this.#ask((place) => send(httpsRequest, { ...place, ...requestOf(post) }, post));
  }

  /** A call whose body and answer are streams. Throws an Error when there is no answer. */
  async call(call: ServerCall): Promise<IncomingMessage> {
    if (this.membership.identity === null) throw new Error("the node has not joined yet");
    return await this.#ask((place) => sendCall(httpsRequest, place, call));
  }

  async #ask<T>(ask: (place: Pick<HttpsOptions, "agent" | "host" | "port">) => Promise<T>): Promise<T> {
    const { identity, authority } = this.membership;
    if (identity === null || authority === null) throw new Error("the node has not joined yet");
    this.#agent ??= new Agent({
      ...fleetOptions(identity, authority),
      ALPNProtocols: ["http/1.1"],
      keepAlive: true,
      timeout: KEEP_MS,
      maxCachedSessions: 0,
    });
    const addresses = this.#addresses();
    const address = addresses[this.#turn % addresses.length] ?? "";
    const { host, port } = endpointOf(address);
    try {
      return await ask({ agent: this.#agent, host, port });
    } catch (error) {
      this.#turn += 1;
      throw new Error(`server ${address} does not answer`, { cause: explained(error, this.#options.clock) });
    }
  }

  close(): void {
    this.#agent?.destroy();
  }

  /** Where servers listen for nodes, and where this node has joined. */
  #addresses(): readonly string[] {
    const known = this.membership.listeners.flatMap(({ addresses }) => addresses);
    const { protocol, hostname, port } = new URL(this.#options.serverUrl);
    const joined = protocol === "https:" ? [`${hostname}:${port || 443}`] : [];
    return [...new Set([...known, ...joined])];
  }

  async #postToJoin(post: Post): Promise<Answer> {
    const url = new URL(this.#options.serverUrl);
    const token = parseJoinToken(this.#options.joinToken ?? "");
    const socket = await connectToJoin(url, token?.authority ?? null, this.#options.clock);
    const options = { createConnection: () => socket, ...requestOf(post) };
    return await send(httpRequest, options, post).finally(() => socket.destroy());
  }
}

const requestOf = ({ path, signal }: Post) => ({ path, method: "POST", signal });
