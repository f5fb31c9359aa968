/**
 * A kept terminal between a WebSocket and its node: what each message and each end of the connection mean.
 *
 * Always:
 * - A client that closes the socket in order ends the terminal, and so does the loss of its right. Any other
 *   end of the connection leaves it for a minute, also a stop of this server.
 * - A client that does not read makes its own program wait, by what it acknowledges; one that only watches
 *   misses output.
 * - The first message says where the terminal is. docs/terminals.md describes all of them.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import { TERMINAL_INPUT_BYTES_MAX } from "@flotilla/contract/limits";
import type { ExecResumed } from "@flotilla/contract/link/link";
import type { WebSocket } from "ws";
import { Broken } from "../../link/exec-connection.ts";
import { type KeptTerminal, TerminalEnded, TerminalReplaced } from "../../link/kept-terminal.ts";
import { closeReason, type KeptMessage, readKeptMessage } from "./frames.ts";
import {
  CLOSE_DENIED,
  CLOSE_FAULT,
  CLOSE_NORMAL,
  CLOSE_RESTART,
  CODE_UNKNOWN,
  inputOf,
  sendOutput,
  type TerminalOptions,
} from "./terminal.ts";

/** Another client has taken the terminal over. */
const CLOSE_REPLACED = 4001;
/** The terminal has ended, or never was. */
export const CLOSE_ENDED = 4004;
/** Its client has ended it while it was watched. */
const CLOSE_GONE = 4005;
/** The code of a client that closes without one. */
const CLOSE_NO_STATUS = 1005;

export interface KeptOptions extends TerminalOptions {
  readonly id: string;
  readonly isReader: boolean;
}

/** Serves the socket until the terminal has ended or the client's connection. Never rejects. */
export async function serveKept(socket: WebSocket, terminal: KeptTerminal, options: KeptOptions): Promise<void> {
  const { closing, signal, onEnd, id, isReader } = options;
  const stop = (): void => {
    socket.close(CLOSE_RESTART, "the server stops");
    terminal.detach();
  };
  const deny = (): void => {
    const { reason } = signal as { reason: unknown };
    // A client that has gone: how it closed decides.
    if (!(reason instanceof Refusal)) return;
    socket.close(CLOSE_DENIED, closeReason(reason.message));
    if (isReader) terminal.detach();
    else terminal.end();
  };
  socket.on("close", (code) => {
    if (!isReader && (code === CLOSE_NORMAL || code === CLOSE_NO_STATUS)) terminal.end();
    else terminal.detach();
  });
  const say = (message: object): void => {
    if (socket.readyState === socket.OPEN) socket.send(JSON.stringify(message));
  };
  const window = new InputWindow(terminal.position.stdinBytes);
  say({ type: "attached", terminal: id, ...shown(terminal.position) });
  const handle = isReader ? readerMessages(say) : clientMessages(socket, terminal, { window, say });
  socket.on("message", (data, isBinary) => handle(readKeptMessage(data as Buffer, isBinary), data as Buffer, isBinary));
  closing.addEventListener("abort", stop, { once: true });
  if (closing.aborted) stop();
  signal.addEventListener("abort", deny, { once: true });
  if (signal.aborted) deny();
  let exitCode: number | null = null;
  try {
    const onPosition = (position: ExecResumed): void => {
      if (position.stdoutBytes !== undefined) return say({ type: "offset", ...shown(position) });
      window.taken(position.stdinBytes);
      if (!isReader) say({ type: "input", bytes: position.stdinBytes });
    };
    ({ exitCode } = await terminal.run({ onOutput: (chunk) => sendOutput(socket, chunk), onPosition }));
    say({ type: "exit", code: exitCode });
    socket.close(CLOSE_NORMAL);
  } catch (error) {
    close(socket, error, say);
    terminal.detach();
  } finally {
    closing.removeEventListener("abort", stop);
    signal.removeEventListener("abort", deny);
    onEnd(exitCode);
  }
}

const shown = ({ stdoutBytes = 0, stdinBytes }: ExecResumed) => ({ offset: stdoutBytes, input: stdinBytes });

type Say = (message: object) => void;
type Handle = (message: KeptMessage, data: Buffer, isBinary: boolean) => void;

const readerMessages =
  (say: Say): Handle =>
  ({ kind }) =>
    kind === "ping" ? say({ type: "pong" }) : undefined;

function clientMessages(
  socket: WebSocket,
  terminal: KeptTerminal,
  { window, say }: { readonly window: InputWindow; readonly say: Say },
): Handle {
  const input = inputOf(socket, terminal);
  return (message, data, isBinary) => {
    switch (message.kind) {
      case "ping":
        return say({ type: "pong" });
      case "received":
        return void terminal.send("taken", JSON.stringify({ stdoutBytes: message.offset }));
      case "typed":
        if (window.add(message.bytes.byteLength)) return input(data, isBinary);
        return socket.close(CLOSE_DENIED, "more input was sent than may wait; wait for `input` messages");
      default:
        return input(data, isBinary);
    }
  };
}

/** Input that the client has sent and the machine has not taken. */
class InputWindow {
  #sent: number;
  #taken: number;

  constructor(offset: number) {
    this.#sent = this.#taken = offset;
  }

  /** false: it is more than may wait. */
  add(bytes: number): boolean {
    this.#sent += bytes;
    return this.#sent - this.#taken <= 2 * TERMINAL_INPUT_BYTES_MAX;
  }

  taken(offset: number): void {
    this.#taken = Math.max(this.#taken, offset);
  }
}

function close(socket: WebSocket, error: unknown, say: Say): void {
  const reason = closeReason(ownMessageOf(error));
  if (error instanceof TerminalReplaced) return socket.close(CLOSE_REPLACED, reason);
  if (error instanceof TerminalEnded) return socket.close(CLOSE_GONE, reason);
  if (error instanceof Broken) return socket.close(CLOSE_RESTART, reason);
  say({ type: "exit", code: CODE_UNKNOWN });
  socket.close(CLOSE_FAULT, reason);
}
