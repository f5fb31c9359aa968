/**
 * The form of join tokens, and the hash of join tokens and credentials. Pure.
 *
 * The secret part is 256 random bits, so a plain SHA-256 is enough.
 */
import { createHash } from "node:crypto";

const JOIN_TOKEN_FORM = /^join_([0-9a-f]{12})_[A-Za-z0-9_-]{43}$/;

export const hashOf = (token: string): Buffer => createHash("sha256").update(token).digest();

/** `join_<prefix>_<secret>`; the prefix identifies it, the secret is shown once. */
export function makeJoinToken(randomBytes: (size: number) => Buffer): {
  readonly prefix: string;
  readonly token: string;
} {
  const prefix = randomBytes(6).toString("hex");
  return { prefix, token: `join_${prefix}_${randomBytes(32).toString("base64url")}` };
}

/** The prefix of a text with the form of a join token; else undefined. */
export const joinTokenPrefix = (text: string): string | undefined => JOIN_TOKEN_FORM.exec(text)?.[1];
