/**
 * Connects this process's terminal to one in a machine, for `machine shell` and `machine exec -t`.
 *
 * Always:
 * - Keys are sent to the machine unchanged, Ctrl-C too, while the input is a terminal.
 * - The terminal's settings are restored however this ends.
 * - The program's exit code becomes this program's.
 * - A stop request ends this, also when the server does not answer.
 * - Piped input is sent as if typed, also its last line without a line break; then the input ends, for every
 *   program that still reads.
 * - A slow reader of the output slows the machine's program; nothing is held for it without a bound.
 *
 * The key is sent in a header, never in the address: Node's WebSocket supports that.
 */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";
import { every } from "@flotilla/base/clock";
import type { Flotilla, MachineInfo, OpenTerminalQuery } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { Failure } from "../failure.ts";
import type { Streams } from "../output.ts";
import { EXIT_INTERRUPTED } from "../stoppable.ts";

interface End {
  /** The program's exit code; null when the connection ended without one. */
  readonly exitCode: number | null;
  readonly reason: string;
}

const END_OF_INPUT = "\u0004";
const LINE_BREAK = 0x0a;
const CODE_UNKNOWN = -1;
/**
 * A program in the terminal may end at the first end of input, or miss it, and the shell below it waits for
 * its own.
 */
const END_OF_INPUT_PERIOD_MS = 1000;
/** Above this, input is paused until the server has read more. */
const WAITING_BYTES_MAX = 1024 * 1024;
const WAITING_PERIOD_MS = 20;

/**
 * The program's exit code, from 0 to 255. Throws a Failure when the terminal could not be opened, or broke.
 */
export async function joinTerminal(call: Call, machine: MachineInfo, query: OpenTerminalQuery): Promise<number> {
  const flotilla = call.flotilla();
  const name = machine.name ?? machine.id;
  const { output } = call.world.streams;
  const size = sizeOf(output);
  const connection = nextConnection();
  const socket = flotilla.openTerminal(machine.id, { query: { ...query, ...size } });
  socket.binaryType = "arraybuffer";
  const ended = endOf(socket, connection, output);
  if (!(await isOpen(call, socket, name))) throw await whyNot(flotilla, machine.id, name);
  const stop = Promise.withResolvers<null>();
  const stopListening = call.world.onStopSignal(() => stop.resolve(null));
  const disconnect = connect(call, socket, size);
  try {
    const end = await Promise.race([ended, stop.promise]);
    if (end === null) {
      socket.close();
      call.world.endWithCommand();
      return EXIT_INTERRUPTED;
    }
    const { exitCode, reason } = end;
    if (exitCode !== null && exitCode !== CODE_UNKNOWN) return exitCode & 0xff;
    throw new Failure(`the terminal of ${name} ended: ${reason || "the connection broke"}`);
  } finally {
    disconnect();
    stopListening();
  }
}

interface Size {
  readonly cols?: number;
  readonly rows?: number;
}

/**
 * Empty when it is not a terminal, or one whose size is not set, which says 0: the machine's default is used
 * then.
 */
function sizeOf({ isTTY, columns, rows }: Streams["output"]): Size {
  return isTTY && columns > 0 && rows > 0 ? { cols: columns, rows } : {};
}

async function isOpen(call: Call, socket: WebSocket, name: string): Promise<boolean> {
  using _progress = call.output.progress(`opening a terminal in ${name}`);
  return await new Promise((resolve) => {
    socket.addEventListener("open", () => resolve(true));
    socket.addEventListener("close", () => resolve(false));
  });
}

/**
 * A WebSocket hides the response that refused it. A command is refused for the same reasons, and its answer
 * says why.
 */
async function whyNot(flotilla: Flotilla, id: string, name: string): Promise<Error> {
  try {
    await flotilla.exec(id, { command: ["true"] });
  } catch (error) {
    if (error instanceof Error) return error;
  }
  return new Failure(`no terminal could be opened in ${name}, although commands run there`, "try again");
}

/** Where Node says which connection a request is sent on. */
const REQUEST_SENT = "undici:client:sendHeaders";

/**
 * The connection of the next WebSocket, once its request is sent. A WebSocket reads whatever arrives, and its
 * interface cannot pause that.
 */
function nextConnection(): () => Socket | undefined {
  let connection: Socket | undefined;
  const onSent = (message: unknown): void => {
    const { request, socket } = message as {
      readonly request: { readonly upgrade?: unknown };
      readonly socket: Socket;
    };
    if (request.upgrade !== "websocket") return;
    connection = socket;
    unsubscribe(REQUEST_SENT, onSent);
  };
  subscribe(REQUEST_SENT, onSent);
  return () => connection;
}

function endOf(socket: WebSocket, connection: () => Socket | undefined, output: Streams["output"]): Promise<End> {
  let exitCode: number | null = null;
  output.on("drain", () => connection()?.resume());
  socket.addEventListener("message", (event) => {
    const data: unknown = event.data;
    if (data instanceof ArrayBuffer) {
      if (!output.write(new Uint8Array(data))) connection()?.pause();
    } else exitCode = exitCodeOf(String(data)) ?? exitCode;
  });
  // The close event that follows has the reason.
  socket.addEventListener("error", () => undefined);
  return new Promise((resolve) => {
    socket.addEventListener("close", ({ reason }) => resolve({ exitCode, reason }));
  });
}

function exitCodeOf(text: string): number | null {
  try {
    const { type, code } = JSON.parse(text) as { type?: unknown; code?: unknown };
    return type === "exit" && Number.isInteger(code) ? (code as number) : null;
  } catch {
    return null;
  }
}

/**
 * Connects the terminal to the socket, which knows this size of it; the returned function disconnects them.
 */
function connect(call: Call, socket: WebSocket, known: Size): () => void {
  const { input, output } = call.world.streams;
  const isTerminal = input.isTTY === true;
  let last: number | undefined = LINE_BREAK;
  const onData = (chunk: Buffer): void => {
    last = chunk.at(-1);
    socket.send(new Uint8Array(chunk));
    if (socket.bufferedAmount > WAITING_BYTES_MAX) input.pause();
  };
  let stopEnding = (): void => undefined;
  const sendEnd = (): void => socket.send(Buffer.from(END_OF_INPUT));
  const onEnd = (): void => {
    // Within a line, shells that edit lines ignore the end of input.
    if (last !== LINE_BREAK) socket.send(Buffer.of(LINE_BREAK));
    sendEnd();
    stopEnding = every(call.world.clock, END_OF_INPUT_PERIOD_MS, sendEnd);
  };
  const onResize = (): void => {
    const size = sizeOf(output);
    if (size.cols !== undefined) socket.send(JSON.stringify({ type: "resize", ...size }));
  };
  const stopWaiting = every(call.world.clock, WAITING_PERIOD_MS, () => {
    if (input.isPaused() && socket.bufferedAmount <= WAITING_BYTES_MAX) input.resume();
  });
  if (isTerminal) input.setRawMode(true);
  input.on("data", onData);
  if (!isTerminal) input.on("end", onEnd);
  if (output.isTTY) output.on("resize", onResize);
  // It may have been resized while the machine started.
  const { cols, rows } = sizeOf(output);
  if (cols !== known.cols || rows !== known.rows) onResize();
  return () => {
    stopWaiting();
    stopEnding();
    input.off("data", onData);
    input.off("end", onEnd);
    output.off("resize", onResize);
    if (isTerminal) input.setRawMode(false);
    input.pause();
    // A pipe that is never closed would keep this program running.
    if (!isTerminal) input.destroy();
  };
}
