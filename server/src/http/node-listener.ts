/**
 * The separate listener for nodes: a Unix socket in the data directory, or a dedicated address.
 *
 * Always:
 * - Its connections are not counted with those of callers, so load on the public listener cuts no node off.
 * - It serves only what nodes call (handle.ts).
 * - A socket that a killed server left is replaced.
 */
import { chmod, rm } from "node:fs/promises";
import { createServer, type Socket } from "node:net";
import type { ListenAddress } from "@flotilla/contract/setting-values";

export type NodeListen = { readonly path: string } | ListenAddress;

/** Many more than a cluster has nodes; each has one or two. */
const CONNECTIONS_MAX = 1_024;

export interface NodeListener {
  /** `unix:/path` or `http://host:port`. */
  readonly address: string;
  has(socket: Socket): boolean;
  close(): Promise<void>;
}

/** `take` serves HTTP on a connection. Throws an Error when it cannot listen. */
export async function startNodeListener(listen: NodeListen, take: (socket: Socket) => void): Promise<NodeListener> {
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    take(socket);
  });
  server.maxConnections = CONNECTIONS_MAX;
  if ("path" in listen) await rm(listen.path, { force: true });
  await new Promise<void>((resolve, reject) => {
    const fail = (error: Error): void => reject(new Error(`cannot listen for nodes: ${error.message}`));
    server.once("error", fail);
    server.listen(listen, () => {
      server.off("error", fail);
      resolve();
    });
  });
  if ("path" in listen) await chmod(listen.path, 0o600);
  const bound = server.address();
  return {
    address: typeof bound === "object" && bound !== null ? urlOf(bound.address, bound.port) : `unix:${bound}`,
    has: (socket) => sockets.has(socket),
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

const urlOf = (host: string, port: number): string => `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
