/**
 * A terminal between a WebSocket and a program with a terminal in a machine.
 *
 * Always:
 * - The program ends with the socket, and the socket with the program, after its last output and an exit
 *   message.
 * - A client that does not read pauses its program's output; at most OUTPUT_BYTES_MAX are buffered. A program
 *   that does not read pauses its client's input. Other clients are not affected.
 *
 * Exit codes in addition to the program's: 124 at the time limit of an hour, -1 when the result is unknown.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import { joinSmall } from "@flotilla/base/pieces";
import { Refusal } from "@flotilla/contract/errors";
import type { WebSocket } from "ws";
import type { OpenExec } from "../../link/open-exec.ts";
import { closeReason, readMessage } from "./frames.ts";

/** Max bytes buffered for a client before its program's output is paused. */
const OUTPUT_BYTES_MAX = 256 * 1024;
export const CODE_UNKNOWN = -1;
/** WebSocket close codes. CLOSE_DENIED is the standard's "policy violation". */
export const CLOSE_NORMAL = 1000;
export const CLOSE_DENIED = 1008;
export const CLOSE_FAULT = 1011;
export const CLOSE_RESTART = 1012;

export interface TerminalOptions {
  /** Aborted when the server begins to stop. */
  readonly closing: AbortSignal;
  /** Aborted with a Refusal when the client loses access to the terminal. */
  readonly signal: AbortSignal;
  /** Called once, with the program's exit code; null when the client had disconnected before. */
  readonly onEnd: (exitCode: number | null) => void;
}

/** Serves the socket until the program ends or the client disconnects. Never rejects. */
export async function serveTerminal(socket: WebSocket, exec: OpenExec, options: TerminalOptions): Promise<void> {
  const { closing, signal, onEnd } = options;
  const stop = (): void => {
    socket.close(CLOSE_RESTART, "the server stops");
    exec.close();
  };
  const deny = (): void => {
    const { reason } = signal as { reason: unknown };
    if (reason instanceof Refusal) socket.close(CLOSE_DENIED, closeReason(reason.message));
    exec.close();
  };
  socket.on("close", () => exec.close());
  const input = inputOf(socket, exec);
  socket.on("message", (data, isBinary) => input(data as Buffer, isBinary));
  closing.addEventListener("abort", stop, { once: true });
  if (closing.aborted) stop();
  signal.addEventListener("abort", deny, { once: true });
  if (signal.aborted) deny();
  let exitCode: number | null = null;
  try {
    ({ exitCode } = await exec.run({ onOutput: (_, chunk) => sendOutput(socket, chunk) }));
    end(socket, exitCode, { code: CLOSE_NORMAL, reason: "" });
  } catch (error) {
    end(socket, CODE_UNKNOWN, { code: CLOSE_FAULT, reason: closeReason(ownMessageOf(error)) });
  } finally {
    closing.removeEventListener("abort", stop);
    signal.removeEventListener("abort", deny);
    onEnd(exitCode);
  }
}

/**
 * What the client sends, passed on in order. Text that arrives together is passed together: a client may send
 * each byte alone.
 */
export function inputOf(
  socket: Pick<WebSocket, "isPaused" | "pause" | "resume">,
  exec: Pick<OpenExec, "send" | "room">,
): (data: Buffer, isBinary: boolean) => void {
  let typed: Buffer[] = [];
  const pass = (hasRoom: boolean): void => {
    if (hasRoom || socket.isPaused) return;
    socket.pause();
    void exec.room.then(() => socket.resume());
  };
  const endTurn = (): void => {
    const pieces = joinSmall(typed);
    typed = [];
    for (const piece of pieces as readonly Buffer[]) pass(exec.send("stdin", piece));
  };
  return (data, isBinary) => {
    const message = readMessage(data, isBinary);
    if (message.kind === "nothing") return;
    if (message.kind === "typed") {
      if (message.bytes.byteLength === 0) return;
      if (typed.length === 0) process.nextTick(endTurn);
      const { buffer, byteOffset, byteLength } = message.bytes;
      typed.push(Buffer.from(buffer, byteOffset, byteLength));
      return;
    }
    endTurn();
    pass(exec.send("resize", JSON.stringify({ cols: message.cols, rows: message.rows })));
  };
}

/** Returns a promise when the client must read first. */
export function sendOutput(socket: WebSocket, chunk: Uint8Array): void | Promise<void> {
  if (socket.readyState !== socket.OPEN) return;
  if (socket.bufferedAmount < OUTPUT_BYTES_MAX) return socket.send(chunk);
  return new Promise((resolve) => socket.send(chunk, () => resolve()));
}

function end(socket: WebSocket, exitCode: number, { code, reason }: { code: number; reason: string }): void {
  if (socket.readyState !== socket.OPEN) return;
  socket.send(JSON.stringify({ type: "exit", code: exitCode }));
  socket.close(code, reason);
}
