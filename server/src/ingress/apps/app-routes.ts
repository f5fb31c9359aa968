/**
 * The table of targets in the memory of one ingress, and the lease under which it is served: a server and an
 * ingress process have one each.
 *
 * Always:
 * - The table is followed by notifications, and read every POLL_MS in case one is lost. What is chosen is
 *   chosen from the latest table.
 * - The lease is renewed every RENEW_MS, and at once when the table has another version or the last request
 *   of an instance that is not in it has ended: with it the ingress confirms both.
 * - Apps are served only while the lease holds, by a table that was read in it (lease.ts). A request that
 *   comes in between waits for that, SERVED_WAIT_MS at most. While there is no app, there is no lease.
 * - One renewal and one read run at a time.
 *
 * A crash leaves the lease, for which servers wait until it is over.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../../context.ts";
import { forAll } from "../../db/holder.ts";
import { chooseTarget, type TargetPort } from "../target.ts";
import { type Failures, isPassedOver, NO_FAILURES, withFailure, withoutFailure } from "./failures.ts";
import { isServing, type Lease, LEASE_MS, NO_LEASE, renewedLease } from "./lease.ts";
import { type CountedRequest, OpenRequests } from "./open-requests.ts";
import { listRouteChanges, removeLease, renewLease } from "./route-store.ts";
import {
  type AppRoute,
  changedTable,
  isRouted,
  NO_ROUTES,
  type RouteTable,
  VERSION_OF_NOTHING,
} from "./route-table.ts";

const POLL_MS = 500;
const RENEW_MS = 1_000;
/** How long a start, and a request, wait until apps can be served: a database may be slow for a moment. */
const SERVED_WAIT_MS = 3_000;

/** The instance that a request is forwarded to. */
export interface ChosenInstance {
  readonly target: TargetPort;
  readonly request: CountedRequest;
  /** Whether another one is left that the request was not tried on. */
  readonly isAnyLeft: boolean;
}

type RoutesContext = Pick<Context, "clock" | "db" | "log" | "randomBytes">;

export class AppRoutes {
  readonly open: OpenRequests;
  readonly #context: RoutesContext;
  /** Names this run of the process. */
  readonly #id: string;
  readonly #stopping = new AbortController();
  #table: RouteTable = NO_ROUTES;
  /** When the query of the table began; null: it was never read. */
  #readAt: number | null = null;
  #lease: Lease = NO_LEASE;
  #failures: Failures = NO_FAILURES;
  /** How many requests each route had, so that they take turns. */
  readonly #turns = new WeakMap<AppRoute, number>();
  #wakeRead = new AbortController();
  #wakeRenewal = new AbortController();
  /** Apps of which servers do not know yet what is confirmed. */
  #unannounced = new Set<string>();
  #loops: Promise<unknown> | null = null;
  #unlisten: () => void = () => undefined;
  /** Called when apps are served. */
  readonly #waiting = new Set<() => void>();

  constructor(context: RoutesContext) {
    this.#context = context;
    this.#id = `ingress-${context.randomBytes(8).toString("hex")}`;
    this.open = new OpenRequests((appId, machineId) => {
      if (isRouted(this.#table, appId, machineId)) return;
      this.#unannounced.add(appId);
      this.#wakeRenewal.abort();
    });
  }

  /**
   * Begins to follow the table. Resolves when apps are served, or after SERVED_WAIT_MS without the database.
   */
  async start(): Promise<void> {
    const { db } = this.#context;
    const wake = (): void => this.#wakeRead.abort();
    this.#unlisten = db.listen("routes", { onPayload: wake, onGap: wake });
    this.#loops ??= forAll(() => Promise.all([this.#follow(), this.#hold()]));
    await this.#untilServed();
  }

  /** A promise only if apps are not served now: it resolves when they are, or when the wait is over. */
  whenServing(): Promise<void> | undefined {
    const now = this.#context.clock.monotonic();
    return isServing(this.#lease, this.#readAt, now) ? undefined : this.#untilServed();
  }

  async #untilServed(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = this.#context.clock.timer(SERVED_WAIT_MS, resolve);
    this.#waiting.add(resolve);
    await promise;
    this.#waiting.delete(resolve);
    timer.cancel();
  }

  /** Ends the lease. Called when the last request has ended. */
  async stop(): Promise<void> {
    this.#unlisten();
    this.#stopping.abort();
    this.#wakeRead.abort();
    this.#wakeRenewal.abort();
    if (this.#loops === null) return;
    await this.#loops;
    await this.#end().catch((error: unknown) =>
      this.#context.log.debug({ error }, "the lease of this ingress could not be ended"),
    );
  }

  /** The id of the app that has the domain; undefined: none has. */
  appOf(domain: string): string | undefined {
    return this.#table.domains.get(domain);
  }

  /** Whether the app is in the table. */
  has(appId: string): boolean {
    return this.#table.routes.has(appId);
  }

  /**
   * Chooses an instance that was not tried, and counts the request there: the caller holds it in the same
   * turn. Throws a Refusal when there is none, or when this ingress may not serve apps now.
   */
  choose(appId: string, tried: ReadonlySet<string>): ChosenInstance {
    const now = this.#context.clock.monotonic();
    const route = this.#table.routes.get(appId);
    if (route === undefined || route.targets.length === 0) throw noInstance();
    if (!isServing(this.#lease, this.#readAt, now)) throw unserved();
    const { targets } = route;
    const turn = (this.#turns.get(route) ?? -1) + 1;
    this.#turns.set(route, turn);
    const failures = this.#failures;
    const target = chooseTarget(targets, {
      openIn: (machineId) => this.open.in(machineId),
      isPassedOver: (machineId) => isPassedOver(failures, machineId, now),
      tried,
      turn,
    });
    if (target === null) throw noInstance();
    const isAnyLeft = targets.some(({ machine: { id } }) => id !== target.machine.id && !tried.has(id));
    return { target, request: this.open.request(appId, target.machine.id), isAnyLeft };
  }

  /** The instance did not accept a connection. */
  failed(machineId: string): void {
    this.#failures = withFailure(this.#failures, machineId, this.#context.clock.monotonic());
  }

  /** The instance answered. */
  answered(machineId: string): void {
    this.#failures = withoutFailure(this.#failures, machineId);
  }

  async #follow(): Promise<void> {
    const { clock } = this.#context;
    while (!this.#stopping.signal.aborted) {
      this.#wakeRead = new AbortController();
      await this.#read();
      await clock.sleep(POLL_MS, this.#wakeRead.signal);
    }
  }

  /** Never rejects. */
  async #read(): Promise<void> {
    const { clock, db, log } = this.#context;
    try {
      const readAt = clock.monotonic();
      const changes = await listRouteChanges(db, this.#table.version);
      const table =
        changedTable(this.#table, changes) ??
        changedTable(NO_ROUTES, await listRouteChanges(db, VERSION_OF_NOTHING)) ??
        NO_ROUTES;
      const isNewer = table.version !== this.#table.version;
      if (isNewer && this.#readAt !== null) for (const { id } of changes.changes) this.#unannounced.add(id);
      this.#table = table;
      this.#readAt = readAt;
      if (isNewer) this.#wakeRenewal.abort();
      this.#look();
    } catch (error) {
      log.debug({ error }, "the table of targets could not be read");
    }
  }

  async #hold(): Promise<void> {
    const { clock } = this.#context;
    while (!this.#stopping.signal.aborted) {
      this.#wakeRenewal = new AbortController();
      await this.#renew();
      await clock.sleep(RENEW_MS, this.#wakeRenewal.signal);
    }
  }

  /** Renews the lease, or ends it when there is nothing to serve. Never rejects. */
  async #renew(): Promise<void> {
    const { db, log } = this.#context;
    const announced = this.#unannounced;
    this.#unannounced = new Set();
    try {
      if (this.#isNeeded()) await this.#renewNow();
      else await this.#end();
      for (const id of announced) void db.notify("apps", id);
    } catch (error) {
      for (const id of announced) this.#unannounced.add(id);
      log.debug({ error }, "the lease of this ingress could not be renewed");
    }
  }

  /** An installation without apps writes nothing. */
  #isNeeded(): boolean {
    return this.#table.routes.size > 0 || this.open.size > 0;
  }

  async #renewNow(): Promise<void> {
    const { clock, db } = this.#context;
    const table = this.#table;
    const sentAt = clock.monotonic();
    const open = this.open.list((appId, machineId) => !isRouted(table, appId, machineId));
    await renewLease(db, this.#id, { version: Math.max(table.version, 0), open });
    const { since } = this.#lease;
    this.#lease = renewedLease(this.#lease, { sentAt, answeredAt: clock.monotonic() });
    // The table that is known was read before this lease began.
    if (this.#lease.since !== since) this.#wakeRead.abort();
    this.#look();
  }

  async #end(): Promise<void> {
    if (this.#lease === NO_LEASE) return;
    this.#lease = NO_LEASE;
    await removeLease(this.#context.db, this.#id);
  }

  #look(): void {
    const now = this.#context.clock.monotonic();
    const isIdle = this.#readAt !== null && !this.#isNeeded();
    if (isIdle || isServing(this.#lease, this.#readAt, now)) for (const resolve of this.#waiting) resolve();
  }
}

/** How long a caller waits before it asks again, in seconds. */
const RETRY = { headers: { "retry-after": "1" } };

const unserved = (): Refusal =>
  new Refusal(
    "unavailable",
    `apps are not served here at the moment: the database has not renewed this ingress's lease for ${LEASE_MS / 1000} s; try again in a moment`,
    RETRY,
  );

/** The refusal for an app none of whose instances can answer. */
export const noInstance = (): Refusal =>
  new Refusal("unavailable", "no healthy instance of this app accepts requests; try again in a moment", RETRY);
