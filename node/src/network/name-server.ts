/**
 * The DNS server of a node's machines, over UDP and TCP, at an address of the node's block that only machines
 * can reach.
 *
 * A machine is identified by the source address of its packets, which its namespace assigns. Queries of a
 * machine with open egress are forwarded to the host's name servers unchanged. A machine with allowed hosts
 * gets their addresses (IPv4: guests have no IPv6), and `refused` for all other names.
 *
 * Always: each machine is bounded, so a flood delays only the machine that sends it: its namespace lets a
 * number of packets a second pass; QUERIES_MAX at once, the rest is dropped like packets; STREAMS_MAX
 * connections, each closed when idle, of which all queries together wait for their turn. While no agent runs
 * nothing answers; guests retry.
 */
import { createSocket, type Socket as DatagramSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import type { Clock } from "@flotilla/base/clock";
import { type Block, NAME_SERVER_PORT } from "./addresses.ts";
import { answerTo, QUERY_BYTES_MAX, type Question, questionOf, RESPONSE_CODES, TYPE_A } from "./dns-message.ts";
import type { TrackedNames } from "./names.ts";
import { allowsName, normalName, type Policy } from "./policy.ts";
import { framed, type Upstream } from "./upstream.ts";

const QUERIES_MAX = 64;
const STREAMS_MAX = 16;
const STREAM_IDLE_MS = 10_000;
/**
 * The rate of queries over connections. A packet has dozens of them, and for each the host makes a
 * connection, which its tables keep for minutes.
 */
const STREAM_QUERY_MS = 50;
const STREAM_QUERIES_AT_ONCE = 20;

/** A machine that may query. */
export interface DnsClient {
  readonly policy: Policy;
  /** Set if the policy has allowed hosts. */
  readonly names: TrackedNames | null;
  onRefused(name: string): void;
}

interface Load {
  queries: number;
  streams: number;
  /** The turn of the last query over a connection, of the monotonic clock. */
  turnAt: number;
}

type Transport = "udp" | "tcp";

export interface NameServerOptions {
  readonly block: Block;
  readonly upstream: Upstream;
  readonly clock: Clock;
  /** The machine with this source address. */
  readonly clientAt: (address: string) => DnsClient | undefined;
  /** When a connection is closed that carries nothing; default STREAM_IDLE_MS. */
  readonly idleMs?: number;
}

export class MachineNameServer implements AsyncDisposable {
  readonly #options: NameServerOptions;
  readonly #datagrams: DatagramSocket;
  readonly #streams: Server;
  readonly #open = new Set<Socket>();
  readonly #loads = new WeakMap<DnsClient, Load>();

  constructor(options: NameServerOptions) {
    this.#options = options;
    this.#datagrams = createSocket("udp4");
    this.#streams = createServer((socket) => void this.#serve(socket));
  }

  /** Rejects when the address cannot be bound. */
  async listen(): Promise<void> {
    const place = { address: this.#options.block.nameServer, port: NAME_SERVER_PORT };
    this.#datagrams.bind(place);
    this.#streams.listen({ host: place.address, port: place.port });
    await Promise.all([once(this.#datagrams, "listening"), once(this.#streams, "listening")]);
    // An error of one packet or one connection does not affect the others.
    this.#datagrams.on("error", () => {});
    this.#streams.on("error", () => {});
    this.#datagrams.on("message", (query, { address, port }) => {
      const client = this.#options.clientAt(address);
      if (client === undefined) return;
      void this.#answer(client, query, "udp").then((answer) => {
        if (answer !== null) this.#datagrams.send(answer, port, address, () => {});
      });
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#datagrams.close();
    this.#streams.close();
    for (const socket of this.#open) socket.destroy();
  }

  /** null: no answer is sent. */
  async #answer(client: DnsClient, query: Buffer, transport: Transport): Promise<Buffer | null> {
    const question = questionOf(query);
    const load = this.#loadOf(client);
    if (question === null || load.queries >= QUERIES_MAX) return null;
    load.queries += 1;
    try {
      return await this.#answerQuestion(client, query, question, transport);
    } catch {
      return answerTo(query, question, { code: RESPONSE_CODES.failed });
    } finally {
      load.queries -= 1;
    }
  }

  async #answerQuestion(client: DnsClient, query: Buffer, question: Question, transport: Transport): Promise<Buffer> {
    if (client.policy.mode === "open") return await this.#options.upstream.forward(query, transport);
    const name = normalName(question.name);
    if (client.names === null || !allowsName(client.policy, name)) {
      client.onRefused(name);
      return answerTo(query, question, { code: RESPONSE_CODES.refused });
    }
    const addresses = await client.names.lookup(name);
    if (addresses === null) return answerTo(query, question, { code: RESPONSE_CODES.failed });
    if (question.type !== TYPE_A) return answerTo(query, question, { code: RESPONSE_CODES.ok });
    if (addresses.length === 0) return answerTo(query, question, { code: RESPONSE_CODES.noSuchName });
    return answerTo(query, question, { code: RESPONSE_CODES.ok, addresses, ttlSeconds: client.names.ttlSeconds(name) });
  }

  /** Answers the queries of a connection one after the other. */
  async #serve(socket: Socket): Promise<void> {
    const client = this.#options.clientAt(socket.remoteAddress ?? "");
    if (client === undefined) return void socket.destroy();
    const load = this.#loadOf(client);
    if (load.streams >= STREAMS_MAX) return void socket.destroy();
    load.streams += 1;
    this.#open.add(socket);
    const closed = new AbortController();
    socket.once("close", () => closed.abort());
    // tidy-allow timer: the socket's own, which ends with it
    socket.setTimeout(this.#options.idleMs ?? STREAM_IDLE_MS, () => socket.destroy());
    try {
      for await (const query of queriesOf(socket)) {
        await this.#turn(load, closed.signal);
        const answer = await this.#answer(client, query, "tcp");
        if (answer === null) break;
        // A client that never reads is closed as idle, after which nothing drains.
        if (!socket.write(framed(answer))) await once(socket, "drain", { signal: closed.signal });
      }
    } catch {
      // The client closed the connection.
    } finally {
      load.streams -= 1;
      this.#open.delete(socket);
      socket.destroy();
    }
  }

  async #turn(load: Load, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    const now = clock.monotonic();
    load.turnAt = Math.max(load.turnAt, now - STREAM_QUERIES_AT_ONCE * STREAM_QUERY_MS) + STREAM_QUERY_MS;
    if (load.turnAt > now) await clock.sleep(load.turnAt - now, signal);
  }

  #loadOf(client: DnsClient): Load {
    const load = this.#loads.get(client) ?? { queries: 0, streams: 0, turnAt: Number.NEGATIVE_INFINITY };
    this.#loads.set(client, load);
    return load;
  }
}

async function* queriesOf(socket: Socket): AsyncGenerator<Buffer> {
  let received = Buffer.alloc(0);
  for await (const part of socket as AsyncIterable<Buffer>) {
    received = Buffer.concat([received, part]);
    while (received.byteLength >= 2) {
      const length = received.readUInt16BE(0);
      if (length > QUERY_BYTES_MAX) return;
      if (received.byteLength < length + 2) break;
      yield received.subarray(2, length + 2);
      received = received.subarray(length + 2);
    }
  }
}
