/**
 * The calls of a flood: many concurrent workers, each making one call after another, until they are stopped
 * or have made too many.
 *
 * Always: answers are counted by status; what breaks is started again, at most once per RETRY_MS.
 */
import { Agent, type IncomingMessage, request as httpRequest } from "node:http";
import { sleep } from "./clock.ts";

export const FLOOD_NAMES = ["bodies", "streams", "images"] as const;
export type FloodName = (typeof FLOOD_NAMES)[number];

/** The target of a flood, and its caller. */
export interface FloodOrder {
  readonly url: string;
  /** The key of the tenant that floods. */
  readonly key: string;
  /** That tenant's machine. */
  readonly machineId: string;
  readonly floods: readonly FloodName[];
}

/** Answers by status; "broken" for those without one. */
export type FloodCount = Readonly<Record<string, number>>;

export interface Call {
  readonly method?: "GET" | "POST";
  readonly path: string;
  readonly body?: Buffer;
  /** The answer is left unread until the end of the flood. */
  readonly isUnread?: boolean;
}

const CALLS_MAX = 100_000;
const RETRY_MS = 5;

export class Calls {
  readonly order: FloodOrder;
  readonly counts: Record<string, number> = {};
  readonly #agent = new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY });
  readonly #stopping = new AbortController();
  #made = 0;

  constructor(order: FloodOrder) {
    this.order = order;
  }

  /** Starts this many workers, each of which makes one call after another. */
  repeat(workers: number, next: () => Call): void {
    for (let worker = 0; worker < workers; worker++) void this.#work(next);
  }

  stop(): void {
    this.#stopping.abort();
    this.#agent.destroy();
  }

  async #work(next: () => Call): Promise<void> {
    while (!this.#stopping.signal.aborted && this.#made < CALLS_MAX) {
      this.#made += 1;
      const outcome = await this.#make(next());
      this.counts[outcome] = (this.counts[outcome] ?? 0) + 1;
      if (outcome === "broken") await sleep(RETRY_MS);
    }
  }

  #make({ method = "GET", path, body, isUnread }: Call): Promise<string> {
    const { promise, resolve } = Promise.withResolvers<string>();
    const request = httpRequest(`${this.order.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${this.order.key}`,
        ...(body === undefined ? {} : { "content-type": "application/json", "content-length": body.byteLength }),
      },
      agent: this.#agent,
      signal: this.#stopping.signal,
    });
    request.on("error", () => resolve("broken"));
    request.on("response", (response: IncomingMessage) => {
      const outcome = String(response.statusCode);
      response.on("error", () => resolve(outcome));
      response.on("close", () => resolve(outcome));
      if (isUnread === true) response.pause();
      else response.resume();
    });
    request.end(body);
    return promise;
  }
}
