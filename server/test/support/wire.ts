/**
 * Connections that behave as no HTTP client would: raw bytes, sent slowly, never to the end, or abandoned half-way.
 */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { after } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";

export interface Wire {
  readonly socket: Socket;
  /** Everything received so far. */
  readonly received: () => string;
  /** Whether the server has closed it completely. */
  readonly isClosed: () => boolean;
  send(text: string | Buffer): void;
}

/** An open connection to the server. Destroyed after the tests of the file. `isDeaf`: never closes its own side. */
export async function wire(url: string, options: { readonly isDeaf?: boolean } = {}): Promise<Wire> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: options.isDeaf === true });
  let received = "";
  let isClosed = false;
  socket.on("data", (chunk) => {
    received += chunk.toString("latin1");
  });
  socket.on("error", () => undefined);
  socket.on("close", () => {
    isClosed = true;
  });
  after(() => socket.destroy());
  await once(socket, "connect");
  return {
    socket,
    received: () => received,
    isClosed: () => {
      // A connection that the server has only half-closed accepts this; a closed one breaks.
      if (socket.readableEnded && socket.writable) socket.write("x");
      return isClosed;
    },
    send: (text) => void socket.write(text),
  };
}

/** The head of a request with a key, up to its empty line. */
export function head(method: string, path: string, key: string | null, more: Readonly<Record<string, string>> = {}) {
  const lines = [`${method} ${path} HTTP/1.1`, "host: flotilla"];
  if (key !== null) lines.push(`authorization: Bearer ${key}`);
  for (const [name, value] of Object.entries(more)) lines.push(`${name}: ${value}`);
  return `${lines.join("\r\n")}\r\n\r\n`;
}

/** Time that passes `factor` times as fast: for deadlines of minutes. */
export const fastClock = (factor: number): Clock => ({
  now: () => systemClock.now(),
  monotonic: () => systemClock.monotonic() * factor,
  sleep: (ms, signal) => systemClock.sleep(ms / factor, signal),
  timer: (ms, callback) => systemClock.timer(ms / factor, callback),
});
