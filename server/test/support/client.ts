/**
 * A small HTTP client for tests: one method per verb, JSON in and out. It makes calls of nodes over the
 * server's socket for nodes, where the client of a test server knows it.
 */
import { type IncomingMessage, request as httpRequest } from "node:http";
import { text as textOf } from "node:stream/consumers";

export interface Answer {
  readonly method: string;
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The body as JSON, untyped because tests read all shapes; undefined when it is not JSON. */
  readonly json: ReturnType<JSON["parse"]>;
}

export interface CallOptions {
  /** Sent as JSON. */
  readonly body?: unknown;
  /** Sent unchanged. */
  readonly raw?: string | Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** Paths that nodes call. */
const OF_NODES = /^\/v1\/nodes\/(register|[^/]+\/heartbeat)$/;

export class Client {
  readonly url: string;
  readonly key: string | null;
  /** Where the server listens for nodes; null: their calls go to its url. */
  readonly nodeSocket: string | null;

  constructor(url: string, key: string | null, nodeSocket: string | null = null) {
    this.url = url;
    this.key = key;
    this.nodeSocket = nodeSocket;
  }

  /** The same server with another key, or with none. */
  withKey(key: string | null): Client {
    return new Client(this.url, key, this.nodeSocket);
  }

  async call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const headers: Record<string, string> = { ...options.headers };
    if (this.key !== null) headers["authorization"] ??= `Bearer ${this.key}`;
    const body = options.raw ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
    if (options.body !== undefined) headers["content-type"] ??= "application/json";
    if (this.nodeSocket !== null && method === "POST" && OF_NODES.test(path))
      return await callOverSocket(this.nodeSocket, { method, path, headers, body });
    const response = await fetch(this.url + path, {
      method,
      headers,
      ...(body === undefined ? {} : { body }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
    const text = await response.text();
    return { method, status: response.status, headers: response.headers, text, json: parse(text) };
  }

  get(path: string, options?: CallOptions): Promise<Answer> {
    return this.call("GET", path, options);
  }

  post(path: string, body?: unknown, options: CallOptions = {}): Promise<Answer> {
    return this.call("POST", path, { ...options, ...(body === undefined ? {} : { body }) });
  }

  patch(path: string, body: unknown): Promise<Answer> {
    return this.call("PATCH", path, { body });
  }

  delete(path: string): Promise<Answer> {
    return this.call("DELETE", path);
  }
}

interface SocketCall {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array | undefined;
}

async function callOverSocket(socketPath: string, { method, path, headers, body }: SocketCall): Promise<Answer> {
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const length = body === undefined ? {} : { "content-length": Buffer.byteLength(body) };
    const request = httpRequest({ socketPath, method, path, headers: { ...headers, ...length } }, resolve);
    request.on("error", reject).end(body);
  });
  const text = await textOf(answer);
  const answered = new Headers(Object.entries(answer.headers).map(([name, value]) => [name, String(value)]));
  return { method, status: answer.statusCode ?? 0, headers: answered, text, json: parse(text) };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
