/**
 * Limits what one caller uses of this server, in one place: requests per second, concurrent requests, bytes
 * of bodies and of unread answers in memory, and failed authentication.
 *
 * Always:
 * - A request returns what it took when its answer has ended, or its upgraded connection has closed
 *   (api/handle.ts). An answer that is in memory until its caller reads it counts until then.
 * - Owners of machines and visitors of their pages are counted separately: visitors cannot keep an owner from
 *   the API.
 */
import type { Clock } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import { BodyShare } from "./body-share.ts";
import { BodyWatch } from "./body-watch.ts";
import {
  ALL_BODY_BYTES_MAX,
  ALL_NODE_BODY_BYTES_MAX,
  type ConnectionBounds,
  NODE_BODY_BYTES_MAX,
  TENANT_BODY_BYTES_MAX,
} from "./bounds.ts";
import type { Context } from "../context.ts";
import { Budget, refusalOf } from "./budget.ts";
import { type CallerAddress, TrustedProxies } from "./caller-address.ts";
import { RateLimiter } from "./rate.ts";
import { SharedRates } from "./shared-rates.ts";
import { UnauthenticatedCallers, type Wait } from "./unauthenticated.ts";
import { UnreadAnswers } from "./unread-answers.ts";

/** Rate of one address that visits machines: a page loads many files at once. */
const INGRESS_RATE = { perSecond: 100, burst: 1_000 };
/** A node that has something to report at all times makes about 20 calls a second. */
const NODE_RATE = { perSecond: 25, burst: 200 };
/** A report of 8 MiB costs as much as 128 small ones, so one may follow another after 5 s. */
const NODE_BYTES_PER_CALL = 64 * 1024;
const ADDRESSES_MAX = 20_000;
const REFUSALS_PER_CALLER_MAX = 256;
const REFUSALS_MAX = 4_096;

/** A tenant, and what its plan allows it. */
export interface TenantRate {
  readonly tenantId: string;
  readonly requestsPerSecond: number;
  readonly burst: number;
}

/** A request that is counted. `now` by the monotonic clock. */
interface Taking extends Pick<Wait, "presence"> {
  readonly headers: string[];
  readonly now: number;
}

/** How a request counts: as the tenant's own, or as a visit to one of its machines. */
export type Side = "api" | "ingress";

export class Admission {
  readonly bodies: BodyWatch;
  readonly unread = new UnreadAnswers();
  readonly proxies: TrustedProxies;
  readonly unauthenticated: UnauthenticatedCallers;
  readonly #rates = new RateLimiter();
  readonly #shared: SharedRates;
  readonly #addresses = new RateLimiter(ADDRESSES_MAX);
  readonly #nodes = new RateLimiter();
  readonly #clock: Clock;
  readonly #open: Budget;
  /** Refusals that are held back; each takes some kilobytes. */
  readonly #refused = new Budget({ perHolder: REFUSALS_PER_CALLER_MAX, all: REFUSALS_MAX });
  readonly #bodies = new Budget({ perHolder: TENANT_BODY_BYTES_MAX, all: ALL_BODY_BYTES_MAX });
  readonly #nodeBodies = new Budget({ perHolder: NODE_BODY_BYTES_MAX, all: ALL_NODE_BODY_BYTES_MAX });

  constructor(options: {
    readonly context: Pick<Context, "clock" | "db">;
    readonly bounds: ConnectionBounds;
    readonly trustedProxies: readonly string[];
  }) {
    const { context, bounds, trustedProxies } = options;
    const { clock } = context;
    this.#clock = clock;
    this.#shared = new SharedRates(this.#rates, context);
    this.bodies = new BodyWatch(clock);
    this.proxies = new TrustedProxies(trustedProxies);
    this.unauthenticated = new UnauthenticatedCallers(clock, (holder, wait) => this.#holdBack(holder, wait));
    this.#open = new Budget({ perHolder: bounds.openPerTenant, all: bounds.connections });
  }

  /**
   * Takes a request from the bucket and writes the bucket's state to `headers`. Throws a Refusal when it is
   * empty, or rejects with it later.
   */
  takeRequest(tenant: TenantRate, side: Side, { headers, now, presence }: Taking): void | Promise<never> {
    const { tenantId, requestsPerSecond: perSecond, burst } = tenant;
    const [name, rate] = [nameOf(tenantId, side), { perSecond, burst }];
    const verdict = this.#rates.take(name, rate, now);
    headers.push(...verdict.headers);
    if (verdict.isAllowed) {
      this.#shared.note(name, rate);
      return;
    }
    const refusal = new Refusal("rate_limited", `too many requests; the plan allows ${perSecond} a second`);
    return this.#refuse(name, refusal, { waitMs: verdict.waitMs, presence });
  }

  /**
   * Takes a call from the bucket of a node. Throws a Refusal when it is empty, or rejects with it later.
   */
  takeFromNode(nodeId: string, { now, presence }: Omit<Taking, "headers">): void | Promise<never> {
    const { isAllowed, waitMs, headers } = this.#nodes.take(nodeId, NODE_RATE, now);
    if (isAllowed) return;
    const text = `node ${nodeId} calls too often; it may make ${NODE_RATE.perSecond} calls a second, fewer with large reports`;
    const refusal = new Refusal("rate_limited", text, { headers: { "retry-after": headers.at(-1) ?? "1" } });
    return this.#refuse(`node ${nodeId}`, refusal, { waitMs, presence });
  }

  /** Takes what the body of a node's call costs besides. */
  chargeNode(nodeId: string, bytes: number): void {
    const now = this.#clock.monotonic();
    this.#nodes.takeFromOther(nodeId, Math.floor(bytes / NODE_BYTES_PER_CALL), { rate: NODE_RATE, now });
  }

  /** The same for an address that visits machines. A proxy that does not name its client is not counted. */
  takeFromAddress(
    { address, isProxy }: CallerAddress,
    { now, presence }: Omit<Taking, "headers">,
  ): void | Promise<never> {
    if (isProxy) return;
    const { isAllowed, waitMs, headers } = this.#addresses.take(address, INGRESS_RATE, now);
    if (isAllowed) return;
    const text = `too many requests from this address; it may make ${INGRESS_RATE.perSecond} a second`;
    const refusal = new Refusal("rate_limited", text, { headers: { "retry-after": headers.at(-1) ?? "1" } });
    return this.#refuse(address, refusal, { waitMs, presence });
  }

  /** Refuses now, or after the wait. */
  #refuse(holder: string, refusal: Refusal, wait: Wait): Promise<never> {
    const waiting = this.#holdBack(holder, wait);
    if (waiting === undefined) throw refusal;
    return waiting.then(() => {
      throw refusal;
    });
  }

  /**
   * Waits before a refusal. undefined: not at all, because that is due, or many wait already. Rejects when
   * the caller has gone.
   */
  #holdBack(holder: string, { waitMs, presence }: Wait): Promise<void> | undefined {
    if (waitMs <= 0 || this.#refused.take(holder, 1) !== null) return undefined;
    const waiting = this.#clock.sleep(waitMs, AbortSignal.any([presence.signal, presence.closing]));
    return waiting.finally(() => this.#refused.release(holder, 1));
  }

  /**
   * Counts a request as open until the returned function is called. Throws a Refusal when the tenant has too
   * many.
   */
  open(tenantId: string, side: Side): () => void {
    const holder = nameOf(tenantId, side);
    const shortage = this.#open.take(holder, 1);
    if (shortage === null) return () => this.#open.release(holder, 1);
    throw refusalOf(shortage, {
      all: "too many requests are open; try again",
      holder:
        `this tenant has ${this.#open.perHolder} requests open, which is the maximum; commands, followed logs, terminals ` +
        "and connections to machines count; end some of them",
    });
  }

  /** The share that a body of the caller is taken from. */
  shareOf(caller: { readonly tenantId: string } | { readonly nodeId: string | null }): BodyShare {
    if ("tenantId" in caller) return new BodyShare(this.#bodies, caller.tenantId);
    return new BodyShare(this.#nodeBodies, caller.nodeId ?? "");
  }

  /** Ends what it shares with other servers. */
  close(): void {
    this.#shared.close();
  }
}

const nameOf = (tenantId: string, side: Side): string => (side === "api" ? tenantId : `ingress ${tenantId}`);
