/**
 * A terminal that comes back by itself: `flotilla.keepTerminal(…)` writes, `flotilla.viewTerminal(…)` only
 * reads.
 *
 * Always:
 * - A connection that is lost is opened again for a minute, from the byte on that was handed out last. No
 *   byte is handed out twice or lost, and none is typed twice.
 * - Output is acknowledged when its reader asks for the next piece, so a slow reader slows the program and
 *   nothing is collected. A reader of another's terminal misses output instead.
 * - `close` ends the program; so does the end of the signal. A page that is left does not: its terminal waits
 *   for a minute.
 */
import { after, now, pause } from "./clock.ts";
import { PIECE_BYTES, Typed } from "./typed.ts";

/** How long a lost connection is opened again. The server keeps a terminal for as long. */
const KEPT_MS = 60_000;
const PAUSE_FIRST_MS = 100;
const PAUSE_MAX_MS = 2_000;
/** A connection that does not open or say where the terminal is within this time is abandoned. */
const OPEN_MS = 25_000;
/** A connection that answers nothing for this time is lost: browsers notice that only after minutes. */
const PING_MS = 10_000;
const ACKNOWLEDGED_STEP_BYTES = 32 * 1024;
/** Close codes of the server after which there is nothing to come back to. */
const FINAL_CODES: readonly number[] = [1008, 1009, 1011, 4001, 4004, 4005];
const CODE_ENDED = 4004;
/** Sent when a connection is abandoned: the terminal is left, not ended. */
const CODE_LEFT = 4000;

/** How a terminal ended. `exitCode` null: unknown; `reason` says why, or is empty when the program ended. */
export interface TerminalEnd {
  readonly exitCode: number | null;
  readonly reason: string;
}

/** `lost`: its connection is, and is being opened again. */
export type TerminalState =
  | { readonly kind: "connecting" | "open" | "lost" }
  | ({ readonly kind: "ended" } & TerminalEnd);

export interface TerminalSize {
  readonly cols: number;
  readonly rows: number;
}

/** How a terminal reaches its server. */
export interface TerminalDoor {
  readonly id: string;
  readonly isReader: boolean;
  /** null: it is begun. Otherwise it is continued after so many bytes of output. */
  readonly offset: number | null;
  readonly size: TerminalSize | null;
  readonly signal: AbortSignal | undefined;
  readonly onState: ((state: TerminalState) => void) | undefined;
  readonly open: (at: { readonly offset: number | null; readonly size: TerminalSize | null }) => WebSocket;
}

interface Piece {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Offset after it. */
  readonly end: number;
}

export class KeptTerminal implements AsyncIterable<Uint8Array<ArrayBuffer>>, AsyncDisposable {
  /** Names the terminal among those of its machine: who has it may read along. */
  readonly id: string;
  /** Resolves when the terminal has ended, or was closed. Never rejects. */
  readonly ended: Promise<TerminalEnd>;
  readonly #door: TerminalDoor;
  readonly #typed = new Typed();
  readonly #ending = Promise.withResolvers<TerminalEnd>();
  readonly #over = new AbortController();
  #state: TerminalState = { kind: "connecting" };
  #socket: WebSocket | null = null;
  #size: TerminalSize | null;
  /** Arrived and not handed out. */
  #pieces: Piece[] = [];
  #arrived: number;
  /** After what was handed out last. */
  #offset: number;
  #acknowledged = 0;
  #wakeReader: () => void = () => {};
  #room = Promise.withResolvers<void>();
  #writing: Promise<void> = Promise.resolve();
  #exitCode: number | null = null;
  #wasAttached = false;
  #isAttached = false;
  /** When it was attached last. */
  #lostAt = 0;
  #pauseMs = PAUSE_FIRST_MS;
  #hurry = new AbortController();
  /** Whether anything came since the last ping. */
  #hasAnswered = false;
  #stopPing: () => void = () => {};
  readonly #onAbort = (): void => this.close();

  constructor(door: TerminalDoor) {
    this.id = door.id;
    this.#door = door;
    this.#size = door.size;
    this.#offset = this.#arrived = door.offset ?? 0;
    this.ended = this.#ending.promise;
    door.signal?.addEventListener("abort", this.#onAbort, { once: true });
    if (door.signal?.aborted === true) this.close();
    else this.#connect(door.offset);
  }

  get state(): TerminalState {
    return this.#state;
  }

  /** Bytes of output before what is handed out next. */
  get offset(): number {
    return this.#offset;
  }

  /**
   * Types. Resolves when there is room for more: await it, and a program that does not read makes its writer
   * wait. Throws a TypeError when the terminal is only read.
   */
  write(data: string | Uint8Array<ArrayBuffer>): Promise<void> {
    if (this.#door.isReader) throw new TypeError("this terminal is only read");
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    this.#writing = this.#writing.then(() => this.#write(bytes));
    return this.#writing;
  }

  /** The terminal has another size. A reader's has no size. */
  resize(size: TerminalSize): void {
    if (this.#door.isReader) return;
    this.#size = size;
    if (this.#isAttached) this.#say({ type: "resize", cols: size.cols, rows: size.rows });
  }

  /** Opens another connection at once, as after a change of the network. */
  reconnect(): void {
    this.#hurry.abort();
    if (this.#isAttached) this.#lose();
  }

  /** Leaves the terminal, which waits a minute for the next client. */
  leave(): void {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close(CODE_LEFT);
    this.#finish({ exitCode: null, reason: "it was left" });
  }

  /** Ends the program; of a reader only the reading. */
  close(): void {
    this.#finish({ exitCode: null, reason: "it was closed" });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
    await this.ended;
  }

  /** The output, for one reader. It ends with the terminal; leaving it does not end the terminal. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array<ArrayBuffer>, void, undefined> {
    for (;;) {
      const piece = this.#pieces.shift();
      if (piece === undefined) {
        if (this.#state.kind === "ended") return;
        await new Promise<void>((resolve) => (this.#wakeReader = resolve));
        continue;
      }
      this.#offset = piece.end;
      yield piece.bytes;
      this.#acknowledge();
    }
  }

  async #write(bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    for (let at = 0; at < bytes.byteLength; at += PIECE_BYTES) {
      while (!this.#typed.hasRoom && this.#state.kind !== "ended") await this.#room.promise;
      if (this.#state.kind === "ended") return;
      const piece = bytes.slice(at, at + PIECE_BYTES);
      this.#typed.add(piece);
      if (this.#isAttached) this.#socket?.send(piece);
    }
  }

  #acknowledge(): void {
    if (!this.#isAttached || this.#door.isReader || this.#offset < this.#acknowledged + ACKNOWLEDGED_STEP_BYTES) return;
    this.#acknowledged = this.#offset;
    this.#say({ type: "received", offset: this.#offset });
  }

  #say(message: object): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  #connect(offset: number | null): void {
    let socket: WebSocket;
    try {
      socket = this.#door.open({ offset, size: this.#size });
    } catch (error) {
      return this.#finish({ exitCode: null, reason: error instanceof Error ? error.message : String(error) });
    }
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    // What is begun may first start its machine.
    const openMs = offset === null ? Number.POSITIVE_INFINITY : OPEN_MS;
    const cancel = after(openMs, () => this.#onClose(socket, CODE_LEFT, "the server does not answer"));
    socket.addEventListener("message", (event) => {
      if (socket !== this.#socket) return;
      const data: unknown = event.data;
      this.#hasAnswered = true;
      if (data instanceof ArrayBuffer) return this.#onOutput(new Uint8Array(data));
      cancel();
      this.#onMessage(String(data));
    });
    // The close event that follows has the reason.
    socket.addEventListener("error", () => {});
    socket.addEventListener("close", ({ code, reason }) => {
      cancel();
      this.#onClose(socket, code, reason);
    });
  }

  #onOutput(bytes: Uint8Array<ArrayBuffer>): void {
    this.#arrived += bytes.byteLength;
    this.#pieces.push({ bytes, end: this.#arrived });
    this.#wakeReader();
  }

  #onMessage(text: string): void {
    const { type, offset, input, bytes, code } = messageOf(text);
    switch (type) {
      case "attached":
        this.#arrived = offset;
        return this.#onAttached(input);
      case "offset":
        this.#arrived = offset;
        return;
      case "input":
        this.#typed.taken(bytes);
        return this.#wakeWriter();
      case "exit":
        this.#exitCode = code;
        return;
      default:
        return;
    }
  }

  #onAttached(input: number): void {
    this.#wasAttached = this.#isAttached = true;
    this.#acknowledged = this.#arrived;
    if (!this.#door.isReader) for (const piece of this.#typed.attached(input)) this.#socket?.send(piece);
    // It may have been resized meanwhile.
    if (this.#size !== null) this.resize(this.#size);
    this.#wakeWriter();
    this.#beginPings();
    this.#setState({ kind: "open" });
  }

  #beginPings(): void {
    this.#stopPing();
    this.#hasAnswered = true;
    const tick = (): void => {
      if (!this.#hasAnswered) return this.#lose();
      this.#hasAnswered = false;
      this.#say({ type: "ping" });
      this.#stopPing = after(PING_MS, tick);
    };
    tick();
  }

  /** Abandons the connection, and opens another one. */
  #lose(): void {
    const socket = this.#socket;
    if (socket !== null) this.#onClose(socket, CODE_LEFT, "");
  }

  #onClose(socket: WebSocket, code: number, reason: string): void {
    if (socket !== this.#socket || this.#state.kind === "ended") return;
    this.#socket = null;
    this.#stopPing();
    if (this.#isAttached) this.#lostAt = now();
    this.#isAttached = false;
    // Not in order: that would end the terminal.
    if (code === CODE_LEFT) socket.close(CODE_LEFT);
    if (this.#exitCode !== null) return this.#finish({ exitCode: codeOf(this.#exitCode), reason });
    // Its writer may come back first.
    const isAwaited = this.#door.isReader && code === CODE_ENDED && this.#wasAttached;
    const isFinal = FINAL_CODES.includes(code) && !isAwaited;
    if (isFinal || !this.#wasAttached) return this.#finish({ exitCode: null, reason });
    this.#setState({ kind: "lost" });
    void this.#comeBack(reason);
  }

  async #comeBack(reason: string): Promise<void> {
    const leftMs = this.#lostAt + KEPT_MS - now();
    if (leftMs <= 0) {
      const text = "the terminal could not be reached again within a minute";
      return this.#finish({ exitCode: null, reason: reason === "" ? text : `${text}: ${reason}` });
    }
    this.#hurry = new AbortController();
    const isFirst = leftMs === KEPT_MS;
    this.#pauseMs = isFirst ? PAUSE_FIRST_MS : Math.min(2 * this.#pauseMs, PAUSE_MAX_MS);
    await pause(Math.min(this.#pauseMs, leftMs), AbortSignal.any([this.#hurry.signal, this.#over.signal]));
    if (this.#state.kind === "ended") return;
    // What was not handed out comes again.
    this.#pieces = [];
    this.#connect(this.#offset);
  }

  #wakeWriter(): void {
    this.#room.resolve();
    this.#room = Promise.withResolvers();
  }

  #setState(state: TerminalState): void {
    if (state.kind === this.#state.kind) return;
    this.#state = state;
    this.#door.onState?.(state);
  }

  #finish(end: TerminalEnd): void {
    if (this.#state.kind === "ended") return;
    this.#setState({ kind: "ended", ...end });
    this.#isAttached = false;
    this.#stopPing();
    this.#over.abort();
    this.#door.signal?.removeEventListener("abort", this.#onAbort);
    this.#socket?.close(1000);
    this.#socket = null;
    this.#wakeWriter();
    this.#wakeReader();
    this.#ending.resolve(end);
  }
}

/** -1: the server does not know it. */
const codeOf = (code: number): number | null => (code < 0 ? null : code);

interface ServerMessage {
  readonly type: unknown;
  readonly offset: number;
  readonly input: number;
  readonly bytes: number;
  readonly code: number;
}

function messageOf(text: string): ServerMessage {
  const { type, offset, input, bytes, code } = JSON.parse(text) as Record<keyof ServerMessage, unknown>;
  const number = (value: unknown): number => (typeof value === "number" ? value : 0);
  return { type, offset: number(offset), input: number(input), bytes: number(bytes), code: number(code) };
}

/** A new id of a terminal. */
export function terminalId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
