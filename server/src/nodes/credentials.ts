/**
 * Who a node is: join tokens and credentials, and which of them lets it do what.
 *
 * Always: tokens are compared by hash and never stored; every call of a node is looked up, so that a revoked
 * credential fails at once on every server.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import type { NodeAuthenticator } from "../auth/authenticate.ts";
import type { Context } from "../context.ts";
import type { NodeCaller } from "../http/handler.ts";
import { findUsableToken } from "../tokens/store.ts";
import { findNodeByCredential } from "./store.ts";

/** Stands for the server's own join token, which has no row. No token of the family has this form. */
export const OWN_TOKEN = "own";

const CREDENTIAL_FORM = /^node_[A-Za-z0-9_-]{43}$/;
const JOIN_TOKEN_FORM = /^join_([0-9a-f]{12})_[A-Za-z0-9_-]{43}$/;

export const hashOf = (token: string): Buffer => createHash("sha256").update(token).digest();

export const makeCredential = (randomBytes: Context["randomBytes"]): string =>
  `node_${randomBytes(32).toString("base64url")}`;

/** `join_<prefix>_<secret>`; the prefix names it, the secret is shown once. */
export function makeJoinToken(randomBytes: Context["randomBytes"]): {
  readonly prefix: string;
  readonly token: string;
} {
  const prefix = randomBytes(6).toString("hex");
  return { prefix, token: `join_${prefix}_${randomBytes(32).toString("base64url")}` };
}

/** `ownJoinToken`: of this server's settings; null when it has none. */
export function nodeAuthenticator(context: Context, ownJoinToken: string | null): NodeAuthenticator {
  const ownHash = ownJoinToken === null ? null : hashOf(ownJoinToken);
  return {
    async authenticate(bearer, access): Promise<NodeCaller | undefined> {
      if (CREDENTIAL_FORM.test(bearer)) {
        const nodeId = await findNodeByCredential(context.db, hashOf(bearer));
        return nodeId === undefined ? undefined : { kind: "node", nodeId, joinTokenPrefix: null };
      }
      if (access !== "joinToken") return undefined;
      if (ownHash !== null && timingSafeEqual(ownHash, hashOf(bearer)))
        return { kind: "node", nodeId: null, joinTokenPrefix: OWN_TOKEN };
      const prefix = JOIN_TOKEN_FORM.exec(bearer)?.[1];
      if (prefix === undefined) return undefined;
      const isUsable = await findUsableToken(context.db, {
        prefix,
        hash: hashOf(bearer),
        now: new Date(context.clock.now()),
      });
      return isUsable ? { kind: "node", nodeId: null, joinTokenPrefix: prefix } : undefined;
    },
  };
}
