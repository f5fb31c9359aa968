/**
 * The form of join tokens, and the hash of join tokens and credentials. Pure.
 *
 * The secret part has 256 random bits, so a plain SHA-256 is enough.
 */
import { createHash } from "node:crypto";
import { parseJoinToken } from "@flotilla/contract/link/fleet";

export const hashOf = (token: string): Buffer => createHash("sha256").update(token).digest();

/**
 * `join_<prefix>_<secret>`; the prefix identifies it, the secret is shown once. `authority`: the fingerprint
 * of the fleet authority, with which a joining node recognizes the server.
 */
export function makeJoinToken(
  randomBytes: (size: number) => Buffer,
  authority: string,
): {
  readonly prefix: string;
  readonly token: string;
} {
  const prefix = randomBytes(6).toString("hex");
  return { prefix, token: `join_${prefix}_${randomBytes(32).toString("base64url")}${authority}` };
}

/** The prefix of a text with the form of a join token; else undefined. */
export const joinTokenPrefix = (text: string): string | undefined => parseJoinToken(text)?.prefix;
