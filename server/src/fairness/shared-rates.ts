/**
 * Makes the rate of a tenant hold over all servers and ingresses of one database: each reports the requests
 * it has admitted, and takes those of the others from its own buckets.
 *
 * Always:
 * - No request waits for it, and none makes a query. What was admitted is sent every SEND_MS, only while
 *   there is something to send.
 * - In the long run a tenant gets its rate once: what two servers admit at the same moment makes their
 *   buckets negative, and later requests pay for it. At one moment the excess is at most the tenant's burst,
 *   plus its rate for SEND_MS, on each other server.
 * - A report that is lost makes the rate too generous for that moment, never too strict.
 *
 * In memory only: a server that starts has full buckets.
 */
import { randomUUID } from "node:crypto";
import type { Clock, Timer } from "@flotilla/base/clock";
import type { Database } from "../db/database.ts";
import type { Rate, RateLimiter } from "./rate.ts";

const SEND_MS = 200;

export class SharedRates {
  readonly #rates: RateLimiter;
  readonly #db: Database;
  readonly #clock: Clock;
  /** Recognizes its own reports, which come back. */
  readonly #id = randomUUID().slice(0, 8);
  readonly #unlisten: () => void;
  /** Admitted and not yet sent, by bucket. */
  #taken = new Map<string, { tokens: number; readonly rate: Rate }>();
  #timer: Timer | null = null;
  #isClosed = false;

  constructor(rates: RateLimiter, { db, clock }: { readonly db: Database; readonly clock: Clock }) {
    this.#rates = rates;
    this.#db = db;
    this.#clock = clock;
    this.#unlisten = db.listen("rates", { onPayload: (payload) => this.#receive(payload), onGap: () => undefined });
  }

  /** Notes an admitted request. */
  note(name: string, rate: Rate): void {
    const known = this.#taken.get(name);
    if (known === undefined) this.#taken.set(name, { tokens: 1, rate });
    else known.tokens += 1;
    if (!this.#isClosed) this.#timer ??= this.#clock.timer(SEND_MS, () => this.#send());
  }

  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
    this.#unlisten();
  }

  #send(): void {
    this.#timer = null;
    const taken = this.#taken;
    this.#taken = new Map();
    for (const [name, { tokens, rate }] of taken)
      void this.#db.notify("rates", [this.#id, tokens, rate.perSecond, rate.burst, name].join(" "));
  }

  #receive(payload: string): void {
    const [, sender, tokens, perSecond, burst, name] = /^(\S+) (\d+) (\d+) (\d+) (.+)$/.exec(payload) ?? [];
    if (name === undefined || sender === this.#id) return;
    const rate = { perSecond: Number(perSecond), burst: Number(burst) };
    this.#rates.takeFromOther(name, Number(tokens), { rate, now: this.#clock.monotonic() });
  }
}
