/**
 * Signs browsers in to the console, and out.
 *
 * Always:
 * - A link and a cookie are random tokens of which only the hash is stored; the cookie is made when the link
 *   is opened, so a link that was read by others is noticed by its owner: it no longer works.
 * - Neither is accepted or given where the connection could be read on its way.
 */
import { CONSOLE_LINK_MS, CONSOLE_SESSION_MS } from "@flotilla/contract/console";
import { Refusal } from "@flotilla/contract/errors";
import type { HandlersOf } from "../api/handler.ts";
import type { KeyCache } from "../auth/key-cache.ts";
import { hashKey, hasLinkTokenForm, makeLinkToken, makeSessionToken } from "../auth/keys.ts";
import { isOwnPage, sessionCookie, sessionTokenOf } from "../auth/session-cookie.ts";
import type { Context } from "../context.ts";
import type { Way } from "../http/way.ts";
import { insertLink, insertSession, openLink, removeSession } from "./store.ts";

export function consoleHandlers(
  context: Context,
  keys: KeyCache,
): HandlersOf<"createConsoleLink" | "openConsoleLink" | "createConsoleSession" | "deleteConsoleSession"> {
  const { clock, db } = context;
  return {
    createConsoleLink: async ({ caller, secretBytes }) => {
      const token = makeLinkToken(secretBytes);
      const expiresAt = clock.now() + CONSOLE_LINK_MS;
      await insertLink(db, { hash: hashKey(token), keyId: caller.keyId, expiresAt });
      // Browsers send no fragment, so it is in no log of a proxy.
      return { status: 201, body: { path: `/console/#link=${token}`, expiresAt: isoOf(expiresAt) } };
    },
    openConsoleLink: async ({ body: { token }, headers, way }) => {
      requireSafe(way);
      if (!isOwnPage(headers, false))
        throw new Refusal("invalid_request", "only the console's page opens its links; open it in a browser");
      const made = makeSessionToken(context.randomBytes);
      const now = clock.now();
      const session = { hash: hashKey(made), createdAt: now, expiresAt: now + CONSOLE_SESSION_MS };
      const opened = hasLinkTokenForm(token) ? await openLink(db, hashKey(token), session) : undefined;
      if (opened === undefined)
        throw new Refusal(
          "unknown_key",
          "the link has expired or was opened before; `flotilla console` prints a new one",
        );
      return signedIn(made, { way, now, expiresAt: opened.expiresAt });
    },
    createConsoleSession: async ({ caller, way }) => {
      requireSafe(way);
      const made = makeSessionToken(context.randomBytes);
      const now = clock.now();
      const expiresAt = Math.min(now + CONSOLE_SESSION_MS, caller.expiresAt ?? Number.POSITIVE_INFINITY);
      await insertSession(db, caller.keyId, { hash: hashKey(made), createdAt: now, expiresAt });
      return signedIn(made, { way, now, expiresAt });
    },
    deleteConsoleSession: async ({ caller, headers, way }) => {
      const token = sessionTokenOf(headers, false);
      if (token !== undefined) await removeSession(db, hashKey(token));
      keys.forgetKey(caller.keyId);
      const ended = sessionCookie("", { isEncrypted: way === "encrypted", maxAgeSeconds: 0 });
      return { status: 204, headers: { "set-cookie": ended } };
    },
  };
}

function requireSafe(way: Way): void {
  if (way !== "open") return;
  throw new Refusal(
    "invalid_request",
    "the console signs in over https, or in a browser on the server's own host; others could read this connection",
  );
}

function signedIn(
  token: string,
  { way, now, expiresAt }: { readonly way: Way; readonly now: number; readonly expiresAt: number },
) {
  const maxAgeSeconds = Math.max(1, Math.floor((expiresAt - now) / 1000));
  const cookie = sessionCookie(token, { isEncrypted: way === "encrypted", maxAgeSeconds });
  return { status: 201, headers: { "set-cookie": cookie }, body: { expiresAt: isoOf(expiresAt) } } as const;
}

const isoOf = (at: number): string => new Date(at).toISOString();
