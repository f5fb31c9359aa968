/**
 * What a command has printed so far, from the stream of its events; and a terminal that always has much on
 * its way.
 *
 * An emulated guest at full speed keeps two processors busy, and so do those who read its output. So the
 * command rests between bursts, and the reader of the terminal after each message: then what is on its way
 * fills every buffer.
 */
import { createHash, type Hash } from "node:crypto";
import { once } from "node:events";
import { WebSocket } from "ws";
import { pause, until } from "./until.ts";

/** Prints numbers in order, until there is a file of that path; ends with 3. */
export const counting = (gate: string): string =>
  `i=0; while [ ! -e ${gate} ]; do end=$((i+200)); while [ $i -lt $end ]; do i=$((i+1)); echo $i; done; usleep 100000; done; exit 3`;

export class CommandStream {
  stdout = "";
  /** The event that ended it: `exit` or `error`. */
  exit = "";
  readonly ended: Promise<void>;

  constructor(response: Response) {
    this.ended = this.#read(response);
    this.ended.catch(() => undefined);
  }

  async #read({ body }: Response): Promise<void> {
    let rest = "";
    for await (const chunk of body as unknown as AsyncIterable<Uint8Array>) {
      const events = (rest + Buffer.from(chunk).toString()).split("\n\n");
      rest = events.pop() ?? "";
      for (const event of events) this.#take(event);
    }
  }

  #take(event: string): void {
    const data = /^data: (.*)$/m.exec(event)?.[1] ?? "";
    if (/^event: (exit|error)$/m.test(event)) this.exit = event;
    else if (/^event: stdout$/m.test(event)) this.stdout += Buffer.from(data, "base64").toString();
  }
}

const BLOCK_BYTES = 4096;
const REST_MS = 40;
/** On its way to the program and back; more is sent when it comes back. */
export const OPEN_BYTES_MAX = 512 * 1024;

/** `cat` in a terminal without echo: numbered blocks are sent as they return, and compared. */
export class EchoTerminal {
  readonly #socket: WebSocket;
  #isReady = false;
  #isFeeding = true;
  #greeting = "";
  #sentBytes = 0;
  receivedBytes = 0;
  readonly #sent: Hash = createHash("sha256");
  readonly #received: Hash = createHash("sha256");
  /** Why the socket was closed; null while it is open. */
  closed: string | null = null;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on("message", (data: Buffer, isBinary: boolean) => this.#onMessage(data, isBinary));
    socket.on("close", (code, reason) => {
      this.closed = `${code} ${reason.toString()}`;
    });
  }

  static async open(url: string, key: string): Promise<EchoTerminal> {
    const socket = new WebSocket(`${url.replace("http", "ws")}&arg=-c&arg=stty+raw+-echo;echo+rea''dy;exec+cat`, {
      headers: { authorization: `Bearer ${key}` },
    });
    const terminal = new EchoTerminal(socket);
    await once(socket, "open");
    return terminal;
  }

  /** Sends no more, and resolves with both hashes when everything has returned. */
  async finish(): Promise<{ readonly sent: string; readonly received: string }> {
    this.#isFeeding = false;
    const isDone = (): boolean => this.receivedBytes >= this.#sentBytes || this.closed !== null;
    await until(isDone, { what: "what was typed to return", deadlineMs: 60_000 }).catch(() => undefined);
    this.#socket.close();
    return {
      sent: `${this.#sentBytes} ${this.#sent.digest("hex")}`,
      received: `${this.receivedBytes} ${this.#received.digest("hex")}${this.closed ?? ""}`,
    };
  }

  #onMessage(data: Buffer, isBinary: boolean): void {
    if (!this.#isReady) {
      this.#greeting += data.toString();
      if (!/ready\r?\n/.test(this.#greeting)) return;
      this.#isReady = true;
    } else if (isBinary) {
      this.receivedBytes += data.byteLength;
      this.#received.update(data);
    }
    if (!this.#isFeeding) return;
    this.#socket.pause();
    void pause(REST_MS).then(() => this.#socket.resume());
    while (this.#isFeeding && this.#sentBytes - this.receivedBytes < OPEN_BYTES_MAX) {
      const block = Buffer.from(`${this.#sentBytes} `.repeat(BLOCK_BYTES)).subarray(0, BLOCK_BYTES);
      this.#sentBytes += BLOCK_BYTES;
      this.#sent.update(block);
      this.#socket.send(block);
    }
  }
}
