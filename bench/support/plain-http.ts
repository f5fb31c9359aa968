/**
 * A client for benches of many small requests, on kept-alive connections: it writes the text of a request and
 * reads the status, so it takes less of the processors from what is measured than an HTTP library. It
 * understands answers with a content-length only.
 */
import { once } from "node:events";
import { createConnection, type Socket } from "node:net";

const END_OF_HEAD = "\r\n\r\n";

export interface PlainRequest {
  readonly method: "GET" | "POST";
  readonly path: string;
  /** Without host and content-length. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** One connection: one request at a time. */
export class PlainConnection {
  readonly #socket: Socket;
  readonly #host: string;
  #received: Buffer = Buffer.alloc(0);
  #answered: PromiseWithResolvers<number> | null = null;

  private constructor(socket: Socket, host: string) {
    this.#socket = socket;
    this.#host = host;
    socket.setNoDelay(true);
    socket.on("data", (piece: Buffer) => this.#receive(piece));
    socket.on("error", (error) => this.#answered?.reject(error));
    socket.on("close", () => this.#answered?.reject(new Error("the server closed the connection")));
  }

  static async open(url: string): Promise<PlainConnection> {
    const { hostname, port, host } = new URL(url);
    const socket = createConnection({ host: hostname, port: Number(port) });
    await once(socket, "connect");
    return new PlainConnection(socket, host);
  }

  /** Resolves with the status when the answer has come whole. Rejects when the connection ends before. */
  send({ method, path, headers, body = "" }: PlainRequest): Promise<number> {
    this.#answered = Promise.withResolvers<number>();
    let text = `${method} ${path} HTTP/1.1\r\nhost: ${this.#host}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n`;
    for (const [name, value] of Object.entries(headers)) text += `${name}: ${value}\r\n`;
    this.#socket.write(`${text}\r\n${body}`);
    return this.#answered.promise;
  }

  close(): void {
    this.#socket.destroy();
  }

  #receive(piece: Buffer): void {
    this.#received = this.#received.length === 0 ? piece : Buffer.concat([this.#received, piece]);
    const end = this.#received.indexOf(END_OF_HEAD);
    if (end < 0) return;
    const head = this.#received.toString("latin1", 0, end);
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
    if (length === undefined) {
      this.#answered?.reject(new Error(`an answer has no content-length: ${head}`));
      return;
    }
    if (this.#received.length < end + END_OF_HEAD.length + Number(length)) return;
    this.#received = Buffer.alloc(0);
    this.#answered?.resolve(Number(head.slice("HTTP/1.1 ".length, "HTTP/1.1 200".length)));
  }
}
