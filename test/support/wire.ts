/**
 * Connections that behave as no HTTP client would: raw bytes, sent slowly, never to the end, or abandoned
 * half-way.
 */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { after } from "node:test";
import { connect as connectTls } from "node:tls";

export interface Wire {
  readonly socket: Socket;
  /** Everything received so far. */
  readonly received: () => string;
  /** Whether the server has closed it completely. */
  readonly isClosed: () => boolean;
  send(text: string | Buffer): void;
}

export interface WireOptions {
  /** It never closes its own side. */
  readonly isDeaf?: boolean;
}

/** An open connection to `http://…`, `https://…` or `unix:/path`. Destroyed after the tests of the file. */
export async function wire(url: string, { isDeaf = false }: WireOptions = {}): Promise<Wire> {
  const socket = open(url, isDeaf);
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
  await once(socket, url.startsWith("https:") ? "secureConnect" : "connect");
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

function open(url: string, allowHalfOpen: boolean): Socket {
  if (url.startsWith("unix:")) return connect({ path: url.slice("unix:".length), allowHalfOpen });
  const { hostname: host, port, protocol } = new URL(url);
  if (protocol !== "https:") return connect({ host, port: Number(port), allowHalfOpen });
  return connectTls({ host, port: Number(port), rejectUnauthorized: false, ALPNProtocols: ["http/1.1"] });
}

/** The head of a request with a key, up to its empty line. */
export function head(method: string, path: string, key: string | null, more: Readonly<Record<string, string>> = {}) {
  const lines = [`${method} ${path} HTTP/1.1`, "host: flotilla"];
  if (key !== null) lines.push(`authorization: Bearer ${key}`);
  for (const [name, value] of Object.entries(more)) lines.push(`${name}: ${value}`);
  return `${lines.join("\r\n")}\r\n\r\n`;
}
