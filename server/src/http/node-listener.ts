/**
 * The separate listener for the node of this host: a Unix socket in the data directory. Nodes on other hosts
 * have another one (link/fleet-listener.ts).
 *
 * Always:
 * - Its connections are not counted with those of callers, so load on the public listener cuts no node off.
 * - It serves only what nodes call (api/handle.ts).
 * - A socket that a killed server left is replaced.
 */
import { chmod, rm } from "node:fs/promises";
import { createServer, type Socket } from "node:net";

export interface NodeListen {
  readonly path: string;
}

/** Many more than a cluster has nodes; each has one or two. */
const CONNECTIONS_MAX = 1_024;

export interface NodeListener {
  /** `unix:/path`. */
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
  await rm(listen.path, { force: true });
  await new Promise<void>((resolve, reject) => {
    const fail = (error: Error): void => reject(new Error(`cannot listen for nodes: ${error.message}`));
    server.once("error", fail);
    server.listen(listen, () => {
      server.off("error", fail);
      resolve();
    });
  });
  await chmod(listen.path, 0o600);
  return {
    address: `unix:${listen.path}`,
    has: (socket) => sockets.has(socket),
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}
