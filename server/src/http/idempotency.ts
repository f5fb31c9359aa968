/**
 * Remembers the first answer to a POST with an `Idempotency-Key`, and replays it for 24 hours.
 *
 * Owns table idempotency_keys. Keys belong to the API key that sent them.
 *
 * Always:
 * - one request at a time runs for a key: the row is its lease, renewed while it runs. A crash leaves a lease that
 *   runs out after LEASE_MS; then the request may run again;
 * - what a caller may well try again with the same key is not remembered: 429, 402 and every 5xx;
 * - kept answers are encrypted with a key made from the API key itself, which the server does not keep: an answer may
 *   hold a secret that is shown once (a new API key), and a copy of the database must not give it away;
 * - an answer that is streamed or too large is remembered without its content; a repetition gets 409, and the request
 *   is not run twice.
 */
import { createCipheriv, createDecipheriv, createHash, hkdfSync } from "node:crypto";
import { Refusal } from "@flotilla/contract/errors";
import type { Context } from "../context.ts";
import { sql } from "../db/database.ts";

/** An answer in the form in which it goes on the wire; `body` null: a stream. */
export interface WireAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
}

export interface IdempotentRequest {
  readonly key: string;
  readonly keyId: string;
  /** The API key in plain, for encryption. */
  readonly bearer: string;
  /** Method, path with query, and body. */
  readonly fingerprintOf: readonly (string | Buffer)[];
}

const LEASE_MS = 60_000;
const RENEW_MS = 15_000;
const KEPT_MS = 24 * 60 * 60 * 1000;
const KEPT_BYTES_MAX = 4 * 1024 * 1024;
const REMOVE_AT_ONCE_MAX = 1_000;
const KEY_FORM = /^[\x21-\x7e]{1,255}$/;

interface Row {
  readonly fingerprint: Buffer;
  readonly owner: string;
  readonly status: number | null;
  readonly answer: Buffer | null;
}

/** Runs `work` once per key, or replays what it answered. `work` answers refusals too, it does not throw them. */
export async function idempotently(
  context: Context,
  request: IdempotentRequest,
  work: () => Promise<WireAnswer>,
): Promise<WireAnswer> {
  if (!KEY_FORM.test(request.key))
    throw new Refusal("invalid_request", "idempotency-key must be 1 to 255 printable characters without spaces");
  const owner = context.randomBytes(16).toString("hex");
  const fingerprint = fingerprintOf(request);
  const row = await claim(context, request, owner, fingerprint);
  if (row.owner !== owner) return replay(row, request, fingerprint);
  const finished = new AbortController();
  const renewing = renew(context, request, owner, finished.signal);
  try {
    const answer = await work();
    await (isKept(answer.status) ? keep(context, request, owner, answer) : release(context, request, owner));
    return answer;
  } catch (error) {
    await release(context, request, owner).catch(() => undefined);
    throw error;
  } finally {
    finished.abort();
    await renewing;
  }
}

const isKept = (status: number): boolean => status < 500 && status !== 429 && status !== 402;

function fingerprintOf(request: IdempotentRequest): Buffer {
  const hash = createHash("sha256");
  for (const part of request.fingerprintOf) hash.update(String(part.length)).update(":").update(part);
  return hash.digest();
}

/** The row as it is now: ours when nobody had the key, or when its request was lost or forgotten. */
async function claim(context: Context, request: IdempotentRequest, owner: string, fingerprint: Buffer): Promise<Row> {
  const now = context.clock.now();
  const [lease, expiry, at] = [new Date(now + LEASE_MS), new Date(now + KEPT_MS), new Date(now)];
  const row = await context.db.queryOne<Row>(sql`
    WITH claimed AS (
      INSERT INTO idempotency_keys AS k
        (key_id, idempotency_key, fingerprint, owner, lease_until, created_at, expires_at)
      VALUES (${request.keyId}, ${request.key}, ${fingerprint}, ${owner}, ${lease}, ${at}, ${expiry})
      ON CONFLICT (key_id, idempotency_key) DO UPDATE
        SET fingerprint = excluded.fingerprint, owner = excluded.owner, lease_until = excluded.lease_until,
            status = NULL, answer = NULL, created_at = excluded.created_at, expires_at = excluded.expires_at
        WHERE k.expires_at <= ${at}
           OR (k.status IS NULL AND k.lease_until <= ${at} AND k.fingerprint = excluded.fingerprint)
      RETURNING fingerprint, owner, status, answer
    )
    SELECT * FROM claimed
    UNION ALL
    SELECT fingerprint, owner, status, answer FROM idempotency_keys
    WHERE key_id = ${request.keyId} AND idempotency_key = ${request.key} AND NOT EXISTS (SELECT FROM claimed)`);
  // No row at all: another request inserted it after this statement's snapshot, so it runs now.
  return row ?? { fingerprint, owner: "", status: null, answer: null };
}

function replay(row: Row, request: IdempotentRequest, fingerprint: Buffer): WireAnswer {
  if (!row.fingerprint.equals(fingerprint))
    throw new Refusal("idempotency_mismatch", "this idempotency key was used with another request; choose a new one");
  if (row.status === null)
    throw new Refusal("idempotency_in_progress", "the first request with this idempotency key still runs; ask again");
  if (row.answer === null) {
    const text = "the request with this idempotency key was answered; its answer was a stream or too large to be kept";
    throw new Refusal("conflict", text);
  }
  const kept = JSON.parse(decrypt(row.answer, request)) as { headers: Record<string, string>; body: string };
  return { status: row.status, headers: { ...kept.headers, "idempotency-replayed": "true" }, body: kept.body };
}

async function renew(context: Context, request: IdempotentRequest, owner: string, signal: AbortSignal): Promise<void> {
  for (;;) {
    await context.clock.sleep(RENEW_MS, signal);
    if (signal.aborted) return;
    try {
      await context.db.execute(sql`
        UPDATE idempotency_keys SET lease_until = ${new Date(context.clock.now() + LEASE_MS)}
        WHERE key_id = ${request.keyId} AND idempotency_key = ${request.key} AND owner = ${owner}`);
    } catch (error) {
      context.log.warn({ error }, "an idempotency lease could not be renewed");
    }
  }
}

async function keep(context: Context, request: IdempotentRequest, owner: string, answer: WireAnswer): Promise<void> {
  const isSmall = answer.body !== null && answer.body.length <= KEPT_BYTES_MAX;
  const text = isSmall ? JSON.stringify({ headers: answer.headers, body: answer.body }) : null;
  const sealed = text === null ? null : encrypt(text, request, context.randomBytes);
  await context.db.execute(sql`
    UPDATE idempotency_keys SET status = ${answer.status}, answer = ${sealed}
    WHERE key_id = ${request.keyId} AND idempotency_key = ${request.key} AND owner = ${owner}`);
}

async function release(context: Context, request: IdempotentRequest, owner: string): Promise<void> {
  await context.db.execute(sql`
    DELETE FROM idempotency_keys
    WHERE key_id = ${request.keyId} AND idempotency_key = ${request.key} AND owner = ${owner} AND status IS NULL`);
}

/** Removes what is past its time, a bounded number; returns how many. */
export const removeExpired = (context: Context): Promise<number> =>
  context.db.execute(sql`
    DELETE FROM idempotency_keys WHERE (key_id, idempotency_key) IN (
      SELECT key_id, idempotency_key FROM idempotency_keys WHERE expires_at <= ${new Date(context.clock.now())}
      LIMIT ${REMOVE_AT_ONCE_MAX} FOR UPDATE SKIP LOCKED)`);

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
