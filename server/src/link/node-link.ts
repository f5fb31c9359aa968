/**
 * The server's side of the link to nodes: JSON requests and running commands, over one connection pool per node.
 *
 * Owns the pools, keyed by the node's address (`unix:/path`, or `http://host:port`). Knows nothing of the database.
 *
 * Always:
 * - a node that cannot be reached is a NodeAway, whose text names the node and what to do; callers tell it apart from
 *   what the node answered;
 * - requests that are safe to repeat are repeated once when their connection broke: the agent may have just restarted;
 *   a command never is;
 * - everything that comes from a node is bounded: JSON by size, frames by the codec.
 */
import type { Readable } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { ownMessageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import { type ImageFault, Refusal } from "@flotilla/contract/errors";
import type { DesiredMachine, NodeImage, ObservedMachine } from "@flotilla/contract/link";
import { readImageProgress, readNodeImages, readObservedMachine } from "@flotilla/contract/link/generated";
import { Pool } from "undici";
import { Turns } from "./turns.ts";

/** A node as the link needs it. */
export interface NodeAddress {
  readonly nodeId: string;
  readonly address: string;
}

/** The node's agent answered that it cannot do what it was asked: its disk is full, say. */
class NodeFault extends Refusal {
  constructor(nodeId: string, what: string, message: string) {
    super("unavailable", `node ${nodeId} could not take up ${what}: ${message.slice(0, 500)}`);
    this.name = "NodeFault";
  }
}

/** The node's agent cannot be reached, or went away in the middle. */
export class NodeAway extends Refusal {
  readonly reason: string;

  constructor(nodeId: string, cause: unknown) {
    super("unavailable", `node ${nodeId} does not answer; check that its agent runs there, then try again`);
    this.name = "NodeAway";
    this.cause = cause;
    this.reason = ownMessageOf(cause);
  }
}

const ANSWER_TIMEOUT_MS = 10_000;
const JSON_BYTES_MAX = 16 * 1024 * 1024;
const KEEP_ALIVE_MS = 60_000;
/** A node says nothing while it unpacks, which it does for ten minutes at most. */
const IMAGE_SILENCE_MAX_MS = 15 * 60_000;
const IMAGE_REASON_CHARACTERS_MAX = 1_000;
const LINE_CHARACTERS_MAX = 64 * 1024;

interface JsonRequest {
  readonly method: "GET" | "PUT";
  readonly path: string;
  readonly body?: unknown;
  /** How long the node may take by agreement, beyond what an answer takes. */
  readonly waitMs?: number;
  readonly signal?: AbortSignal | undefined;
}

interface ImageWork {
  readonly method: "POST" | "PUT";
  readonly path: string;
  readonly contentType: string;
  readonly body: Readable | string;
  readonly signal: AbortSignal;
  readonly onProgress?: (message: string) => void;
  readonly onFailure: (reason: string, code: ImageFault | null) => Refusal;
}

export class NodeLink {
  readonly #pools = new Map<string, Pool>();
  /** For what streams between nodes and callers. */
  readonly turns: Turns;
  readonly #log: Log;

  constructor(log: Log, clock: Pick<Clock, "monotonic">) {
    this.#log = log;
    this.turns = new Turns(clock);
  }

  /** What a caller is told of work that had begun: it must not be sent again without its owner's knowing. */
  cutOff(nodeId: string, machineId: string, work: "command" | "file", error: unknown): Refusal {
    this.#log.warn({ nodeId, machineId, work, error }, "the connection to a node broke");
    const when = work === "command" ? "while the command ran in" : "while a file was on its way to or from";
    return new Refusal(
      "unavailable",
      `the connection to node ${nodeId} broke ${when} machine ${machineId}; how it ended is not known, look before you try again`,
    );
  }

  /** Says what is wanted of a machine and waits up to `waitMs` until nothing moves there. */
  async putMachine(
    node: NodeAddress,
    machineId: string,
    desired: DesiredMachine,
    { waitMs, signal }: { readonly waitMs: number; readonly signal?: AbortSignal },
  ): Promise<ObservedMachine> {
    const path = `/v1/machines/${machineId}?waitMs=${Math.round(waitMs)}`;
    const answer = await this.#json(node, { method: "PUT", path, body: desired, waitMs, signal });
    // 409: the node has seen a newer wish. It says what it observes in any case.
    if (answer.status !== 200 && answer.status !== 409)
      throw new NodeFault(node.nodeId, `machine ${machineId}`, messageOf(answer));
    return await this.#away(node, () => {
      const observed = readObservedMachine(answer.body);
      if (observed.machineId === machineId) return observed;
      throw new Error(`expected machine ${machineId}, got ${observed.machineId}`);
    });
  }

  /** The images that a tenant has fetched there, and local ones; with null those of everybody. */
  async listImages(node: NodeAddress, tenantId: string | null): Promise<readonly NodeImage[]> {
    const query = tenantId === null ? "" : `?tenantId=${encodeURIComponent(tenantId)}`;
    const answer = await this.#json(node, { method: "GET", path: `/v1/images${query}` });
    if (answer.status !== 200)
      throw new NodeAway(node.nodeId, new Error(`the list of images was answered with ${answer.status}`));
    return await this.#away(node, () => readNodeImages(answer.body));
  }

  /** Streams an archive to the node; throws a Refusal with the node's own text when it is no good. */
  async importImage(node: NodeAddress, reference: string, archive: Readable, signal: AbortSignal): Promise<NodeImage> {
    return await this.#imageWork(node, {
      method: "POST",
      path: `/v1/images/import?reference=${encodeURIComponent(reference)}`,
      contentType: "application/octet-stream",
      body: archive,
      signal,
      onFailure: (reason) => new Refusal("invalid_request", `import of ${reference} failed: ${reason}`),
    });
  }

  /**
   * Has the node fetch an image; it asks the registry what the reference means now. Throws a Refusal with the node's own
   * text when it cannot. The node goes on only as long as somebody waits: aborting the signal ends the pull there.
   */
  async pullImage(
    node: NodeAddress,
    request: { readonly reference: string; readonly arch: string | null; readonly tenantId: string },
    { onProgress, signal }: { readonly onProgress: (message: string) => void; readonly signal: AbortSignal },
  ): Promise<NodeImage> {
    return await this.#imageWork(node, {
      method: "PUT",
      path: "/v1/images",
      contentType: "application/json",
      body: JSON.stringify(request),
      signal,
      onProgress,
      onFailure: (reason, code) => new Refusal(code ?? "unavailable", reason),
    });
  }

  /** Work on an image, of which the node tells line by line. */
  async #imageWork(node: NodeAddress, work: ImageWork): Promise<NodeImage> {
    return await this.#away(node, async () => {
      const { statusCode, body } = await this.pool(node.address).request({
        method: work.method,
        path: work.path,
        body: work.body,
        headers: { "content-type": work.contentType },
        headersTimeout: 0,
        bodyTimeout: IMAGE_SILENCE_MAX_MS,
        signal: work.signal,
      });
      if (statusCode !== 200) {
        const { message } = JSON.parse(await body.text()) as { readonly message?: unknown };
        throw new Refusal("invalid_request", String(message).slice(0, IMAGE_REASON_CHARACTERS_MAX));
      }
      for await (const line of linesOf(body as AsyncIterable<Buffer>)) {
        const progress = readImageProgress(JSON.parse(line));
        if (progress.kind === "done") return progress.image;
        if (progress.kind === "failed") throw work.onFailure(progress.message, progress.reasonCode);
        work.onProgress?.(progress.message);
      }
      throw new Error("the answer ended without a result");
    });
  }

  /** The connections to a node. */
  pool(address: string): Pool {
    let pool = this.#pools.get(address);
    if (pool === undefined) {
      const options = { keepAliveTimeout: KEEP_ALIVE_MS, keepAliveMaxTimeout: KEEP_ALIVE_MS, pipelining: 1 };
      pool = address.startsWith("unix:")
        ? new Pool("http://node", { ...options, socketPath: address.slice("unix:".length) })
        : new Pool(address, options);
      this.#pools.set(address, pool);
    }
    return pool;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#pools.values()].map((pool) => pool.destroy()));
  }

  async #json(node: NodeAddress, request: JsonRequest): Promise<{ readonly status: number; readonly body: unknown }> {
    return await this.#away(node, async () => {
      try {
        return await this.#attempt(node, request);
      } catch (error) {
        if (request.signal?.aborted === true || !isBrokenConnection(error)) throw error;
        return await this.#attempt(node, request);
      }
    });
  }

  async #attempt(node: NodeAddress, request: JsonRequest): Promise<{ status: number; body: unknown }> {
    const { statusCode, body } = await this.pool(node.address).request({
      method: request.method,
      path: request.path,
      headersTimeout: ANSWER_TIMEOUT_MS + (request.waitMs ?? 0),
      bodyTimeout: ANSWER_TIMEOUT_MS,
      ...(request.body === undefined
        ? {}
        : { body: JSON.stringify(request.body), headers: { "content-type": "application/json" } }),
      ...(request.signal === undefined ? {} : { signal: request.signal }),
    });
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of body as AsyncIterable<Buffer>) {
      bytes += chunk.byteLength;
      if (bytes > JSON_BYTES_MAX) throw new Error(`the answer is larger than ${JSON_BYTES_MAX} bytes`);
      chunks.push(chunk);
    }
    return { status: statusCode, body: JSON.parse(Buffer.concat(chunks).toString("utf8")) };
  }

  async #away<T>(node: NodeAddress, work: () => Promise<T> | T): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof Refusal) throw error;
      throw new NodeAway(node.nodeId, error);
    }
  }
}

function messageOf({ status, body }: { readonly status: number; readonly body: unknown }): string {
  const message = (body as { message?: unknown } | null)?.message;
  return typeof message === "string" ? message : `it answered with status ${status}`;
}

async function* linesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<string, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > LINE_CHARACTERS_MAX) throw new Error(`a line is longer than ${LINE_CHARACTERS_MAX} characters`);
    yield* lines.filter((line) => line !== "");
  }
}

/** The connection ended before an answer came: nothing is known of the request, except that it may be repeated. */
function isBrokenConnection(error: unknown): boolean {
  const code = error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined;
  return code === "UND_ERR_SOCKET" || code === "ECONNRESET" || code === "EPIPE";
}
