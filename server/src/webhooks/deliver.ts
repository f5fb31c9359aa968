/**
 * Delivers for the webhooks that this server has leased.
 *
 * A lease is a turn: read new events into the queue, attempt what is due, record the outcomes, end the lease.
 * Then the webhook waits behind the others, so receivers that answer slowly delay no other webhook by more
 * than their turns.
 *
 * Always:
 * - At most CONCURRENCY requests run for one webhook, and one for a receiver that is down; at most LEASES_MAX
 *   webhooks at a time.
 * - After SLICE_MS a turn begins no further attempt: it ends with those that are under way.
 * - Events of one resource are sent one after the other, each when the one before has been accepted.
 * - An outcome is recorded only while the lease lasts. A server that loses it cuts its requests off.
 *
 * If the process dies, the lease expires, and another server sends what has no recorded outcome: at most
 * CHAIN_MAX events of each of CONCURRENCY resources arrive twice. None is lost.
 */
import type { Resolve } from "@flotilla/base/checked-request";
import { mapAtMost } from "@flotilla/base/concurrency";
import { WEBHOOK_DELIVERIES_KEPT, WEBHOOK_PENDING_MAX } from "@flotilla/contract/limits";
import type { Context } from "../context.ts";
import { DatabaseUnavailable } from "../db/database.ts";
import { listTenantEvents } from "../events/store.ts";
import type { Secrets } from "../secrets.ts";
import {
  claimWebhooks,
  countSealedOtherwise,
  countPending,
  disableWebhook,
  type DueDelivery,
  enqueueEvents,
  type Health,
  type LeasedWebhook,
  listDue,
  type Outcome,
  recordOutcomes,
  releaseWebhook,
  renewWebhook,
} from "./queue-store.ts";
import { ATTEMPTS_MAX, disableReason, isDown, probeDelayMs, RETRY_MS, retryDelayMs } from "./retry.ts";
import { signatureOf } from "./sign.ts";
import { type Attempt, attempt, openAgents, type SendOptions, type WebhookTargets } from "./target.ts";
import { deliveryOf } from "./view.ts";

/**
 * How long receivers wait for the work of a dead server. A lease lost in a database outage costs repeated
 * events.
 */
const LEASE_MS = 5_000;
const LEASES_MAX = 64;
const SLICE_MS = 5_000;
const CONCURRENCY = 8;
/** Max deliveries of one resource between two writes of outcomes. */
const CHAIN_MAX = 16;
const DUE_MAX = 256;
/** A due delivery this soon is awaited within the turn. */
const PAUSE_MS = 50;

/** Interval of the warning about webhooks that this server cannot sign for. */
const WARN_EVERY_MS = 10 * 60_000;
/** No key has this name: a name is a part of a hash. */
const NO_KEY = Buffer.alloc(8);

const LOST = new Error("the webhook was paused, deleted or leased by another server");
const STOPPED = new Error("the server stops");

export interface DeliveryOptions {
  readonly context: Context;
  readonly secrets: Pick<Secrets, "open" | "keyName">;
  readonly targets: WebhookTargets;
  readonly resolve: Resolve;
  readonly times?: WebhookTimes | undefined;
}

/** Instead of RETRY_MS, LEASE_MS and SLICE_MS. For tests. */
export interface WebhookTimes {
  readonly retryMs: number;
  readonly leaseMs: number;
  readonly sliceMs?: number;
}

export class WebhookRunner {
  readonly #options: DeliveryOptions;
  readonly #underWay = new Set<Promise<void>>();
  readonly #stopping = new AbortController();
  #warnAgainAt = Number.NEGATIVE_INFINITY;

  constructor(options: DeliveryOptions) {
    this.#options = options;
  }

  /**
   * Leases webhooks that are due and that this server can sign for, and begins to deliver for them. Returns
   * how many.
   */
  async claim(): Promise<number> {
    const limit = this.#stopping.signal.aborted ? 0 : LEASES_MAX - this.#underWay.size;
    const leaseMs = this.#options.times?.leaseMs ?? LEASE_MS;
    const { keyName } = this.#options.secrets;
    await this.#warnOfOthers(keyName ?? NO_KEY);
    if (keyName === null) return 0;
    const claimed = await claimWebhooks(this.#options.context, { limit, leaseMs, keyName });
    for (const webhook of claimed) this.#take(webhook);
    return claimed.length;
  }

  /**
   * Logs webhooks that only a server with another key can sign: if there is none, nothing is delivered for
   * them.
   */
  async #warnOfOthers(keyName: Buffer): Promise<void> {
    const { clock, db, log } = this.#options.context;
    if (clock.monotonic() < this.#warnAgainAt) return;
    this.#warnAgainAt = clock.monotonic() + WARN_EVERY_MS;
    const webhooks = await countSealedOtherwise(db, keyName);
    if (webhooks > 0)
      log.warn(
        { webhooks },
        "this server leaves webhooks to others, because their secrets were encrypted with another key; give all servers the same file secrets.key",
      );
  }

  #take(webhook: LeasedWebhook): void {
    const turn = new Turn(this.#options, webhook, this.#stopping.signal);
    const done = turn.run().catch((error: unknown) => {
      if (error === LOST || error === STOPPED) return;
      const { log } = this.#options.context;
      const level = error instanceof DatabaseUnavailable ? "info" : "warn";
      log[level]({ webhookId: webhook.id, error }, "deliveries of a webhook were interrupted; they continue");
    });
    this.#underWay.add(done);
    void done.finally(() => this.#underWay.delete(done));
  }

  async stop(): Promise<void> {
    this.#stopping.abort(STOPPED);
    await Promise.all(this.#underWay);
  }
}

/** One lease of one webhook. */
class Turn {
  readonly #options: DeliveryOptions;
  readonly #webhook: LeasedWebhook;
  readonly #lost = new AbortController();
  readonly #signal: AbortSignal;
  readonly #agents = openAgents(CONCURRENCY);
  /** Empty until the turn begins. */
  #secrets: readonly string[] = [];
  #cursor: number | null;
  #failures: number;
  #isOver = false;
  /** By the monotonic clock. */
  readonly #until: number;

  constructor(options: DeliveryOptions, webhook: LeasedWebhook, stopping: AbortSignal) {
    this.#options = options;
    this.#webhook = webhook;
    this.#signal = AbortSignal.any([this.#lost.signal, stopping]);
    this.#cursor = webhook.cursor;
    this.#failures = webhook.failures;
    this.#until = options.context.clock.monotonic() + (options.times?.sliceMs ?? SLICE_MS);
  }

  get #isLate(): boolean {
    return this.#options.context.clock.monotonic() >= this.#until;
  }

  /** Throws a Refusal when this server has another key than the one that sealed them. */
  #openSecrets(): readonly string[] {
    const { context, secrets } = this.#options;
    const { id, secret, previousSecret, previousUntil } = this.#webhook;
    const isPreviousValid = previousUntil !== null && previousUntil > context.clock.now();
    const open = (sealed: Buffer): string => secrets.open(id, sealed)["secret"] ?? "";
    const current = open(secret);
    if (!isPreviousValid || previousSecret === null) return [current];
    try {
      return [current, open(previousSecret)];
    } catch (error) {
      context.log.warn(
        { webhookId: id, error },
        "the previous secret of a webhook signs no more: it cannot be decrypted",
      );
      return [current];
    }
  }

  async run(): Promise<void> {
    // When it fails, the lease expires.
    this.#secrets = this.#openSecrets();
    const finished = new AbortController();
    const renewing = this.#renew(finished.signal);
    try {
      await this.#deliverAll();
    } finally {
      finished.abort();
      await renewing;
      this.#agents.http.destroy();
      this.#agents.https.destroy();
      if (!this.#lost.signal.aborted) await this.#release();
    }
  }

  async #deliverAll(): Promise<void> {
    const { clock } = this.#options.context;
    for (let pauses = 0; !this.#isOver && !this.#isLate; ) {
      this.#signal.throwIfAborted();
      if (!isDown(this.#failures)) await this.#read();
      const due = await this.#listDue();
      if (due.length === 0) {
        // Events and short retries follow each other; a short wait saves ending this lease and beginning
        // another.
        if (pauses++ === 2) return;
        await clock.sleep(PAUSE_MS, this.#signal);
        continue;
      }
      pauses = 0;
      await this.#attemptAll(due);
      if (isDown(this.#failures)) return;
    }
  }

  /** Copies new events to the queue, while there is room. */
  async #read(): Promise<void> {
    const { context } = this.#options;
    const { id, tenantId, types } = this.#webhook;
    const room = WEBHOOK_PENDING_MAX - (await countPending(context.db, id));
    if (room <= 0) return;
    const all = { tenantId, machineId: null, appId: null, type: null };
    const events = await listTenantEvents(context.db, { ...all, after: this.#cursor, limit: room });
    const last = events.at(-1);
    if (last === undefined) return;
    const deliveries = events.flatMap((event) => deliveryOf(event, types) ?? []);
    const move = { from: this.#cursor, to: last.position, deliveries, now: context.clock.now() };
    if (!(await enqueueEvents(context.db, this.#webhook, move))) this.#lose();
    this.#cursor = last.position;
  }

  async #listDue(): Promise<readonly DueDelivery[]> {
    const { context } = this.#options;
    const isProbe = isDown(this.#failures);
    return await listDue(context.db, {
      webhookId: this.#webhook.id,
      now: context.clock.now(),
      perResource: isProbe ? 1 : CHAIN_MAX,
      limit: isProbe ? 1 : DUE_MAX,
    });
  }

  /**
   * Attempts each resource's deliveries in order, those of CONCURRENCY resources at the same time, until the
   * turn is over.
   */
  async #attemptAll(due: readonly DueDelivery[]): Promise<void> {
    const chains = [...Map.groupBy(due, ({ resourceId }) => resourceId).values()];
    await mapAtMost(CONCURRENCY, chains, async (chain) => {
      if (!this.#isOver && !this.#isLate && !isDown(this.#failures)) await this.#attemptChain(chain);
    });
  }

  /** One after the other, until one fails or the turn is over. */
  async #attemptChain(chain: readonly DueDelivery[]): Promise<void> {
    const outcomes: Outcome[] = [];
    try {
      for (const delivery of chain) {
        const result = await this.#send(delivery);
        outcomes.push(this.#outcomeOf(delivery, result));
        if (!result.isDelivered || this.#isLate) break;
      }
    } finally {
      // What was accepted before the signal is recorded, so that it is not sent again.
      if (outcomes.length > 0) await this.#record(outcomes);
    }
  }

  async #send({ eventId, body }: DueDelivery): Promise<Attempt> {
    const { context, targets, resolve } = this.#options;
    const timestamp = Math.floor(context.clock.now() / 1000);
    const headers = {
      "content-type": "application/json",
      "user-agent": "flotilla",
      "webhook-id": eventId,
      "webhook-timestamp": String(timestamp),
      "webhook-signature": signatureOf({ id: eventId, timestamp, body }, this.#secrets),
      "content-length": String(Buffer.byteLength(body)),
    };
    const options: SendOptions = { targets, resolve, clock: context.clock, agents: this.#agents, signal: this.#signal };
    return await attempt({ url: this.#webhook.url, headers, body }, options);
  }

  #outcomeOf({ eventId, sequence, queuedAt, attempts }: DueDelivery, result: Attempt): Outcome {
    const { clock } = this.#options.context;
    const mayRetry = !result.isDelivered && attempts + 1 < ATTEMPTS_MAX;
    const waiting = mayRetry ? clock.now() + retryDelayMs(attempts + 1, this.#jitter()) : null;
    const status = result.isDelivered ? "delivered" : mayRetry ? "pending" : "failed";
    return {
      eventId,
      sequence,
      queuedAt,
      status,
      nextAttemptAt: waiting,
      lastStatus: result.status,
      lastError: result.error,
    };
  }

  async #record(outcomes: readonly Outcome[]): Promise<void> {
    const { context } = this.#options;
    const health = await recordOutcomes(context.db, this.#webhook, { outcomes, now: context.clock.now() });
    if (health === undefined) return this.#lose();
    this.#failures = health.failures;
    const lastStatus = outcomes.at(-1)?.lastStatus ?? null;
    await this.#disableIfHopeless(health, lastStatus);
  }

  async #disableIfHopeless({ failingSince, failures }: Health, lastStatus: number | null): Promise<void> {
    const { context } = this.#options;
    const reason = disableReason({ failingSince, failures, lastStatus }, context.clock.now());
    if (reason === null || this.#isOver) return;
    this.#isOver = true;
    const isDone = await disableWebhook(context, this.#webhook, reason);
    if (isDone) context.log.warn({ webhookId: this.#webhook.id, reason }, "a webhook was disabled");
  }

  async #release(): Promise<void> {
    const { context } = this.#options;
    const now = context.clock.now();
    const notBefore = now + probeDelayMs(this.#failures, this.#jitter());
    const isFull = (await countPending(context.db, this.#webhook.id)) >= WEBHOOK_PENDING_MAX;
    const { changes } = this.#webhook;
    const end = { changes, now, notBefore, isFull, kept: WEBHOOK_DELIVERIES_KEPT };
    await releaseWebhook(context.db, this.#webhook, end);
  }

  async #renew(finished: AbortSignal): Promise<void> {
    const { clock, db, log } = this.#options.context;
    const leaseMs = this.#options.times?.leaseMs ?? LEASE_MS;
    const signal = AbortSignal.any([finished, this.#signal]);
    for (let renewedAt = clock.monotonic(); ; ) {
      await clock.sleep(leaseMs / 4, signal);
      if (signal.aborted) return;
      try {
        if (!(await renewWebhook(db, this.#webhook, clock.now() + leaseMs))) this.#lost.abort(LOST);
        renewedAt = clock.monotonic();
      } catch (error) {
        log.debug({ error }, "the lease of a webhook was not renewed");
        if (clock.monotonic() - renewedAt >= leaseMs) this.#lost.abort(LOST);
      }
    }
  }

  #lose(): never {
    this.#lost.abort(LOST);
    throw LOST;
  }

  #jitter(): { readonly random: number; readonly baseMs: number } {
    const { context, times } = this.#options;
    return { random: context.randomBytes(2).readUInt16BE() / 65_535, baseMs: times?.retryMs ?? RETRY_MS };
  }
}
