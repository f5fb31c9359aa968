/**
 * `fetch` over Node's own HTTP modules: the transport of verbs that send or receive much, or wait long.
 * Node's `fetch` reads 64 KiB at a time and copies each piece twice, which is most of the cost of reading a
 * command's output (docs/streams.md).
 *
 * Always:
 * - It supports what the SDK needs: a method, headers, a body of text, bytes or a stream, and a signal.
 * - An answer may take as long as it likes to begin, and between its pieces. Node's `fetch` fails after 300
 *   s.
 * - A body that is a stream is cancelled when the call has ended before it was sent.
 * - A redirect is not followed here: the global `fetch` makes the call again and follows it.
 * - At most two pieces of an answer, each of at most READ_BYTES, are held for a reader that does not read.
 */
import http, { type ClientRequest, type IncomingMessage, type RequestOptions } from "node:http";
import https from "node:https";
import { connect, type NetConnectOpts, type Socket } from "node:net";
import { Readable } from "node:stream";

type Bytes = Uint8Array<ArrayBuffer>;

/**
 * A reader that is behind its sender gets as much at a time. Not over TLS, where a piece is a record of 16
 * KiB.
 */
const READ_BYTES = 256 * 1024;
/** Detects a peer that vanished silently although nothing is being sent. */
const KEEP_ALIVE_MS = 30_000;
/** How long an unused connection is kept; the default of Node's agents. */
const UNUSED_MS = 5_000;
const STATUSES_WITHOUT_BODY: readonly number[] = [204, 205, 304];
/** No Response may have a status outside of these. */
const [STATUS_MIN, STATUS_MAX] = [200, 599];
const REDIRECTS: readonly number[] = [301, 302, 303, 307, 308];

/** Rejects, as `fetch` does, when there is no answer; of a broken answer the body fails. */
export function nodeFetch(url: string, init: RequestInit): Promise<Response> {
  return new Promise((resolve, reject) => {
    const { body, signal } = init;
    const headers = Object.fromEntries(new Headers(init.headers));
    // Before there is a connection: a stream that is read elsewhere is refused here.
    const web = body instanceof Blob ? body.stream() : body instanceof ReadableStream ? body : undefined;
    const source = web === undefined ? undefined : Readable.fromWeb(web);
    const request = send(url, { method: init.method ?? "GET", headers, ...(signal ? { signal } : {}) });
    request.setSocketKeepAlive(true, KEEP_ALIVE_MS);
    request.on("response", (message) => {
      // What is refused before it has arrived is not sent to its end: the server might never read it.
      message.once("close", () => {
        if (!request.writableEnded) request.destroy();
      });
      const { statusCode = 0 } = message;
      if (statusCode < STATUS_MIN || statusCode > STATUS_MAX) {
        request.destroy();
        return reject(new Error(`the answer has the status ${statusCode}`));
      }
      const isRedirect = REDIRECTS.includes(statusCode) && message.headers.location !== undefined;
      if (!isRedirect || body instanceof ReadableStream) return resolve(responseOf(message));
      message.resume();
      resolve(fetch(url, init));
    });
    request.on("error", reject);
    // Node destroys the connection of a 101 without an error. Has no effect on a promise that is settled.
    request.on("close", () => reject(new Error("the connection ended without an answer")));
    if (source !== undefined) {
      source.on("error", (error) => request.destroy(error));
      request.on("close", () => source.destroy());
      source.pipe(request);
    } else request.end(body instanceof ArrayBuffer ? new Uint8Array(body) : (body ?? undefined));
  });
}

const PLAIN = new http.Agent({ keepAlive: true, scheduling: "lifo", timeout: UNUSED_MS });
PLAIN.createConnection = (to) => connectLarge(to as NetConnectOpts);

function send(url: string, options: RequestOptions): ClientRequest {
  if (url.startsWith("https:")) return https.request(url, options);
  // Node's global agents use the proxy that the environment configures.
  const hasProxy = (http.globalAgent as { options?: { proxyEnv?: unknown } }).options?.proxyEnv !== undefined;
  return http.request(url, hasProxy ? options : { ...options, agent: PLAIN });
}

/**
 * Node's parser copies what it hands on, so the same memory is read into as long as the parser takes what was
 * read immediately.
 */
function connectLarge(to: NetConnectOpts): Socket {
  let bytes = Buffer.allocUnsafeSlow(READ_BYTES);
  let isHeld = false;
  const onread = {
    // Called before the first read and after each.
    buffer: () => {
      if (isHeld) bytes = Buffer.allocUnsafeSlow(READ_BYTES);
      isHeld = false;
      return bytes;
    },
    callback: (size: number) => {
      // False stops reading until the stream is read, as Node's own reads do.
      const hasRoom = socket.push(bytes.subarray(0, size));
      isHeld = socket.readableLength > 0;
      return hasRoom;
    },
  };
  const socket: Socket = connect({ ...to, onread });
  return socket;
}

function responseOf(message: IncomingMessage): Response {
  const status = message.statusCode ?? 0;
  const headers = new Headers();
  for (const [name, values] of Object.entries(message.headersDistinct)) {
    for (const value of values ?? []) headers.append(name, value);
  }
  if (!STATUSES_WITHOUT_BODY.includes(status)) return new Response(bodyOf(message), { status, headers });
  message.resume();
  return new Response(null, { status, headers });
}

/** One piece is read ahead. */
function bodyOf(message: IncomingMessage): ReadableStream<Bytes> {
  let isOver = false;
  return new ReadableStream<Bytes>({
    start(controller) {
      message.on("data", (piece: Buffer<ArrayBuffer>) => {
        // What had arrived before the reader cancelled is still emitted.
        if (isOver) return;
        controller.enqueue(piece);
        if ((controller.desiredSize ?? 0) <= 0) message.pause();
      });
      message.on("end", () => {
        if (!isOver) controller.close();
        isOver = true;
      });
      message.on("error", (error) => {
        if (!isOver) controller.error(error);
        isOver = true;
      });
    },
    pull: () => void message.resume(),
    cancel() {
      isOver = true;
      // What has arrived whole leaves its connection to the next call.
      if (message.complete) message.resume();
      else message.destroy();
    },
  });
}
