/**
 * Answers the names that machines ask for, over UDP and TCP, at an address of the node's block that only machines reach.
 *
 * A machine is known by the address that its packets come from, which its namespace gives them. One that may reach
 * everything is answered by the host's name servers, as they are; one with allowed hosts learns the addresses of these
 * (IPv4: guests have no other), and `refused` for everything else.
 *
 * Always: bounded per machine, so one that floods waits for itself alone: QUERIES_MAX at once, the rest is dropped as
 * packets are; STREAMS_MAX connections, each closed when it is idle. While no agent runs nobody answers; guests ask
 * again.
 */
import { createSocket, type Socket as DatagramSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { type Block, NAME_SERVER_PORT } from "./addresses.ts";
import { answerTo, QUERY_BYTES_MAX, type Question, questionOf, RESPONSE_CODES, TYPE_A } from "./dns-message.ts";
import type { FollowedNames } from "./names.ts";
import { allowsName, normalName, type Policy } from "./policy.ts";
import { framed, type Upstream } from "./upstream.ts";

const QUERIES_MAX = 64;
const STREAMS_MAX = 16;
const STREAM_IDLE_MS = 10_000;

/** Whoever may ask. */
export interface Asker {
  readonly policy: Policy;
  /** With allowed hosts. */
  readonly names: FollowedNames | null;
  onRefused(name: string): void;
}

interface Load {
  queries: number;
  streams: number;
}

type Transport = "udp" | "tcp";

export interface NameServerOptions {
  readonly block: Block;
  readonly upstream: Upstream;
  /** By the address that its packets come from. */
  readonly askerAt: (address: string) => Asker | undefined;
}

export class MachineNameServer implements AsyncDisposable {
  readonly #options: NameServerOptions;
  readonly #datagrams: DatagramSocket;
  readonly #streams: Server;
  readonly #open = new Set<Socket>();
  readonly #loads = new WeakMap<Asker, Load>();

  constructor(options: NameServerOptions) {
    this.#options = options;
    this.#datagrams = createSocket("udp4");
    this.#streams = createServer((socket) => void this.#serve(socket));
  }

  /** Rejects when the address can not be had. */
  async listen(): Promise<void> {
    const place = { address: this.#options.block.nameServer, port: NAME_SERVER_PORT };
    this.#datagrams.bind(place);
    this.#streams.listen({ host: place.address, port: place.port });
    await Promise.all([once(this.#datagrams, "listening"), once(this.#streams, "listening")]);
    // What is wrong with one packet or one connection is nobody else's matter.
    this.#datagrams.on("error", () => {});
    this.#streams.on("error", () => {});
    this.#datagrams.on("message", (query, { address, port }) => {
      const asker = this.#options.askerAt(address);
      if (asker === undefined) return;
      void this.#answer(asker, query, "udp").then((answer) => {
        if (answer !== null) this.#datagrams.send(answer, port, address, () => {});
      });
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#datagrams.close();
    this.#streams.close();
    for (const socket of this.#open) socket.destroy();
  }

  /** null: nothing is answered. */
  async #answer(asker: Asker, query: Buffer, transport: Transport): Promise<Buffer | null> {
    const question = questionOf(query);
    const load = this.#loadOf(asker);
    if (question === null || load.queries >= QUERIES_MAX) return null;
    load.queries += 1;
    try {
      return await this.#answerQuestion(asker, query, question, transport);
    } catch {
      return answerTo(query, question, { code: RESPONSE_CODES.failed });
    } finally {
      load.queries -= 1;
    }
  }

  async #answerQuestion(asker: Asker, query: Buffer, question: Question, transport: Transport): Promise<Buffer> {
    if (asker.policy.mode === "open") return await this.#options.upstream.forward(query, transport);
    const name = normalName(question.name);
    if (asker.names === null || !allowsName(asker.policy, name)) {
      asker.onRefused(name);
      return answerTo(query, question, { code: RESPONSE_CODES.refused });
    }
    const addresses = await asker.names.lookup(name);
    if (addresses === null) return answerTo(query, question, { code: RESPONSE_CODES.failed });
    if (question.type !== TYPE_A) return answerTo(query, question, { code: RESPONSE_CODES.ok });
    if (addresses.length === 0) return answerTo(query, question, { code: RESPONSE_CODES.noSuchName });
    return answerTo(query, question, { code: RESPONSE_CODES.ok, addresses, ttlSeconds: asker.names.ttlSeconds(name) });
  }

  /** One query after the other. */
  async #serve(socket: Socket): Promise<void> {
    const asker = this.#options.askerAt(socket.remoteAddress ?? "");
    if (asker === undefined) return void socket.destroy();
    const load = this.#loadOf(asker);
    if (load.streams >= STREAMS_MAX) return void socket.destroy();
    load.streams += 1;
    this.#open.add(socket);
    // tidy-allow timer: the socket's own, which ends with it
    socket.setTimeout(STREAM_IDLE_MS, () => socket.destroy());
    try {
      for await (const query of queriesOf(socket)) {
        const answer = await this.#answer(asker, query, "tcp");
        if (answer === null) break;
        if (!socket.write(framed(answer))) await once(socket, "drain");
      }
    } catch {
      // It went away.
    } finally {
      load.streams -= 1;
      this.#open.delete(socket);
      socket.destroy();
    }
  }

  #loadOf(asker: Asker): Load {
    const load = this.#loads.get(asker) ?? { queries: 0, streams: 0 };
    this.#loads.set(asker, load);
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
