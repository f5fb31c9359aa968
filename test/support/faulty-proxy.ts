/**
 * A faulty registry: a proxy in front of a real one that damages chosen answers, and counts what it sends.
 *
 * Always: every request asks `behave` what to do with it, so that a test can change that during a pull.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export type Behaviour =
  | { readonly kind: "pass" }
  /** Changes one byte of the body. */
  | { readonly kind: "flip"; readonly at: number }
  /** Closes the connection after this many bytes of the body. */
  | { readonly kind: "cut"; readonly after: number }
  /** Sends nothing more after this many bytes of the body. */
  | { readonly kind: "hang"; readonly after: number }
  | { readonly kind: "status"; readonly status: number; readonly headers?: Readonly<Record<string, string>> }
  /** Sends the whole body, whatever range was requested. */
  | { readonly kind: "no ranges" }
  /** With 200, unless it has a status. */
  | {
      readonly kind: "body";
      readonly body: Buffer | string;
      readonly status?: number;
      readonly headers?: Readonly<Record<string, string>>;
    };

export interface SeenRequest {
  readonly path: string;
  readonly range: string | null;
  readonly authorization: string | null;
  /** Number of earlier requests for the same path. */
  readonly earlier: number;
  /** Body bytes sent for it. */
  sentBytes: number;
}

export interface FaultyProxy extends AsyncDisposable {
  readonly host: string;
  readonly url: string;
  readonly seen: readonly SeenRequest[];
  behave: (request: SeenRequest) => Behaviour;
}

export const isLayer = (request: SeenRequest): boolean => request.path.includes("/blobs/");

export async function startFaultyProxy(target: string): Promise<FaultyProxy> {
  const seen: SeenRequest[] = [];
  const server = createServer((request, response) => {
    const path = request.url ?? "";
    const earlier = seen.filter((item) => item.path === path).length;
    const range = request.headers.range ?? null;
    const authorization = request.headers.authorization ?? null;
    const record: SeenRequest = { path, range, authorization, earlier, sentBytes: 0 };
    seen.push(record);
    answer(target, { request, response, record, behaviour: proxy.behave(record) }).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  const { port } = server.address() as AddressInfo;
  const proxy: FaultyProxy = {
    host: `127.0.0.1:${port}`,
    url: `http://127.0.0.1:${port}`,
    seen,
    behave: () => ({ kind: "pass" }),
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
  return proxy;
}

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly record: SeenRequest;
  readonly behaviour: Behaviour;
}

async function answer(target: string, { request, response, record, behaviour }: Exchange): Promise<void> {
  if (behaviour.kind === "status") {
    response.writeHead(behaviour.status, behaviour.headers).end();
    return;
  }
  if (behaviour.kind === "body") {
    record.sentBytes = Buffer.byteLength(behaviour.body);
    response.writeHead(behaviour.status ?? 200, behaviour.headers).end(behaviour.body);
    return;
  }
  const headers: Record<string, string> = { accept: request.headers.accept ?? "*/*" };
  if (record.range !== null && behaviour.kind !== "no ranges") headers["range"] = record.range;
  const real = await fetch(`${target}${record.path}`, { headers });
  const body = Buffer.from(await real.arrayBuffer());
  if (behaviour.kind === "flip") body.writeUInt8(body.readUInt8(behaviour.at) ^ 1, behaviour.at);
  const passed = ["content-type", "content-range", "docker-content-digest", "www-authenticate"]
    .map((name) => [name, real.headers.get(name)] as const)
    .filter((pair): pair is readonly [string, string] => pair[1] !== null);
  response.writeHead(real.status, { ...Object.fromEntries(passed), "content-length": body.length });
  const isWhole = behaviour.kind !== "cut" && behaviour.kind !== "hang";
  const part = isWhole ? body : body.subarray(0, behaviour.after);
  record.sentBytes = part.length;
  if (isWhole) response.end(part);
  // A cut at the body's end has no effect.
  else
    response.write(part, () => {
      if (behaviour.kind === "cut") response.socket?.resetAndDestroy();
    });
}
