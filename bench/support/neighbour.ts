/**
 * The tenant whose calls are measured: a few kinds of calls in turns, at fixed moments, however long others
 * take. So when a server answers nothing for a while, every call in that period records it.
 */
import { once } from "node:events";
import { Agent, type IncomingMessage, request as httpRequest } from "node:http";
import { monotonic, sleep } from "./clock.ts";

export interface NeighbourCall {
  readonly what: string;
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly body: string;
}

/** Milliseconds of each answer, by what was called. */
export type Latencies = Map<string, number[]>;

const PERIOD_MS = 4;
const FAILED_MS = 10_000;

export class Neighbour {
  readonly #url: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #calls: readonly NeighbourCall[];
  readonly #agent = new Agent({ keepAlive: true });

  constructor(url: string, headers: Readonly<Record<string, string>>, calls: readonly NeighbourCall[]) {
    this.#url = url;
    this.#headers = headers;
    this.#calls = calls;
  }

  /** Makes calls for this time, and waits for all answers. One that is not 200 counts as FAILED_MS. */
  async call(forMs: number, latencies: Latencies): Promise<void> {
    const startedAt = monotonic();
    const waiting: Promise<void>[] = [];
    for (let index = 0; index * PERIOD_MS < forMs; index++) {
      const early = startedAt + index * PERIOD_MS - monotonic();
      if (early > 0) await sleep(early);
      const call = this.#calls[index % this.#calls.length];
      if (call !== undefined) waiting.push(this.#one(call, latencies));
    }
    await Promise.all(waiting);
  }

  close(): void {
    this.#agent.destroy();
  }

  async #one({ what, method, path, body }: NeighbourCall, latencies: Latencies): Promise<void> {
    const askedAt = monotonic();
    const headers = body === "" ? this.#headers : { ...this.#headers, "content-length": Buffer.byteLength(body) };
    const request = httpRequest(`${this.#url}${path}`, { method, headers, agent: this.#agent });
    // A server that is stopped in the middle of an answer would end the bench before it has removed its
    // processes.
    request.on("error", () => undefined);
    request.end(body);
    const [response] = (await once(request, "response")) as [IncomingMessage];
    response.resume();
    await once(response, "end");
    const known = latencies.get(what) ?? [];
    latencies.set(what, known);
    known.push(response.statusCode === 200 ? monotonic() - askedAt : FAILED_MS);
  }
}
