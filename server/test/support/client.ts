/**
 * A small HTTP client for tests: one method per verb, JSON in and out, nothing hidden.
 */

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

export class Client {
  readonly url: string;
  readonly key: string | null;

  constructor(url: string, key: string | null) {
    this.url = url;
    this.key = key;
  }

  /** The same server with another key, or with none. */
  withKey(key: string | null): Client {
    return new Client(this.url, key);
  }

  async call(method: string, path: string, options: CallOptions = {}): Promise<Answer> {
    const headers: Record<string, string> = { ...options.headers };
    if (this.key !== null) headers["authorization"] ??= `Bearer ${this.key}`;
    const body = options.raw ?? (options.body === undefined ? undefined : JSON.stringify(options.body));
    if (options.body !== undefined) headers["content-type"] ??= "application/json";
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

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
