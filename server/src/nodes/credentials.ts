/**
 * Authenticates nodes: join tokens and credentials, and what each of them permits.
 *
 * Always:
 * - Tokens are compared by hash and never stored.
 * - Every call of a node is looked up after it has come, so that a revoked credential fails immediately on
 *   every server.
 * - The credential of a node that joined with a key works only on a connection with its certificate, except
 *   to register again, which proves that the node has the key (register.ts).
 * - The credential of a node without a key, and the server's own join token, work only over the socket of
 *   this host.
 */
import { timingSafeEqual } from "node:crypto";
import type { NodeAuthenticator } from "../auth/authenticate.ts";
import type { Context } from "../context.ts";
import type { NodeCaller, NodeCertificate } from "../auth/caller.ts";
import { Batcher } from "../db/batcher.ts";
import { hashOf, joinTokenPrefix } from "../tokens/mint.ts";
import { findUsableToken } from "../tokens/store.ts";
import { type CredentialHolder, findNodesByCredential } from "./store.ts";

const STATEMENTS_MAX = 2;
const CREDENTIALS_MAX = 64;
/**
 * Nodes report every few seconds, and no user waits for that: where many do, those of this time are looked up
 * together, and so share the statements that follow as well.
 */
const GATHER_MS = 25;

/** Represents the server's own join token, which has no row. No stored token has this form. */
export const OWN_TOKEN = "own";

const CREDENTIAL_FORM = /^node_[A-Za-z0-9_-]{43}$/;

export const makeCredential = (randomBytes: Context["randomBytes"]): string =>
  `node_${randomBytes(32).toString("base64url")}`;

/**
 * `ownJoinToken`: from this server's settings; null when it has none. It counts as made now, when the server
 * starts.
 */
export function nodeAuthenticator(context: Context, ownJoinToken: string | null): NodeAuthenticator {
  const startedAt = context.clock.now();
  const ownHash = ownJoinToken === null ? null : hashOf(ownJoinToken);
  const holders = new Batcher<string, CredentialHolder>({
    ...{
      clock: context.clock,
      statementsMax: STATEMENTS_MAX,
      itemsMax: CREDENTIALS_MAX,
      gatherMs: GATHER_MS,
      isRead: true,
    },
    keyOf: (hash) => hash,
    work: (hashes) => findNodesByCredential(context.db, hashes),
  });
  return {
    async authenticate(bearer, access, way): Promise<NodeCaller | undefined> {
      const bearerHash = hashOf(bearer).toString("hex");
      const caller = { kind: "node", nodeId: null, joinTokenMadeAt: 0, ...way, bearerHash } as const;
      if (CREDENTIAL_FORM.test(bearer)) {
        const node = await holders.do(bearerHash);
        if (node === undefined) return undefined;
        // The node of this host has no key, so its credential alone would be accepted from anywhere.
        if (node.keyHash === null && !way.isLocal) return undefined;
        const isItsKey = node.keyHash === null || isOf(way.certificate, { id: node.id, keyHash: node.keyHash });
        if (!isItsKey && access === "nodeCredential") return undefined;
        return { ...caller, nodeId: node.id, joinTokenPrefix: null };
      }
      if (access !== "joinToken") return undefined;
      if (way.isLocal && ownHash !== null && timingSafeEqual(ownHash, hashOf(bearer)))
        return { ...caller, joinTokenPrefix: OWN_TOKEN, joinTokenMadeAt: startedAt };
      const prefix = joinTokenPrefix(bearer);
      if (prefix === undefined) return undefined;
      // Also a token that is used up: the registration whose answer was lost may be repeated with it.
      const found = await findUsableToken(context.db, { prefix, hash: hashOf(bearer), now: context.clock.now() });
      return found && { ...caller, joinTokenPrefix: prefix, joinTokenMadeAt: found.createdAt };
    },
  };
}

const isOf = (certificate: NodeCertificate | null, node: { readonly id: string; readonly keyHash: Buffer }): boolean =>
  certificate?.nodeId === node.id && certificate.keyHash === node.keyHash.toString("hex");
