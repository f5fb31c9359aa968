/**
 * Requests to the helper in a machine, through the connect bridge of the API with the caller's key.
 *
 * Always:
 * - Bodies are streamed in both directions, and neither side is read faster than the other reads.
 * - A client that goes away ends the request in the machine; an answer that breaks breaks the client's
 *   connection, so that no part looks like the whole.
 * - How long the head of an answer may take is the bridge's to say.
 */
import { Agent, type IncomingHttpHeaders, type IncomingMessage, request as httpRequest } from "node:http";
import { Agent as SecureAgent, request as httpsRequest } from "node:https";
import type { Duplex } from "node:stream";
import { machineOf } from "./ids.ts";

export interface BridgeCall {
  readonly key: string;
  readonly sandboxId: string;
  /** Where the helper listens. */
  readonly port: number;
  readonly method: string;
  /** Path and query in the machine. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** Sent as the body; a stream is passed on as it arrives. */
  readonly body: IncomingMessage | Buffer | null;
  readonly signal?: AbortSignal;
}

export interface BridgeAnswer {
  readonly message: IncomingMessage;
  /** The connection, if it has become something else, and what arrived on it already. */
  readonly upgraded: { readonly socket: Duplex; readonly head: Buffer } | null;
}

export class Bridge {
  readonly #url: URL;
  readonly #agent: Agent;

  constructor(url: string) {
    this.#url = new URL(url);
    const options = { keepAlive: true, maxSockets: Number.POSITIVE_INFINITY };
    this.#agent = this.#url.protocol === "https:" ? new SecureAgent(options) : new Agent(options);
  }

  /** Resolves when the head of the answer is there. Rejects when the server does not answer. */
  call({ key, sandboxId, port, method, path, headers, body, signal }: BridgeCall): Promise<BridgeAnswer> {
    const { promise, resolve, reject } = Promise.withResolvers<BridgeAnswer>();
    const isUpgrade = headers.upgrade !== undefined;
    const send = this.#url.protocol === "https:" ? httpsRequest : httpRequest;
    const request = send({
      agent: isUpgrade ? undefined : this.#agent,
      ...{ hostname: this.#url.hostname.replace(/^\[|\]$/g, ""), port: this.#url.port, method },
      path: `${this.#url.pathname.replace(/\/$/, "")}/v1/machines/${machineOf(sandboxId)}/connect/${port}${path}`,
      headers: { ...headers, authorization: `Bearer ${key}` },
      ...(signal === undefined ? {} : { signal }),
    });
    request.setNoDelay(true);
    request.once("response", (message) => resolve({ message, upgraded: null }));
    request.once("upgrade", (message, socket, head) => resolve({ message, upgraded: { socket, head } }));
    request.once("error", reject);
    request.once("close", () => reject(new Error("the server closed the connection")));
    if (body === null || Buffer.isBuffer(body)) request.end(body);
    else {
      body.pipe(request);
      body.once("error", () => request.destroy());
      body.once("aborted", () => request.destroy());
    }
    return promise;
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** The answer's whole body as text, of which at most this many bytes are kept. */
export async function textOf(message: IncomingMessage, bytesMax: number): Promise<string> {
  const chunks: Buffer[] = [];
  let left = bytesMax;
  for await (const chunk of message as AsyncIterable<Buffer>) {
    if (left > 0) chunks.push(chunk.subarray(0, left));
    left -= chunk.byteLength;
  }
  return Buffer.concat(chunks).toString("utf8");
}
