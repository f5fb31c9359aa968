/**
 * Connect tokens: short-lived credentials for the ports of one machine, for pages and programs that must not
 * have a key.
 *
 * Always: a token is valid only for the connect bridge of its machine, and only while the key that made it
 * is.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { ConnectTokenAuthenticator } from "../../auth/authenticate.ts";
import { fromRow } from "../../auth/key-cache.ts";
import { hashKey } from "../../auth/keys.ts";
import type { Context } from "../../context.ts";
import { machineNotFound } from "../../auth/not-found.ts";
import { findMachine } from "../../machines/store.ts";
import { findKeyOfConnectToken, insertConnectToken } from "./store.ts";

const TTL_DEFAULT_SECONDS = 3_600;
/** Per machine: a program that makes a token for each request gets an error that says to reuse it. */
const TOKENS_MAX = 1_000;

export interface ConnectTokenRequest {
  readonly tenantId: string;
  readonly keyId: string;
  readonly machineId: string;
  readonly ttlSeconds: number | null;
}

export async function makeMachineToken(
  context: Context,
  { tenantId, keyId, machineId, ttlSeconds }: ConnectTokenRequest,
  token: string,
): Promise<{ readonly token: string; readonly expiresAt: number }> {
  const machine = await findMachine(context.db, { tenantId, id: machineId });
  if (machine === undefined) throw machineNotFound(machineId);
  const wanted = context.clock.now() + (ttlSeconds ?? TTL_DEFAULT_SECONDS) * 1000;
  const row = { hash: hashKey(token), machineId, keyId, expiresAt: wanted };
  const expiresAt = await insertConnectToken(context, row, TOKENS_MAX);
  if (expiresAt === undefined) {
    const text = `machine ${machineId} has ${TOKENS_MAX} connect tokens, the maximum; use one again until it expires, or request a shorter time`;
    throw new Refusal("quota_exceeded", text);
  }
  return { token, expiresAt };
}

export const connectTokenAuthenticator = ({ db, clock }: Context): ConnectTokenAuthenticator => ({
  async authenticate(token, machineId) {
    const row = await findKeyOfConnectToken(db, { hash: hashKey(token), machineId, now: clock.now() });
    return row && fromRow({ ...row, scopes: ["machine:exec"] });
  },
});
