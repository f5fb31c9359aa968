/**
 * The program of a fake guest that listens at one port.
 *
 * FAKE: what it answers says which machine it is, so that a client sees that the answer is of its request.
 *
 *     any path       the machine's name, method and path as a line, then the body as it was sent
 *     ?head-ms=N     the same after N ms                ?body-ms=N   the head, and the rest after N ms
 *     /events        a stream of numbered events        Upgrade: websocket   each short message is returned
 *
 * Always: once it is asked to end, streams and WebSockets end as their protocols say, and what else was asked
 * is answered within STOP_MS. Nothing survives the process.
 */
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "@flotilla/base/clock";

/** RFC 6455, 1.3. */
const HANDSHAKE = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/** A frame with the code 1001, going away. */
const GOING_AWAY = Buffer.from([0x88, 2, 0x03, 0xe9]);
/** Longer frames have another form, which this program does not read. */
const SHORT_BYTES = 125;
const MASK_BYTES = 4;
const HEAD_BYTES = 2;
const OPCODE_CLOSE = 8;
const EVENT_MS = 200;
const STOP_MS = 2_000;

export interface WebProgramParts {
  readonly status: number;
  readonly hostname: () => string;
  readonly clock: Clock;
}

export class WebProgram {
  readonly #parts: WebProgramParts;
  readonly #server: Server;
  /** What it still does, and how each lasting answer is ended. */
  readonly #open = new Map<ServerResponse | Duplex, () => void>();
  readonly #stopped = Promise.withResolvers<void>();
  #isStopping = false;

  constructor(parts: WebProgramParts) {
    this.#parts = parts;
    this.#server = createServer((request, response) => this.#answer(request, response));
    this.#server.on("upgrade", (request, socket: Duplex) => this.#return(request, socket));
  }

  accept(connection: Duplex): void {
    this.#server.emit("connection", connection);
  }

  /** Resolves when everything has ended, or was not over in time. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    const late = this.#parts.clock.timer(STOP_MS, () => this.#stopped.resolve());
    for (const end of this.#open.values()) end();
    this.#look();
    await this.#stopped.promise;
    late.cancel();
  }

  #begin(what: ServerResponse | Duplex, end: () => void = () => undefined): void {
    this.#open.set(what, end);
    what.once("close", () => {
      this.#open.delete(what);
      this.#look();
    });
  }

  #look(): void {
    if (this.#isStopping && this.#open.size === 0) this.#stopped.resolve();
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { status, hostname, clock } = this.#parts;
    const { method, url = "/", headers } = request;
    const { pathname, searchParams } = new URL(url, "http://localhost");
    if (pathname === "/events") return this.#send(response);
    this.#begin(response);
    const line = `${hostname()} ${method} ${url}\n`;
    const [headMs = 0, bodyMs = 0] = ["head-ms", "body-ms"].map((name) => Number(searchParams.get(name) ?? 0));
    const afterwards = (ms: number, next: () => void): void => {
      if (ms === 0) return next();
      const timer = clock.timer(ms, next);
      response.once("close", () => timer.cancel());
    };
    afterwards(headMs, () => {
      const isWhole = bodyMs === 0 && (headers["content-length"] ?? headers["transfer-encoding"]) === undefined;
      const length = isWhole ? { "content-length": Buffer.byteLength(line) } : {};
      response.writeHead(status, { "content-type": "text/plain", ...length });
      if (isWhole) return void response.end(line);
      response.write(line);
      afterwards(bodyMs, () => request.pipe(response));
    });
  }

  #send(response: ServerResponse): void {
    const { hostname, clock } = this.#parts;
    const over = new AbortController();
    this.#begin(response, () => response.end());
    response.once("close", () => over.abort());
    response.writeHead(200, { "content-type": "text/event-stream" });
    const run = async (): Promise<void> => {
      for (let number = 1; !over.signal.aborted && !response.writableEnded; number += 1) {
        response.write(`data: ${hostname()} ${number}\n\n`);
        await clock.sleep(EVENT_MS, over.signal);
      }
    };
    void run();
  }

  #return({ headers }: IncomingMessage, socket: Duplex): void {
    const accept = createHash("sha1").update(`${headers["sec-websocket-key"]}${HANDSHAKE}`).digest("base64");
    const head = ["HTTP/1.1 101 Switching Protocols", "connection: Upgrade", "upgrade: websocket"];
    socket.write(`${[...head, `sec-websocket-accept: ${accept}`].join("\r\n")}\r\n\r\n`);
    this.#begin(socket, () => void socket.write(GOING_AWAY));
    let rest = Buffer.alloc(0);
    socket.on("error", () => socket.destroy());
    socket.on("end", () => socket.end());
    socket.on("data", (chunk: Buffer) => {
      rest = Buffer.concat([rest, chunk]);
      for (let frame = frameOf(rest); frame !== null; frame = frameOf(rest)) {
        rest = rest.subarray(frame.bytes);
        if (frame.opcode === OPCODE_CLOSE) return void socket.end(this.#isStopping ? undefined : frame.reply);
        socket.write(frame.reply);
      }
    });
  }
}

interface Frame {
  /** How many bytes it takes. */
  readonly bytes: number;
  readonly opcode: number;
  /** The same frame from a server, which masks nothing. */
  readonly reply: Buffer;
}

/** The first frame; null: not all of it is there. */
function frameOf(data: Buffer): Frame | null {
  const [first = 0, second = 0] = data;
  const size = Math.min(second & 0x7f, SHORT_BYTES);
  const begin = HEAD_BYTES + MASK_BYTES;
  if (data.byteLength < begin + size) return null;
  const mask = data.subarray(HEAD_BYTES, begin);
  const payload = data.subarray(begin, begin + size).map((byte, at) => byte ^ (mask[at % MASK_BYTES] ?? 0));
  return {
    bytes: begin + size,
    opcode: first & 0x0f,
    reply: Buffer.concat([Buffer.from([first, size]), payload]),
  };
}
