/**
 * Queries to the host's name servers: forwarded unchanged (for machines that may query anything), and for the
 * addresses of one name (for machines that may not).
 *
 * Always: each query uses a new random port and id; answers from another source or to another query are
 * ignored. Every query ends within QUERY_MS. The host's /etc/hosts is not used: its names are private to the
 * host.
 */
import { randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { Resolver } from "node:dns/promises";
import { readFile } from "node:fs/promises";
import { connect, isIP, isIPv6 } from "node:net";
import type { Clock } from "@flotilla/base/clock";

const RESOLV_CONF = "/etc/resolv.conf";
const SERVERS_MAX = 3;
/** How long the host's list of name servers is cached. */
const LIST_MS = 5_000;
const ATTEMPT_MS = 2_000;
const QUERY_MS = SERVERS_MAX * ATTEMPT_MS;
const ANSWER_BYTES_MAX = 65_535;

export interface NameServer {
  readonly address: string;
  readonly port: number;
}

/** The addresses of a name, and how long they are valid. */
export interface Resolution {
  readonly addresses: readonly string[];
  readonly ttlSeconds: number;
}

export interface Upstream {
  /** An empty list if the name has no address. Rejects when no name server answers. */
  resolve(name: string): Promise<Resolution>;
  /** The answer to a query, unchanged. Rejects when no name server answers. */
  forward(query: Buffer, transport: "udp" | "tcp"): Promise<Buffer>;
}

export class HostUpstream implements Upstream {
  readonly #clock: Clock;
  readonly #listPath: string;
  #servers: readonly NameServer[] = [];
  #readAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, listPath = RESOLV_CONF) {
    this.#clock = clock;
    this.#listPath = listPath;
  }

  async resolve(name: string): Promise<Resolution> {
    const servers = await this.#list();
    const resolver = new Resolver({ timeout: ATTEMPT_MS, tries: 2 });
    resolver.setServers(
      servers.map(({ address, port }) => (isIPv6(address) ? `[${address}]:${port}` : `${address}:${port}`)),
    );
    const timer = this.#clock.timer(QUERY_MS, () => resolver.cancel());
    try {
      const records = await resolver.resolve4(name, { ttl: true });
      return {
        addresses: records.map(({ address }) => address),
        ttlSeconds: Math.min(...records.map(({ ttl }) => ttl)),
      };
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOTFOUND" || code === "ENODATA") return { addresses: [], ttlSeconds: 0 };
      throw error;
    } finally {
      timer.cancel();
    }
  }

  async forward(query: Buffer, transport: "udp" | "tcp"): Promise<Buffer> {
    const send = transport === "udp" ? queryByDatagram : queryByStream;
    for (const server of await this.#list()) {
      const answer = await send(server, query, this.#clock).catch(() => null);
      if (answer !== null) return answer;
    }
    throw new Error("no name server of the host answered");
  }

  async #list(): Promise<readonly NameServer[]> {
    const now = this.#clock.monotonic();
    if (now - this.#readAt > LIST_MS) {
      this.#servers = nameServersIn(await readFile(this.#listPath, "utf8").catch(() => ""));
      this.#readAt = now;
    }
    if (this.#servers.length === 0) throw new Error("the host has no name server in /etc/resolv.conf");
    return this.#servers;
  }
}

/** The `nameserver` lines of a resolv.conf. */
function nameServersIn(text: string): readonly NameServer[] {
  const addresses = [...text.matchAll(/^\s*nameserver\s+(\S+)/gm)].map((match) => match[1] ?? "");
  return addresses
    .filter((address) => isIP(address) !== 0)
    .slice(0, SERVERS_MAX)
    .map((address) => ({ address, port: 53 }));
}

function queryByDatagram({ address, port }: NameServer, query: Buffer, clock: Clock): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const socket = createSocket(isIPv6(address) ? "udp6" : "udp4");
  const id = randomInt(0x1_0000);
  const timer = clock.timer(ATTEMPT_MS, () => reject(new Error("no answer")));
  socket.on("error", reject);
  // Connected, so that the kernel drops packets from other sources. Not with a function to call back: that
  // would be called, and nothing else would tell, when the host has no route to the address.
  socket.once("connect", () => socket.send(withId(query, id)));
  socket.connect(port, address);
  socket.on("message", (answer) => {
    if (answer.byteLength >= 12 && answer.readUInt16BE(0) === id) resolve(withId(answer, query.readUInt16BE(0)));
  });
  return promise.finally(() => {
    timer.cancel();
    socket.close();
  });
}

function queryByStream({ address, port }: NameServer, query: Buffer, clock: Clock): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const socket = connect({ host: address, port });
  let received = Buffer.alloc(0);
  const timer = clock.timer(ATTEMPT_MS, () => reject(new Error("no answer")));
  socket.once("error", reject);
  socket.once("close", () => reject(new Error("no answer")));
  socket.write(framed(query));
  socket.on("data", (part: Buffer) => {
    received = Buffer.concat([received, part]);
    const length = received.byteLength < 2 ? ANSWER_BYTES_MAX : received.readUInt16BE(0);
    if (received.byteLength >= length + 2) resolve(received.subarray(2, length + 2));
  });
  return promise.finally(() => {
    timer.cancel();
    socket.destroy();
  });
}

/** Prefixes the length, as DNS over TCP does. */
export function framed(message: Buffer): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(message.byteLength, 0);
  return Buffer.concat([length, message]);
}

function withId(message: Buffer, id: number): Buffer {
  const copy = Buffer.from(message);
  copy.writeUInt16BE(id, 0);
  return copy;
}
