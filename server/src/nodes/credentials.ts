/**
 * Authenticates nodes: join tokens and credentials, and what each of them permits.
 *
 * Always: tokens are compared by hash and never stored. Every call of a node is looked up, so that a revoked
 * credential fails immediately on every server.
 */
import { timingSafeEqual } from "node:crypto";
import type { NodeAuthenticator } from "../auth/authenticate.ts";
import type { Context } from "../context.ts";
import type { NodeCaller } from "../auth/caller.ts";
import { hashOf, joinTokenPrefix } from "../tokens/mint.ts";
import { findUsableToken } from "../tokens/store.ts";
import { findNodeByCredential } from "./store.ts";

/** Represents the server's own join token, which has no row. No stored token has this form. */
export const OWN_TOKEN = "own";

const CREDENTIAL_FORM = /^node_[A-Za-z0-9_-]{43}$/;

export const makeCredential = (randomBytes: Context["randomBytes"]): string =>
  `node_${randomBytes(32).toString("base64url")}`;

/** `ownJoinToken`: from this server's settings; null when it has none. */
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
      const prefix = joinTokenPrefix(bearer);
      if (prefix === undefined) return undefined;
      const isUsable = await findUsableToken(context.db, {
        prefix,
        hash: hashOf(bearer),
        now: context.clock.now(),
      });
      return isUsable ? { kind: "node", nodeId: null, joinTokenPrefix: prefix } : undefined;
    },
  };
}
