/**
 * A proxy in front of a registry that breaks chosen uploads, and counts what it passes on.
 *
 * Always: every request asks `behave` what to do with it. Bodies are passed on as they arrive, so a registry
 * has a part of what was cut.
 */
import { createServer, type IncomingMessage, request as httpRequest, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { CallServer } from "@flotilla/node/images/own-registry";
import { sendCall } from "@flotilla/node/link/send-call";

export type UploadFault =
  | { readonly kind: "pass" }
  /** Breaks both connections after this many bytes of the body. */
  | { readonly kind: "cut"; readonly after: number }
  /** Passes the request on, and breaks the connection in place of the answer. */
  | { readonly kind: "lose-answer" }
  /** Breaks the connection, and passes nothing on. */
  | { readonly kind: "drop" }
  /** Reads the body, and never answers. */
  | { readonly kind: "hang" }
  | {
      readonly kind: "status";
      readonly status: number;
      readonly headers?: Readonly<Record<string, string>>;
      readonly body?: string;
    };

export interface SeenUpload {
  readonly method: string;
  readonly path: string;
  /** Number of earlier requests with this method. */
  readonly earlier: number;
  /** The length that the body has as a whole. */
  readonly bodyBytes: number;
  /** Bytes of it that were passed on. */
  passedBytes: number;
}

export interface FaultyUploads extends AsyncDisposable {
  readonly callServer: CallServer;
  readonly seen: readonly SeenUpload[];
  behave: (request: SeenUpload) => UploadFault;
  /** Where it listens. */
  readonly ownPort: number;
  /** Requests go to this port from now on. */
  port: number;
}

export async function startFaultyUploads(port: number): Promise<FaultyUploads> {
  const seen: SeenUpload[] = [];
  const server = createServer((request, response) => {
    const { method = "", url: path = "" } = request;
    const earlier = seen.filter((each) => each.method === method).length;
    const bodyBytes = Number(request.headers["content-length"] ?? 0);
    const record: SeenUpload = { method, path, earlier, bodyBytes, passedBytes: 0 };
    seen.push(record);
    answer({ request, response, record, fault: proxy.behave(record), port: proxy.port });
  });
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  const own = (server.address() as AddressInfo).port;
  const proxy: FaultyUploads = {
    ownPort: own,
    callServer: callRegistry(own),
    seen,
    behave: () => ({ kind: "pass" }),
    port,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
  return proxy;
}

/** Reaches the registry on a port of loopback, as a server would. */
export const callRegistry =
  (port: number): CallServer =>
  (call) =>
    sendCall(httpRequest, { host: "127.0.0.1", port }, call);

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly record: SeenUpload;
  readonly fault: UploadFault;
  readonly port: number;
}

function answer({ request, response, record, fault, port }: Exchange): void {
  const breakOff = (): void => void request.socket.resetAndDestroy();
  if (fault.kind === "drop") return breakOff();
  if (fault.kind === "hang") return void request.resume();
  if (fault.kind === "status") {
    response.writeHead(fault.status, fault.headers).end(fault.body);
    return void request.resume();
  }
  const { method = "GET", url: path = "", headers } = request;
  const passed = httpRequest({ host: "127.0.0.1", port, method, path, headers }, (real) => {
    if (fault.kind === "lose-answer") {
      real.resume();
      return void real.once("end", breakOff);
    }
    response.writeHead(real.statusCode ?? 500, real.headers);
    real.pipe(response);
  });
  passed.on("error", breakOff);
  request.on("data", (chunk: Buffer) => {
    const left = fault.kind === "cut" ? fault.after - record.passedBytes : chunk.byteLength;
    const part = chunk.subarray(0, Math.max(0, left));
    record.passedBytes += part.byteLength;
    if (part.byteLength === chunk.byteLength) {
      if (!passed.write(part)) {
        request.pause();
        passed.once("drain", () => request.resume());
      }
      return;
    }
    request.pause();
    passed.write(part, () => {
      passed.destroy();
      breakOff();
    });
  });
  request.once("end", () => passed.end());
}
