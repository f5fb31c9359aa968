/**
 * Listening sockets of the public listener: several on one port, because Node accepts one connection of each in a round of its event loop.
 *
 * With one of them, a server whose rounds are 5 ms long accepts 200 connections in a second, and those of others wait behind a flood's
 * (docs/decisions/0071-several-acceptors.md).
 *
 * Always:
 * - Linux spreads new connections over the sockets; each of them is given to the HTTP server as if it had accepted it.
 * - A port in use is refused, though sockets with SO_REUSEPORT may share one: before they are opened, a socket without it is. Two
 *   servers that start at the same time are kept apart by an abstract socket, which ends with its process.
 */
import { once } from "node:events";
import type { Server as HttpServer } from "node:http";
import {
  type AddressInfo,
  createServer,
  type ListenOptions,
  type Server,
  type ServerOpts,
  type Socket,
} from "node:net";

/** More of them accept more of a flood in one round. */
const ACCEPTORS = 4;
/** Of the name of an abstract socket. */
const NAME_CHARACTERS_MAX = 100;

/** Where to listen; port 0: a free one. */
interface AcceptAt {
  readonly host: string;
  readonly port: number;
}

/** The abstract socket that a server holds while it opens its sockets there. */
export const openingName = ({ host, port }: AcceptAt): string =>
  `\0flotilla-listens-${port}-${host}`.slice(0, NAME_CHARACTERS_MAX);

/**
 * Makes the HTTP server listen, and opens the other sockets, with `options` for their connections. Returns the other sockets, which are to be
 * closed with it. Throws the error of `listen` (EADDRINUSE: the port is in use); then nothing is left open.
 */
export async function acceptAt(at: AcceptAt, server: HttpServer, options: ServerOpts): Promise<readonly Server[]> {
  // The system chooses a port that nothing uses.
  if (at.port === 0) return await openAll(at, server, options);
  const alone = await listen(createServer(), { path: openingName(at) });
  try {
    await closed(await listen(createServer(), at));
    return await openAll(at, server, options);
  } finally {
    await closed(alone);
  }
}

async function openAll({ host, port }: AcceptAt, server: HttpServer, options: ServerOpts): Promise<readonly Server[]> {
  await listen(server, { host, port, reusePort: true });
  const others: Server[] = [];
  try {
    const { port: chosen } = server.address() as AddressInfo;
    while (others.length < ACCEPTORS - 1) {
      const other = createServer(options, (socket: Socket) => void server.emit("connection", socket));
      others.push(await listen(other, { host, port: chosen, reusePort: true }));
    }
    return others;
  } catch (error) {
    await Promise.all([server, ...others].map(closed));
    throw error;
  }
}

async function listen(server: Server, options: ListenOptions): Promise<Server> {
  server.listen(options);
  await once(server, "listening");
  return server;
}

/** Stops accepting. Resolves when the socket's connections are closed too. */
export const closed = (server: Server): Promise<void> => new Promise((resolve) => void server.close(() => resolve()));
