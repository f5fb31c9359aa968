/**
 * The handlers of join tokens: list, create, revoke.
 */
import type { Context } from "../context.ts";
import { listListeners } from "../link/fleet-store.ts";
import type { Fleet } from "../link/reach.ts";
import { LISTENER_LOST_MS } from "../link/trust.ts";
import type { HandlersOf } from "../api/handler.ts";
import { listPage } from "../api/list-page.ts";
import { hashOf, makeJoinToken } from "./mint.ts";
import { insertJoinToken, type JoinTokenRow, listJoinTokens, removeJoinToken } from "./store.ts";
import { notFound } from "../missing.ts";

const EXPIRES_IN_SECONDS_DEFAULT = 3600;
/** The last instant of a Date, in epoch milliseconds. The newest token is the first of the list. */
const LAST_INSTANT = 8.64e15;
const INSTANT_DIGITS = 16;

const tokenInfo = (row: JoinTokenRow) => ({
  prefix: row.prefix,
  description: row.description,
  createdAt: new Date(row.createdAt).toISOString(),
  expiresAt: new Date(row.expiresAt).toISOString(),
  maxUses: row.maxUses,
  uses: row.uses,
});

export function tokenHandlers(
  context: Context,
  { trust }: Pick<Fleet, "trust">,
): HandlersOf<"listJoinTokens" | "createJoinToken" | "deleteJoinToken"> {
  return {
    async listJoinTokens({ query }) {
      const found = (await listJoinTokens(context.db)).map(tokenInfo);
      const keyOf = ({ createdAt, prefix }: (typeof found)[number]): string =>
        `${String(LAST_INSTANT - Date.parse(createdAt)).padStart(INSTANT_DIGITS, "0")} ${prefix}`;
      return { status: 200, ...listPage(found, query, { path: "/v1/tokens", keyOf }) };
    },
    async createJoinToken({ body, secretBytes }) {
      const seconds = body?.expiresInSeconds ?? EXPIRES_IN_SECONDS_DEFAULT;
      const { prefix, token } = makeJoinToken(secretBytes, await trust.fingerprint());
      const now = context.clock.now();
      const row = await insertJoinToken(context.db, {
        prefix,
        hash: hashOf(token),
        description: body?.description ?? null,
        labels: body?.labels ?? {},
        createdAt: now,
        expiresAt: now + seconds * 1000,
        maxUses: body?.maxUses ?? 1,
      });
      if (row === undefined) throw new Error("a join token was not written");
      const listeners = await listListeners(context.db, LISTENER_LOST_MS);
      const nodeAddresses = listeners.flatMap(({ addresses }) => addresses);
      return { status: 200, body: { ...tokenInfo(row), token, nodeAddresses } };
    },
    async deleteJoinToken({ params }) {
      if (!(await removeJoinToken(context.db, params.prefix))) throw notFound("token", params.prefix);
      return { status: 204 };
    },
  };
}
