/**
 * The server's side of the link to nodes: JSON requests and running commands, over one connection pool per
 * node.
 *
 * Owns the pools, keyed by the node and its address, because a connection was checked for one node; reach.ts
 * opens the connections. Knows nothing of the database.
 *
 * Always:
 * - A node that cannot be reached causes NodeUnreachable, whose text names the node and what to do. It is
 *   distinct from an error that the node answered.
 * - A connection between hosts that was idle for REMOTE_KEEP_ALIVE_MS is not used again.
 * - Idempotent requests are repeated once when their connection broke, because the agent may have been
 *   restarted. A command is never repeated.
 * - Everything that a node sends is bounded: JSON and refusals by size, values and levels before they are
 *   parsed (json/node-message.ts), frames by the codec. So is the time that JSON takes to arrive.
 */
import { PassThrough, type Readable } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import { type ImageFault, Refusal } from "@flotilla/contract/errors";
import type { DesiredMachine, NodeImage, ObservedMachine } from "@flotilla/contract/link/link";
import { readImageProgress, readNodeImages, readObservedMachine } from "@flotilla/contract/link/generated";
import { linkHeader, LINK_HEADER, OWN_LINK_VERSIONS } from "@flotilla/contract/link/version";
import type { Dispatcher, Pool } from "undici";
import { askNode, type NodeHead } from "./node-answer.ts";
import { passBody } from "./pass-body.ts";
import { linesOf } from "./lines.ts";
import { type FleetReach, openPool } from "./reach.ts";
import { LARGE_JSON_BYTES, LargeJson } from "../json/large-json.ts";
import { type MessageName, NODE_TEXT_BYTES_MAX, parseNodeText } from "../json/node-message.ts";
import { NodeUnreachable, NodeRefused, NotRunning, refusalOf } from "./refusals.ts";
import { Turns } from "../fairness/turns.ts";

/** A node as the link needs it. */
export interface NodeAddress {
  readonly nodeId: string;
  readonly address: string;
}

const ANSWER_TIMEOUT_MS = 10_000;
/**
 * How long a list may arrive, in addition to a pause of ANSWER_TIMEOUT_MS. Other JSON may take
 * ANSWER_TIMEOUT_MS: loops wait for it.
 */
const LIST_MS_MAX = 60_000;
const LIST_BYTES_MAX = 16 * 1024 * 1024;
const KEEP_ALIVE_MS = 60_000;
/**
 * The same between hosts, where an idle connection may have died unnoticed, and a command that is sent into
 * it must not be sent again. A new connection has just been confirmed by the node, which costs a round trip.
 */
const REMOTE_KEEP_ALIVE_MS = 4_000;
/** A node sends nothing while it unpacks an image, which takes ten minutes at most. */
const IMAGE_SILENCE_MAX_MS = 15 * 60_000;
const REFUSAL_CHARACTERS_MAX = 64 * 1024;

interface JsonRequest {
  readonly method: "DELETE" | "GET" | "PUT";
  readonly path: string;
  readonly body?: unknown;
  /** How long the request asks the node to wait, in addition to the timeout of an answer. */
  readonly waitMs?: number;
  /** How long the answer may arrive. Default: ANSWER_TIMEOUT_MS. */
  readonly arrivalMs?: number;
  /** Default: those of a short text (json/node-message.ts). */
  readonly bytesMax?: number;
  readonly signal?: AbortSignal | undefined;
}

interface Answer {
  readonly status: number;
  readonly bytes: Buffer;
}

interface ImageWork {
  readonly request: Omit<StreamRequest, "headersTimeout" | "bodyTimeout">;
  readonly onProgress?: (message: string) => void;
  readonly onFailure: (reason: string, code: ImageFault | "no_space" | null) => Refusal;
}

/** A request whose answer is a stream. Times are milliseconds; 0: no limit. */
export interface StreamRequest {
  readonly method: "DELETE" | "GET" | "POST" | "PUT";
  readonly path: string;
  readonly body?: Readable | string;
  readonly contentType?: string;
  /** Bytes of the body, where a stream has a known number of them. */
  readonly contentLength?: number;
  readonly headersTimeout: number;
  /** Between two pieces of the answer. */
  readonly bodyTimeout?: number;
  /** Ends the request, and the answer if it has begun. */
  readonly signal: AbortSignal;
}

/** A complete body, as one buffer or as several that are sent in order. */
export interface PostBody {
  readonly body: Buffer | Buffer[];
  readonly bytes: number;
  readonly headersTimeout: number;
}

/** An answer 200, of which the body is still to be read. */
export type OpenAnswer = Pick<NodeHead, "headers" | "body">;

const OUR_VERSIONS = linkHeader(OWN_LINK_VERSIONS);

/** What broke, in the text for its caller. */
const WHEN = {
  command: "while the command ran in",
  file: "while a file was copied to or from",
  connection: "in the middle of a connection to",
} as const;

export class NodeLink {
  readonly #pools = new Map<string, Pool>();
  /** Turns of streams between nodes and callers. */
  readonly turns: Turns;
  readonly clock: Clock;
  /** Reads what nodes say that is large. */
  readonly nodeJson = new LargeJson({ isUrgent: true });
  readonly #log: Log;
  readonly #fleet: FleetReach | null;

  /** `fleet` null: only nodes of this host are reached. */
  constructor(log: Log, clock: Clock, fleet: FleetReach | null = null) {
    this.#log = log;
    this.#fleet = fleet;
    this.turns = new Turns(clock);
    this.clock = clock;
  }

  /** The refusal for work that had begun: it must not be repeated without its owner's decision. */
  cutOff(nodeId: string, machineId: string, work: "command" | "file" | "connection", error: unknown): Refusal {
    this.#log.warn({ nodeId, machineId, work, error }, "the connection to a node broke");
    const when = WHEN[work];
    return new Refusal(
      "unavailable",
      `the connection to node ${nodeId} broke ${when} machine ${machineId}; the result is unknown, so check it before you try again`,
    );
  }

  /**
   * Sends the desired state of a machine, and waits up to `waitMs` milliseconds until the machine has
   * settled.
   */
  async putMachine(
    node: NodeAddress,
    machineId: string,
    desired: DesiredMachine,
    { waitMs, signal }: { readonly waitMs: number; readonly signal?: AbortSignal },
  ): Promise<ObservedMachine> {
    const path = `/v1/machines/${machineId}?waitMs=${Math.round(waitMs)}`;
    const answer = await this.#json(node, { method: "PUT", path, body: desired, waitMs, signal });
    // 409: the node has a newer desired state. It answers with the observed state in both cases.
    if (answer.status !== 200 && answer.status !== 409) {
      const error = refusalOf(node.nodeId, answer.status, answer.bytes);
      if (error instanceof Refusal) throw error;
      throw new Refusal("unavailable", `node ${node.nodeId} could not accept machine ${machineId}: ${error.message}`);
    }
    return await this.#orUnreachable(node, () => {
      const observed = readObservedMachine(parseNodeText(answer.bytes));
      if (observed.machineId === machineId) return observed;
      throw new Error(`expected machine ${machineId}, got ${observed.machineId}`);
    });
  }

  /** The images that a tenant has fetched there, and local ones; with null those of all tenants. */
  async listImages(
    node: NodeAddress,
    tenantId: string | null,
    /** Caller for whom the answer is read. */
    asker: string,
  ): Promise<readonly NodeImage[]> {
    const query = tenantId === null ? "" : `?tenantId=${encodeURIComponent(tenantId)}`;
    const answer = await this.#json(node, {
      method: "GET",
      path: `/v1/images${query}`,
      arrivalMs: LIST_MS_MAX,
      bytesMax: LIST_BYTES_MAX,
    });
    return await this.#orUnreachable(node, () => {
      if (answer.status !== 200) throw refusalOf(node.nodeId, answer.status, answer.bytes);
      return this.message(node, "images", { bytes: answer.bytes, asker, read: readNodeImages });
    });
  }

  /** The message of a node, which may be large. Throws an Error that says what does not fit. */
  async message<T>(
    { nodeId }: NodeAddress,
    name: MessageName,
    { bytes, asker, read }: { readonly bytes: Buffer; readonly asker: string; readonly read: (value: unknown) => T },
  ): Promise<T> {
    if (bytes.byteLength < LARGE_JSON_BYTES) return read(parseNodeText(bytes));
    const message = await this.nodeJson.message(nodeId, name, [bytes]).catch((error: unknown) => {
      throw new Error(messageOf(error), { cause: error });
    });
    return await this.turns.run(asker, () => read(message));
  }

  /**
   * Streams an archive to the node; throws a Refusal with the node's text when the node cannot import it. The
   * rest of the archive is read and discarded then, so that its caller gets the answer.
   */
  async importImage(node: NodeAddress, reference: string, archive: Readable, signal: AbortSignal): Promise<NodeImage> {
    const path = `/v1/images/import?reference=${encodeURIComponent(reference)}`;
    // The request's own body, because the end of the answer ends it: the archive ends with its caller's
    // connection.
    const body = new PassThrough();
    body.on("error", () => undefined);
    const passing = passBody(archive, body, (work) => work());
    passing.all.then(
      () => body.end(),
      (error: Error) => body.destroy(error),
    );
    try {
      return await this.#imageWork(node, {
        request: { method: "POST", path, contentType: "application/octet-stream", body, signal },
        onFailure: (reason, code) =>
          new Refusal(code === "no_space" ? code : "invalid_request", `import of ${reference} failed: ${reason}`),
      });
    } finally {
      passing.stop();
      body.destroy();
    }
  }

  /** Removes a local image from the node, if it has it. Throws NodeUnreachable and NodeRefused. */
  async removeImage(node: NodeAddress, reference: string, signal: AbortSignal): Promise<void> {
    const path = `/v1/images?reference=${encodeURIComponent(reference)}`;
    const answer = await this.#json(node, { method: "DELETE", path, signal });
    if (answer.status !== 204) throw refusalOf(node.nodeId, answer.status, answer.bytes);
  }

  /**
   * Has the node fetch an image; the node resolves the reference at the registry. Throws a Refusal with the
   * node's text when that fails. Aborting the signal also ends the pull on the node.
   */
  async pullImage(
    node: NodeAddress,
    request: { readonly reference: string; readonly arch: string | null; readonly tenantId: string },
    { onProgress, signal }: { readonly onProgress: (message: string) => void; readonly signal: AbortSignal },
  ): Promise<NodeImage> {
    const body = JSON.stringify(request);
    return await this.#imageWork(node, {
      request: { method: "PUT", path: "/v1/images", contentType: "application/json", body, signal },
      onProgress,
      onFailure: (reason, code) => new Refusal(code === null || code === "no_space" ? "unavailable" : code, reason),
    });
  }

  /** Work on an image. The node reports its progress line by line. */
  async #imageWork(node: NodeAddress, { request, onProgress, onFailure }: ImageWork): Promise<NodeImage> {
    try {
      const body = await this.open(node, { ...request, headersTimeout: 0, bodyTimeout: IMAGE_SILENCE_MAX_MS });
      for await (const line of linesOf(body as AsyncIterable<Buffer>)) {
        const progress = readImageProgress(parseNodeText(line));
        if (progress.kind === "done") return progress.image;
        if (progress.kind === "failed") throw onFailure(progress.message, progress.reasonCode);
        onProgress?.(progress.message);
      }
      throw new Error("the answer ended without a result");
    } catch (error) {
      if (error instanceof Refusal) throw error;
      if (error instanceof NodeRefused) throw new Refusal("invalid_request", error.message);
      throw new NodeUnreachable(node.nodeId, error);
    }
  }

  /**
   * Sends a request and returns the response's body when the node has answered 200. Every stream of a node is
   * opened here. Throws NodeUnreachable, NotRunning, NodeRefused, a Refusal when the link versions are
   * incompatible, and the reason of an aborted signal.
   */
  async open(node: NodeAddress, request: StreamRequest): Promise<Readable> {
    return (await this.openAnswer(node, request)).body;
  }

  /** As `open`, with the answer's headers. */
  async openAnswer(node: NodeAddress, request: StreamRequest): Promise<OpenAnswer> {
    const { method, path, contentType, contentLength, headersTimeout, signal } = request;
    try {
      const sent = {
        method,
        path,
        headers: {
          [LINK_HEADER]: OUR_VERSIONS,
          ...(contentType === undefined ? {} : { "content-type": contentType }),
          ...(contentLength === undefined ? {} : { "content-length": String(contentLength) }),
        },
        body: request.body ?? null,
        headersTimeout,
        bodyTimeout: request.bodyTimeout ?? 0,
      };
      const { status, headers, body } = await askNode(this.#pool(node), sent, signal);
      if (status === 200) return { headers, body };
      throw refusalOf(node.nodeId, status, await beginningOf(body));
    } catch (error) {
      if (error instanceof Refusal || error instanceof NotRunning || error instanceof NodeRefused) throw error;
      if (signal.aborted) throw error;
      throw new NodeUnreachable(node.nodeId, error);
    }
  }

  /** As `open`, for a body of known length and a handler. */
  post(node: NodeAddress, path: string, body: PostBody, handler: Dispatcher.DispatchHandler): void {
    const headers = [LINK_HEADER, OUR_VERSIONS, "content-type", "application/octet-stream"];
    headers.push("content-length", String(body.bytes));
    const { headersTimeout } = body;
    const options = {
      method: "POST" as const,
      path,
      body: body.body as Buffer,
      headers,
      headersTimeout,
      bodyTimeout: 0,
    };
    this.#pool(node).dispatch(options, handler);
  }

  /** The connections to a node. */
  #pool(node: NodeAddress): Pool {
    const { nodeId, address } = node;
    const name = `${nodeId} ${address}`;
    let pool = this.#pools.get(name);
    if (pool === undefined) {
      const idleMs = address.startsWith("unix:") ? KEEP_ALIVE_MS : REMOTE_KEEP_ALIVE_MS;
      pool = openPool(node, this.#fleet, { keepAliveTimeout: idleMs, keepAliveMaxTimeout: idleMs, pipelining: 1 });
      this.#pools.set(name, pool);
    }
    return pool;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#pools.values()].map((pool) => pool.destroy()));
  }

  async #json(node: NodeAddress, request: JsonRequest): Promise<Answer> {
    return await this.#orUnreachable(node, async () => {
      try {
        return await this.#attempt(node, request);
      } catch (error) {
        if (request.signal?.aborted === true || !isBrokenConnection(error)) throw error;
        return await this.#attempt(node, request);
      }
    });
  }

  async #attempt(node: NodeAddress, request: JsonRequest): Promise<Answer> {
    const versions = { [LINK_HEADER]: OUR_VERSIONS };
    const sent = {
      method: request.method,
      path: request.path,
      headersTimeout: ANSWER_TIMEOUT_MS + (request.waitMs ?? 0),
      bodyTimeout: ANSWER_TIMEOUT_MS,
      ...(request.body === undefined
        ? { headers: versions }
        : { body: JSON.stringify(request.body), headers: { ...versions, "content-type": "application/json" } }),
    };
    const { status, body } = await askNode(this.#pool(node), sent, request.signal);
    const chunks: Buffer[] = [];
    let bytes = 0;
    const bytesMax = request.bytesMax ?? NODE_TEXT_BYTES_MAX;
    const until = this.clock.monotonic() + (request.arrivalMs ?? ANSWER_TIMEOUT_MS);
    for await (const chunk of body as AsyncIterable<Buffer>) {
      bytes += chunk.byteLength;
      if (this.clock.monotonic() > until) throw new Error("the answer comes too slowly");
      if (bytes > bytesMax) throw new Error(`the answer is larger than ${bytesMax} bytes`);
      chunks.push(chunk);
    }
    return { status, bytes: Buffer.concat(chunks) };
  }

  async #orUnreachable<T>(node: NodeAddress, work: () => Promise<T> | T): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof Refusal) throw error;
      throw new NodeUnreachable(node.nodeId, error);
    }
  }
}

/** The text of a refusal. If it is too long, the rest is not read, and the connection ends. */
async function beginningOf(body: Readable): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of body as AsyncIterable<Buffer>) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > REFUSAL_CHARACTERS_MAX) break;
  }
  return text;
}

/** Whether the connection ended before an answer arrived. */
function isBrokenConnection(error: unknown): boolean {
  const code = error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined;
  return code === "UND_ERR_SOCKET" || code === "ECONNRESET" || code === "EPIPE";
}
