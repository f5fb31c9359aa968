/**
 * How clients get to an app: as a load balancer does, which knows the ingresses and asks each whether it is
 * ready.
 *
 * Always:
 * - Requests go to the ready ingresses in turn. One that is not ready gets no new connection, and those that
 *   wait for a request are closed.
 * - A connection that is refused is tried at the next one; nothing of its request was sent. Nothing else is
 *   tried again.
 */
import { Agent, type ClientRequest, type IncomingMessage, request as httpRequest } from "node:http";
import { monotonic, pause } from "../support/until.ts";
import type { Failure, Tally } from "./tally.ts";

/** Ten of them fit into the time for which a program that stops still serves. */
const PROBE_MS = 100;
const PROBE_DEADLINE_MS = 1_000;
/** Nothing waits that long unless it hangs; hosts that run all tests are slow. */
export const SLOW_MS = 30_000;

export interface Way {
  readonly url: string;
  readonly agent: Agent;
  isReady: boolean;
}

export interface Asked {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly body?: Buffer;
  /** Whether it gets its own connection. */
  readonly isNew: boolean;
  /** How long it asks its answer to take. */
  readonly lastsMs: number;
}

export class Balancer {
  readonly host: string;
  readonly tally: Tally;
  readonly #ways: readonly Way[];
  readonly #over = new AbortController();
  #turn = 0;

  constructor(urls: readonly string[], host: string, tally: Tally) {
    this.host = host;
    this.tally = tally;
    this.#ways = urls.map((url) => ({ url, agent: new Agent({ keepAlive: true }), isReady: true }));
    for (const way of this.#ways) void this.#watch(way);
  }

  get size(): number {
    return this.#ways.length;
  }

  /** Where the next connection goes. */
  next(): Way {
    this.#turn += 1;
    const ready = this.#ways.filter(({ isReady }) => isReady);
    const some = ready.length > 0 ? ready : this.#ways;
    const way = some[this.#turn % some.length];
    if (way === undefined) throw new Error("there is no ingress");
    return way;
  }

  /** It accepts no connection: another is tried. */
  refused(way: Way): void {
    way.isReady = false;
    this.tally.count("elsewhere");
  }

  /** Sends it and counts how it ends. */
  async ask(asked: Asked): Promise<void> {
    const began = monotonic();
    const what = `${asked.method} ${asked.path}${asked.isNew ? ", own connection" : ""}`;
    for (let tried = 1; ; tried += 1) {
      const way = this.next();
      const end = await exchange(way, this.host, asked);
      if (end === null) return this.tally.answered(way.url, monotonic() - began - asked.lastsMs);
      if (end.failure === "refused" && tried < this.size) this.refused(way);
      else return this.tally.failed(end.failure, `${what} by ${way.url}: ${end.why}`);
    }
  }

  close(): void {
    this.#over.abort();
    for (const { agent } of this.#ways) agent.destroy();
  }

  async #watch(way: Way): Promise<void> {
    while (!this.#over.signal.aborted) {
      const signal = AbortSignal.timeout(PROBE_DEADLINE_MS);
      const status = await fetch(`${way.url}/readyz`, { signal }).then(
        async (answer) => (await answer.text(), answer.status),
        () => 0,
      );
      way.isReady = status === 200;
      if (!way.isReady)
        for (const socket of Object.values(way.agent.freeSockets).flatMap((each) => each ?? [])) socket.destroy();
      await pause(PROBE_MS);
    }
  }
}

export interface Failed {
  readonly failure: Failure;
  readonly why: string;
}

/** null: the whole and right answer. */
async function exchange(way: Way, host: string, asked: Asked): Promise<Failed | null> {
  const { method, path, body, isNew, lastsMs } = asked;
  const late = AbortSignal.timeout(lastsMs + SLOW_MS);
  const headers = { host, ...(body !== undefined && isNew ? { "transfer-encoding": "chunked" } : {}) };
  const options = { method, path, headers, signal: late, agent: isNew ? false : way.agent } as const;
  const request = httpRequest(way.url, options);
  request.end(body);
  let response: IncomingMessage | null = null;
  try {
    response = await headOf(request);
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    return faultOf(asked, response, Buffer.concat(chunks));
  } catch (error) {
    const { code, syscall, message } = error as NodeJS.ErrnoException;
    const why = `${code ?? ""} ${message}`;
    if (late.aborted) return { failure: "slow", why };
    if (response !== null) return { failure: "torn", why };
    return { failure: code === "ECONNREFUSED" && syscall === "connect" ? "refused" : "reset", why };
  }
}

function headOf(request: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.once("response", resolve);
    request.on("error", reject);
  });
}

function faultOf({ method, path, body }: Asked, { statusCode }: IncomingMessage, answer: Buffer): Failed | null {
  if (statusCode !== 200) return { failure: "status", why: `${statusCode} ${answer.toString().slice(0, 200)}` };
  const at = answer.indexOf("\n");
  const line = answer.subarray(0, at).toString();
  const isRight = line.endsWith(` ${method} ${path}`) && answer.subarray(at + 1).equals(body ?? Buffer.alloc(0));
  return isRight ? null : { failure: "wrong", why: answer.toString().slice(0, 200) };
}
