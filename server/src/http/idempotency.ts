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
import { claimKey, type IdempotencyRow, keepAnswer, releaseKey, renewLease } from "./idempotency-store.ts";

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
const KEY_FORM = /^[\x21-\x7e]{1,255}$/;

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
    await remember(context, request, owner, answer);
    return answer;
  } finally {
    finished.abort();
    await renewing;
  }
}

/** What was done is done, so a database that fails now must not turn the answer into a refusal: the lease runs out. */
async function remember(
  context: Context,
  request: IdempotentRequest,
  owner: string,
  answer: WireAnswer,
): Promise<void> {
  try {
    if (isKept(answer.status)) await keep(context, request, owner, answer);
    else await releaseKey(context.db, { ...request, owner });
  } catch (error) {
    context.log.warn({ error }, "the answer under an idempotency key could not be kept");
  }
}

const isKept = (status: number): boolean => status < 500 && status !== 429 && status !== 402;

function fingerprintOf(request: IdempotentRequest): Buffer {
  const hash = createHash("sha256");
  for (const part of request.fingerprintOf) hash.update(String(part.length)).update(":").update(part);
  return hash.digest();
}

/** The row as it is now: ours when nobody had the key, or when its request was lost or forgotten. */
async function claim(
  context: Context,
  request: IdempotentRequest,
  owner: string,
  fingerprint: Buffer,
): Promise<IdempotencyRow> {
  const now = context.clock.now();
  const row = await claimKey(context.db, {
    ...request,
    owner,
    fingerprint,
    at: new Date(now),
    leaseUntil: new Date(now + LEASE_MS),
    expiresAt: new Date(now + KEPT_MS),
  });
  // No row at all: another request inserted it after this statement's snapshot, so it runs now.
  return row ?? { fingerprint, owner: "", status: null, answer: null };
}

function replay(row: IdempotencyRow, request: IdempotentRequest, fingerprint: Buffer): WireAnswer {
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
      await renewLease(context.db, { ...request, owner }, new Date(context.clock.now() + LEASE_MS));
    } catch (error) {
      context.log.warn({ error }, "an idempotency lease could not be renewed");
    }
  }
}

async function keep(context: Context, request: IdempotentRequest, owner: string, answer: WireAnswer): Promise<void> {
  const isSmall = answer.body !== null && answer.body.length <= KEPT_BYTES_MAX;
  const text = isSmall ? JSON.stringify({ headers: answer.headers, body: answer.body }) : null;
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
