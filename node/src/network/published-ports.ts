/**
 * A machine's published ports on the host's loopback: listeners that forward each connection to the guest.
 * Only if the operator enables the setting publish-on-loopback, because these ports require no key. The
 * server does not use them.
 *
 * Always:
 * - a machine's port has the same number on the host from one start to the next, because it is derived from a
 *   hash of machine and port; if another program uses that number, the next one derived is taken;
 * - the numbers are below the system's range for outgoing connections;
 * - listeners end with the agent, and the next agent opens them again;
 * - a connection ends when either side ends it; a half-closed one stays half-closed.
 */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import type { Duplex } from "node:stream";

export interface PublishedPort {
  readonly port: number;
  readonly hostPort: number;
}

export interface PublishOptions {
  readonly machineId: string;
  readonly ports: readonly number[];
  readonly dial: (port: number, signal: AbortSignal) => Promise<Duplex>;
}

const LISTEN_ADDRESS = "127.0.0.1";
const HOST_PORT_FIRST = 20_000;
/** Linux's ephemeral range starts at 32,768. */
const HOST_PORTS = 12_768;
const CANDIDATES_MAX = 32;
/** Per port, so that one machine cannot use up the agent's descriptors. */
const CONNECTIONS_MAX = 512;

export class PublishedPorts {
  readonly #servers: Server[] = [];
  readonly #connections = new Set<Socket>();
  #ports: readonly PublishedPort[] = [];

  /** The open ports, in the order of the machine's list. */
  get ports(): readonly PublishedPort[] {
    return this.#ports;
  }

  /** Rejects when a port cannot be opened; then none is open. */
  async open({ machineId, ports, dial }: PublishOptions): Promise<void> {
    try {
      this.#ports = await Promise.all(
        ports.map(async (port) => {
          const accept = (socket: Socket): void => void this.#forward(socket, (signal) => dial(port, signal));
          return { port, hostPort: await this.#listen(`${machineId} ${port}`, accept) };
        }),
      );
    } catch (error) {
      this.close();
      throw error;
    }
  }

  close(): void {
    this.#ports = [];
    for (const server of this.#servers.splice(0)) server.close();
    for (const socket of this.#connections) socket.destroy();
  }

  async #listen(name: string, accept: (socket: Socket) => void): Promise<number> {
    for (let candidate = 0; candidate < CANDIDATES_MAX; candidate += 1) {
      const server = createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true }, accept);
      server.maxConnections = CONNECTIONS_MAX;
      const number = hostPortOf(name, candidate);
      try {
        server.listen(number, LISTEN_ADDRESS);
        await once(server, "listening");
        this.#servers.push(server);
        return number;
      } catch (error) {
        server.close();
        if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
      }
    }
    throw new Error("no host port is free for a published port; stop other machines or programs on the host");
  }

  async #forward(outer: Socket, dial: (signal: AbortSignal) => Promise<Duplex>): Promise<void> {
    const gone = new AbortController();
    this.#connections.add(outer);
    outer.on("error", () => {}); // `close` follows.
    outer.once("close", () => {
      this.#connections.delete(outer);
      gone.abort(new Error("the caller closed the connection"));
    });
    try {
      const inner = await dial(gone.signal);
      inner.on("error", () => outer.destroy());
      inner.once("close", () => outer.destroySoon());
      outer.once("close", () => inner.destroy());
      // Each direction ends on its own.
      outer.pipe(inner);
      inner.pipe(outer);
    } catch {
      // The same as the guest's answer when nothing listens on the port.
      outer.resetAndDestroy();
    }
  }
}

/** The `candidate`-th number for a name. */
function hostPortOf(name: string, candidate: number): number {
  return HOST_PORT_FIRST + (createHash("sha256").update(`${name} ${candidate}`).digest().readUInt32LE(0) % HOST_PORTS);
}
