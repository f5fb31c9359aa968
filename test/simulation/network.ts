/**
 * The network between simulated programs: node agents call servers (`fetch`), and servers open connections to
 * the sockets of nodes (`net.connect`, `Server.listen`). What is sent is the shipped bytes; the network
 * decides when and whether they arrive.
 *
 * A *cut* is one direction between two programs. Like TCP, it does not lose a part of a stream silently:
 * bytes in a cut direction do not arrive, and after a while the connection breaks. A connection that breaks
 * may have delivered the request and not the answer.
 */
import http from "node:http";
import net from "node:net";
import { syncBuiltinESMExports } from "node:module";
import { Duplex } from "node:stream";
import { ROOT } from "./files.ts";
import type { Program, World } from "./world.ts";

/** How long a connection whose bytes do not arrive lives. */
const STALL_MS = 8_000;
const DOMAIN = ".simulated";

export interface Call {
  readonly nodeId: string;
  readonly path: string;
  readonly token: string;
  readonly body: unknown;
}

export interface Answer {
  readonly status: number;
  readonly text: string;
  readonly code: string | null;
}

interface Caller {
  readonly node: Program;
  readonly resolve: (answer: Answer) => void;
  /** Later, with the code of a broken connection. */
  readonly fail: (ms: number, code: string) => void;
}

/** Serves a call of a node, as a server. */
export type Serve = (call: Call) => Promise<Answer>;

export class Network {
  readonly world: World;
  /** Directions in which nothing arrives, as `from>to`. */
  readonly #cuts = new Map<string, number>();
  readonly #listening = new Map<string, { readonly server: net.Server; readonly program: Program }>();
  readonly #serving = new Map<Program, Serve>();
  /** Ends that are open. */
  readonly ends = new Set<End>();
  /** One way, in milliseconds. */
  latencyMs = 3;
  /** Probabilities of a message to be lost, late or repeated. */
  losing = 0;
  delaying = 0;
  repeating = 0;
  /** Called for each fault that a message from or to a node meets. */
  onFault: (kind: "lost" | "late" | "repeated" | "cut", node: string) => void = () => undefined;
  /** Called when a node gets the answer to a heartbeat that it sent then. */
  onAcknowledged: (node: string, sentAt: number) => void = () => undefined;

  constructor(world: World) {
    this.world = world;
  }

  /** Returns what ends it. */
  cut(from: string, to: string): () => void {
    const direction = `${from}>${to}`;
    const add = (count: number): void => {
      const cuts = (this.#cuts.get(direction) ?? 0) + count;
      if (cuts > 0) this.#cuts.set(direction, cuts);
      else this.#cuts.delete(direction);
    };
    add(1);
    return () => add(-1);
  }

  heal(): void {
    this.#cuts.clear();
  }

  /** At the end of a seed. Nothing is notified, because no program lives. */
  close(): void {
    for (const end of this.ends) end.parser?.close();
  }

  isCut(from: Program, to: Program): boolean {
    return this.#cuts.has(`${from.name}>${to.name}`);
  }

  serve(program: Program, serve: Serve): void {
    this.#serving.set(program, serve);
    program.onKill(() => this.#serving.delete(program));
  }

  listen(path: string, server: net.Server): void {
    const { program } = this.world;
    this.#listening.set(path, { server, program });
    program.onKill(() => {
      if (this.#listening.get(path)?.program === program) this.#listening.delete(path);
    });
  }

  /** Delay of a message from or to a node. */
  delay(node: string): number {
    const { random } = this.world;
    const isLate = random.happens(this.delaying);
    if (isLate) this.onFault("late", node);
    return random.between(0.1, this.latencyMs) + (isLate ? random.between(50, 6_000) : 0);
  }

  connect(path: string): Duplex {
    const client = this.world.program;
    const [, , node = ""] = path.split("/");
    const near = new End(this, client, node);
    // As a socket of the host, or a parked connection: it never reaches a later agent.
    const found = this.#listening.get(path);
    this.world.after(this.delay(node), client, () => {
      if (found === undefined || !found.program.isAlive) {
        near.destroy(unreachable("ECONNREFUSED"));
        return;
      }
      if (this.isCut(client, found.program) || this.isCut(found.program, client)) {
        this.onFault("cut", node);
        this.world.after(2_000, client, () => near.destroy(unreachable("EHOSTUNREACH")));
        return;
      }
      const far = new End(this, found.program, node);
      near.meets(far);
      const accept = (): unknown => this.world.as(found.program, () => found.server.emit("connection", far));
      // The kernel of a host whose agent is stopped connects.
      if (found.program.isStopped) this.world.after(0, found.program, accept);
      else accept();
      near.emit("connect");
    });
    return near;
  }

  /** A call of a node to the server that the balancer in front of them chooses. */
  async call(call: Call, signal: AbortSignal | null): Promise<Answer> {
    const { world } = this;
    const node = world.program;
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const fail = (ms: number, code: string): void =>
      void world.after(ms, node, () => {
        world.activity += 1;
        reject(unreachable(code));
      });
    signal?.addEventListener("abort", () => {
      world.activity += 1;
      reject(signal.reason as Error);
    });
    const servers = [...this.#serving.keys()];
    if (servers.length === 0) fail(1, "ECONNREFUSED");
    else this.#send(call, world.random.pick(servers), { node, resolve, fail });
    if (servers.length > 0 && world.random.happens(this.repeating)) {
      this.onFault("repeated", node.name);
      // The copy of a message whose sender gets no second answer.
      this.#send(call, world.random.pick(servers), { node, resolve: () => undefined, fail: () => undefined });
    }
    return await promise;
  }

  #send(call: Call, server: Program, { node, resolve, fail }: Caller): void {
    const { world } = this;
    const sentAt = world.now;
    const isLost = world.random.happens(this.losing);
    if (isLost || this.isCut(node, server)) {
      this.onFault(isLost ? "lost" : "cut", node.name);
      return fail(world.random.between(1, STALL_MS), "ECONNRESET");
    }
    const ended = { isAnswered: false };
    server.onKill(() => {
      if (!ended.isAnswered) fail(this.delay(node.name), "ECONNRESET");
    });
    world.after(this.delay(node.name), server, () => {
      const serve = this.#serving.get(server);
      if (serve === undefined) return;
      // Not awaited: other events happen while the server works.
      void world
        .as(server, () => serve(call))
        .then((answer) => {
          ended.isAnswered = true;
          const isAnswerLost = world.random.happens(this.losing);
          if (isAnswerLost || this.isCut(server, node)) {
            this.onFault(isAnswerLost ? "lost" : "cut", node.name);
            return fail(world.random.between(1, STALL_MS), "ECONNRESET");
          }
          world.after(this.delay(node.name), node, () => {
            world.activity += 1;
            if (answer.status === 200 && call.path.endsWith("/heartbeat")) this.onAcknowledged(node.name, sentAt);
            resolve(answer);
          });
        });
    });
  }
}

/** One end of a connection between a server and a node. */
class End extends Duplex {
  readonly #network: Network;
  readonly #program: Program;
  /** The node at one of the ends. */
  readonly #node: string;
  #other: End | null = null;
  /** When the last bytes arrive that were sent here. */
  #sentUntil = 0;
  #isStalled = false;
  readonly connecting = false;
  /** Parser of node:http, which keeps a connection that is never closed, and with it this whole world. */
  readonly parser?: { close(): void } | null;

  constructor(network: Network, program: Program, node: string) {
    super();
    this.#network = network;
    this.#node = node;
    this.#program = program;
    network.ends.add(this);
    program.onKill(() => {
      const other = this.#other;
      this.#other = null;
      if (other !== null) other.#breaks(network.delay(node));
    });
  }

  meets(other: End): void {
    this.#other = other;
    other.#other = this;
  }

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#send((other) => other.push(chunk));
    done();
  }

  override _final(done: () => void): void {
    this.#send((other) => other.push(null));
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    const other = this.#other;
    this.#other = null;
    this.#network.ends.delete(this);
    if (other !== null) other.#breaks(this.#network.delay(this.#node));
    done(error);
  }

  /** What was sent arrives in order, or not at all. */
  #send(arrive: (other: End) => void): void {
    const { world, losing } = this.#network;
    const other = this.#other;
    if (other === null || this.#isStalled) return;
    const isLost = world.random.happens(losing);
    if (isLost || this.#network.isCut(this.#program, other.#program)) {
      this.#network.onFault(isLost ? "lost" : "cut", this.#node);
      this.#isStalled = true;
      const ms = world.random.between(1, STALL_MS);
      this.#breaks(ms);
      return other.#breaks(ms + world.random.between(0, STALL_MS));
    }
    this.#sentUntil = Math.max(world.now + this.#network.delay(this.#node), this.#sentUntil + 0.001);
    world.after(this.#sentUntil - world.now, other.#program, () => {
      world.activity += 1;
      if (!other.destroyed && !other.readableEnded) arrive(other);
    });
  }

  #breaks(ms: number): void {
    this.#network.world.after(ms, this.#program, () => {
      this.#network.world.activity += 1;
      if (!this.destroyed) this.destroy(unreachable("ECONNRESET"));
    });
  }

  // What undici and node:http call of a socket.
  setNoDelay(): this {
    return this;
  }
  setKeepAlive(): this {
    return this;
  }
  // tidy-allow timer: the name of a socket's method
  setTimeout(): this {
    return this;
  }
  ref(): this {
    return this;
  }
  unref(): this {
    return this;
  }
}

function unreachable(code: string): Error {
  return Object.assign(new Error(`simulated ${code}`), { code });
}

/** From now on sockets below ROOT and hosts of DOMAIN are simulated. */
export function patchNetwork(networkOf: () => Network, makeSocket: (path: string) => void): void {
  const { connect } = net;
  net.connect = net.createConnection = ((...parameters: Parameters<typeof connect>) => {
    const [options] = parameters as unknown as [{ path?: string }];
    return options.path?.startsWith(ROOT) === true ? networkOf().connect(options.path) : connect(...parameters);
  }) as typeof connect;
  const { listen } = http.Server.prototype;
  http.Server.prototype.listen = function (this: http.Server, ...parameters: unknown[]) {
    const [options, onListening] = parameters as [{ path?: string }, () => void];
    if (options?.path?.startsWith(ROOT) !== true) return listen.apply(this, parameters as Parameters<typeof listen>);
    networkOf().listen(options.path, this);
    makeSocket(options.path);
    queueMicrotask(onListening);
    return this;
  } as typeof listen;
  const { fetch } = globalThis;
  globalThis.fetch = async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input);
    if (!url.hostname.endsWith(DOMAIN)) return await fetch(input, init);
    const { authorization = "" } = (init?.headers ?? {}) as Record<string, string>;
    const call = {
      nodeId: url.hostname.slice(0, -DOMAIN.length),
      path: url.pathname,
      token: authorization.replace("Bearer ", ""),
      body: JSON.parse(init?.body as string) as unknown,
    };
    const { status, text, code } = await networkOf().call(call, init?.signal ?? null);
    return new Response(text, { status, headers: code === null ? {} : { "x-error-code": code } });
  };
  syncBuiltinESMExports();
}
