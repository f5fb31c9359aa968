/**
 * A connection to PostgreSQL that can be cut and restored: for tests of an unreachable database.
 */
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

export interface Proxy {
  /** Like the connection string it was made for, but through the proxy. */
  readonly url: string;
  /** Breaks every connection and refuses new ones. */
  cut(): void;
  /** Keeps every connection and accepts new ones, but passes nothing on. */
  freeze(): void;
  restore(): void;
  close(): Promise<void>;
}

export async function startProxy(databaseUrl: string): Promise<Proxy> {
  const target = new URL(databaseUrl);
  const path = `${decodeURIComponent(target.hostname)}/.s.PGSQL.5432`;
  const sockets = new Set<Socket>();
  const pipes = new Set<readonly [Socket, Socket]>();
  let isCut = false;
  let isFrozen = false;
  const server = createServer((inward) => {
    if (isCut) {
      inward.destroy();
      return;
    }
    const outward = connect({ path });
    for (const [one, other] of [
      [inward, outward],
      [outward, inward],
    ] as const) {
      const pipe = [one, other] as const;
      sockets.add(one);
      pipes.add(pipe);
      if (!isFrozen) one.pipe(other);
      one.on("error", () => other.destroy());
      one.on("close", () => {
        sockets.delete(one);
        pipes.delete(pipe);
        other.destroy();
      });
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const breakAll = () => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `postgres://${target.username}:${target.password}@127.0.0.1:${port}${target.pathname}`,
    cut() {
      isCut = true;
      breakAll();
    },
    freeze() {
      isFrozen = true;
      for (const [from, to] of pipes) from.unpipe(to).pause();
    },
    restore() {
      isCut = false;
      isFrozen = false;
      for (const [from, to] of pipes) from.pipe(to);
    },
    async close() {
      breakAll();
      server.close();
      await once(server, "close");
    },
  };
}
