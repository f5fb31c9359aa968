/**
 * The client of the server that serves this page, and the cache of what was read from it.
 *
 * Always:
 * - The browser's session is in a cookie that scripts cannot read; each call carries a header that pages of
 *   other origins cannot send.
 * - A call that is refused because the session has ended shows the sign-in, and nothing is retried meanwhile.
 * - Nothing is read again by time: live.ts says what has changed.
 */
import { Flotilla, FlotillaError } from "@flotilla/sdk";
import { QueryClient } from "@tanstack/react-query";

const SIGNED_OUT = new EventTarget();

export const api = new Flotilla({ url: location.origin, fetch: send });

async function send(url: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  headers.set("x-flotilla-console", "1");
  const answer = await fetch(url, { ...init, headers, credentials: "same-origin" });
  if (answer.status === 401 && !url.endsWith("/sessions/link")) SIGNED_OUT.dispatchEvent(new Event("signed out"));
  return answer;
}

/** Calls back whenever a call was refused for want of a session. */
export function onSignedOut(listener: () => void): () => void {
  SIGNED_OUT.addEventListener("signed out", listener);
  return () => SIGNED_OUT.removeEventListener("signed out", listener);
}

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: Number.POSITIVE_INFINITY,
      refetchOnWindowFocus: false,
      retry: (count, error) => count < 2 && error instanceof FlotillaError && error.status === 0,
    },
  },
});

/** What went wrong, for people. */
export function reasonOf(error: unknown): string {
  if (error instanceof FlotillaError) return error.text || error.message;
  return error instanceof Error ? error.message : String(error);
}

/** The id under which the server's log has the request; null: it has none. */
export const requestIdOf = (error: unknown): string | null => (error instanceof FlotillaError ? error.requestId : null);

/** Whether the scopes permit what needs `scope`; the same as the server decides. */
export function grants(scopes: readonly string[], scope: string): boolean {
  return scopes.includes("*") || scopes.includes("admin") || scopes.includes(scope);
}
