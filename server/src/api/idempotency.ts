/**
 * Remembers the first answer to a POST with an `Idempotency-Key`, and replays it for 24 hours.
 *
 * Owns table idempotency_keys. Keys belong to the API key that sent them.
 *
 * Always:
 * - One request at a time runs for a key: the row is its lease, renewed while it runs. A crash leaves a lease
 *   that expires after LEASE_MS; then the request may run again. When the database is away as a request ends,
 *   its answer is kept, or its lease ended, when the database is back.
 * - Answers that callers retry with the same key are not remembered: 429, 402 and every 5xx.
 * - Ids and secrets of what a request makes come from its `seed`, which is in the row before the request
 *   runs, and stays when the request is lost or fails with a 5xx, whatever a repetition is answered with. So
 *   a repetition makes the same, and the primary key shows what exists. Nothing is made twice, even if the
 *   database or a server dies in between. Commands have no such id: a lost one may run again.
 * - Kept answers are encrypted with a key derived from the API key, which the server does not keep. An answer
 *   may hold a secret that is shown once (a new API key), and a copy of the database must not reveal it.
 * - A streamed answer, one above KEPT_BYTES_MAX, or one above the tenant's bound is remembered without its
 *   content. A repetition gets 409, and the request is not run twice.
 * - A tenant has at most IDEMPOTENCY_KEYS_MAX keys; then a new one is refused with 429, and known ones still
 *   work.
 * - A streamed body is compared by its digest, which is known when the first request has ended; a
 *   repetition's body is read and discarded.
 * - A large JSON body is compared by its digest too.
 */
import { createCipheriv, createDecipheriv, createHash, hkdfSync } from "node:crypto";
import { Refusal } from "@flotilla/contract/errors";
import { IDEMPOTENCY_KEY_FORM } from "@flotilla/contract/patterns";
import type { Context } from "../context.ts";
import { DatabaseUnavailable } from "../db/database.ts";
import {
  claimKey,
  endLease,
  hasKey,
  type IdempotencyRow,
  keepAnswer,
  releaseKey,
  renewLease,
} from "./idempotency-store.ts";
import { IDEMPOTENCY_BYTES_MAX, IDEMPOTENCY_KEYS_MAX, type IdempotencyUse } from "./idempotency-use.ts";

/** An answer as it is sent; `body` null: a stream. */
export interface WireAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  /** Digest of a body that was streamed, when all of it was read. */
  readonly digest?: string | null;
}

export interface IdempotentRequest {
  readonly key: string;
  readonly keyId: string;
  readonly tenantId: string;
  /** The API key in plain, for encryption. */
  readonly bearer: string;
  /** Method, path with query, and body. */
  readonly fingerprintOf: readonly (string | Buffer)[];
  /** Reads a body that is streamed to its end. */
  readonly readDigest?: () => Promise<string>;
}

const LEASE_MS = 60_000;
const RENEW_MS = 15_000;
const AGAIN_MS = 250;
const KEPT_MS = 24 * 60 * 60 * 1000;
const KEPT_BYTES_MAX = 64 * 1024;
const KEY_FORM = new RegExp(IDEMPOTENCY_KEY_FORM);

export interface IdempotencyParts {
  readonly context: Context;
  readonly use: IdempotencyUse;
}

/**
 * Runs `work` once per key, or replays what it answered. `work` answers refusals too, it does not throw them.
 * `seed`: what its ids are made from.
 */
export async function idempotently(
  { context, use }: IdempotencyParts,
  request: IdempotentRequest,
  work: (seed: string) => Promise<WireAnswer>,
): Promise<WireAnswer> {
  if (!KEY_FORM.test(request.key))
    throw new Refusal("invalid_request", "idempotency-key must be 1 to 255 printable characters without spaces");
  const owner = context.randomBytes(16).toString("hex");
  const fingerprint = fingerprintOf(request);
  await checkUse({ context, use }, request);
  const row = await claim(context, request, owner, fingerprint);
  if (row.owner !== owner) return await replay(row, request, fingerprint);
  use.add(request.tenantId, { keys: 1 });
  const finished = new AbortController();
  const renewing = renew(context, request, owner, finished.signal);
  try {
    const answer = await work(row.seed);
    // An earlier run may have made something.
    const isFirst = row.seed === owner;
    await remember({ context, use }, { ...request, owner, isFirst }, answer);
    return answer;
  } finally {
    finished.abort();
    await renewing;
  }
}

/**
 * The request has run, so a database failure now must not turn its answer into a refusal: it is kept later.
 */
async function remember(
  { context, use }: IdempotencyParts,
  held: IdempotentRequest & { readonly owner: string; readonly isFirst: boolean },
  answer: WireAnswer,
): Promise<void> {
  const settle = async (): Promise<unknown> => {
    if (isKept(answer.status)) return await keep({ context, use }, held, held.owner, answer);
    if (answer.status < 500 && held.isFirst) return await releaseKey(context.db, held);
    return await endLease(context.db, held, context.clock.now());
  };
  try {
    await settle();
  } catch (error) {
    context.log.warn({ error }, "the answer under an idempotency key could not be kept yet");
    again(context, settle);
  }
}

/** Tries again until the database answers, or the lease has expired. */
function again(context: Context, settle: () => Promise<unknown>, until = context.clock.monotonic() + LEASE_MS): void {
  const { clock } = context;
  clock.timer(AGAIN_MS, () => {
    settle().catch(() => {
      if (clock.monotonic() < until) again(context, settle, until);
    });
  });
}

const isKept = (status: number): boolean => status < 500 && status !== 429 && status !== 402;

function fingerprintOf(request: IdempotentRequest): Buffer {
  const hash = createHash("sha256");
  for (const part of request.fingerprintOf) hash.update(String(part.length)).update(":").update(part);
  return hash.digest();
}

/** The row as it is now: ours if the key is new, or if its request was lost or forgotten. */
async function claim(
  context: Context,
  request: IdempotentRequest,
  owner: string,
  fingerprint: Buffer,
): Promise<IdempotencyRow> {
  const now = context.clock.now();
  const held = { ...request, owner };
  const lease = { ...held, fingerprint, at: now, leaseUntil: now + LEASE_MS, expiresAt: now + KEPT_MS };
  const row = await claimKey(context.db, lease).catch((error: unknown) => {
    // The row may have been written, and nothing will run for it.
    if (error instanceof DatabaseUnavailable) again(context, () => endLease(context.db, held, context.clock.now()));
    throw error;
  });
  // No row: another request inserted it after this statement's snapshot, so that one is running.
  return row ?? { fingerprint, owner: "", seed: "", status: null, answer: null };
}

async function replay(row: IdempotencyRow, request: IdempotentRequest, fingerprint: Buffer): Promise<WireAnswer> {
  if (!row.fingerprint.equals(fingerprint)) throw mismatch();
  if (row.status === null)
    throw new Refusal(
      "idempotency_in_progress",
      "the first request with this idempotency key is still running; try again in a moment",
    );
  if (row.answer === null) {
    const text =
      `the request with this idempotency key was answered with ${row.status} and is not repeated; its answer was a ` +
      `stream, or larger than the ${KEPT_BYTES_MAX} bytes that are kept. Read what it changed, or send the request with a ` +
      "new key to repeat it";
    throw new Refusal("conflict", text);
  }
  const kept = JSON.parse(decrypt(row.answer, request)) as Kept;
  if (
    typeof kept.digest === "string" &&
    request.readDigest !== undefined &&
    kept.digest !== (await request.readDigest())
  )
    throw mismatch();
  return { status: row.status, headers: { ...kept.headers, "idempotency-replayed": "true" }, body: kept.body };
}

const mismatch = (): Refusal =>
  new Refusal("idempotency_mismatch", "this idempotency key was used with another request; choose a new one");

async function checkUse(
  { context, use }: IdempotencyParts,
  { tenantId, keyId, key }: IdempotentRequest,
): Promise<void> {
  const { keys } = await use.of(tenantId);
  if (keys < IDEMPOTENCY_KEYS_MAX || (await hasKey(context.db, { keyId, key }))) return;
  const text =
    `this tenant has used ${IDEMPOTENCY_KEYS_MAX} idempotency keys in 24 hours, which is the maximum; wait, or send ` +
    "requests without one";
  throw new Refusal("rate_limited", text, { headers: { "retry-after": "60" } });
}

async function renew(context: Context, request: IdempotentRequest, owner: string, signal: AbortSignal): Promise<void> {
  for (;;) {
    await context.clock.sleep(RENEW_MS, signal);
    if (signal.aborted) return;
    try {
      await renewLease(context.db, { ...request, owner }, context.clock.now() + LEASE_MS);
    } catch (error) {
      context.log.warn({ error }, "an idempotency lease could not be renewed");
    }
  }
}

interface Kept {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly digest: string | null;
}

async function keep(
  { context, use }: IdempotencyParts,
  request: IdempotentRequest,
  owner: string,
  { headers, body, digest = null, ...answer }: WireAnswer,
): Promise<void> {
  const { bytes } = await use.of(request.tenantId);
  const length = body === null ? 0 : Buffer.byteLength(body);
  const isSmall = body !== null && length <= KEPT_BYTES_MAX && bytes + length <= IDEMPOTENCY_BYTES_MAX;
  if (isSmall) use.add(request.tenantId, { bytes: length });
  const text = isSmall ? JSON.stringify({ headers, body, digest } satisfies Kept) : null;
  const sealed = text === null ? null : encrypt(text, request, context.randomBytes);
  await keepAnswer(context.db, { ...request, owner }, { status: answer.status, answer: sealed });
}

const encryptionKey = (request: IdempotentRequest): Buffer =>
  Buffer.from(hkdfSync("sha256", request.bearer, request.key, "flotilla idempotency answer", 32));

function encrypt(text: string, request: IdempotentRequest, randomBytes: (size: number) => Buffer): Buffer {
  const nonce = randomBytes(12);
  const cipher = createCipheriv("aes-256-gcm", encryptionKey(request), nonce);
  const body = Buffer.concat([cipher.update(text, "utf8"), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), body]);
}

function decrypt(sealed: Buffer, request: IdempotentRequest): string {
  const decipher = createDecipheriv("aes-256-gcm", encryptionKey(request), sealed.subarray(0, 12));
  decipher.setAuthTag(sealed.subarray(12, 28));
  return Buffer.concat([decipher.update(sealed.subarray(28)), decipher.final()]).toString("utf8");
}
