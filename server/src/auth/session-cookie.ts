/**
 * The cookie of a browser that is signed in to the console, and when it counts. Pure.
 *
 * A browser sends a cookie with every request for its host, whatever page asks for it: pages of other ports
 * of the host, or of machines below the same domain, are of one site with the console for `SameSite`.
 *
 * Always:
 * - the cookie counts only in requests of a page of the same origin, which scripts cannot pretend:
 *   `Sec-Fetch-Site`, or, for a WebSocket, `Origin`;
 * - over https its name begins with `__Host-`, so that no page of another host of the domain can set it;
 * - the first cookie of the name counts.
 */
import type { IncomingHttpHeaders } from "node:http";

const NAME = "flotilla_console";
const SECURE_NAME = `__Host-${NAME}`;
/** A guest gets and sets neither. */
export const SESSION_COOKIES: readonly string[] = [SECURE_NAME, NAME];

/** A header that a page of another origin cannot send without asking first, which is refused. */
const CONSOLE_HEADER = "x-flotilla-console";

/** The token of the cookie; undefined: there is none, or another page than the console's sends it. */
export function sessionTokenOf(headers: IncomingHttpHeaders, isUpgrade: boolean): string | undefined {
  if (headers.cookie === undefined || !isOwnPage(headers, isUpgrade)) return undefined;
  const cookies = headers.cookie.split(";").map((part) => part.trim());
  for (const name of SESSION_COOKIES) {
    const found = cookies.find((cookie) => cookie.startsWith(`${name}=`));
    if (found !== undefined) return found.slice(name.length + 1);
  }
  return undefined;
}

/** Whether a page of this very origin sends the request. */
export function isOwnPage(headers: IncomingHttpHeaders, isUpgrade: boolean): boolean {
  const { host, origin } = headers;
  const site = headers["sec-fetch-site"];
  if (origin !== undefined && !isOriginOf(host ?? "", origin)) return false;
  if (site !== undefined && site !== "same-origin") return false;
  if (isUpgrade) return origin !== undefined;
  // Browsers leave `Sec-Fetch-Site` out where the connection is neither encrypted nor to their own host.
  return site === "same-origin" || headers[CONSOLE_HEADER] !== undefined;
}

/** Whether the origin is the host's, of either scheme: a proxy may have decrypted it. The port counts. */
function isOriginOf(host: string, origin: string): boolean {
  const page = URL.parse(origin);
  if (page === null || !/^https?:$/.test(page.protocol)) return false;
  return URL.parse(`${page.protocol}//${host}`)?.host === page.host;
}

/** The header that gives a browser its session, until `maxAgeSeconds` are over; 0 ends it. */
export function sessionCookie(
  token: string,
  { isEncrypted, maxAgeSeconds }: { readonly isEncrypted: boolean; readonly maxAgeSeconds: number },
): string {
  const where = isEncrypted ? `${SECURE_NAME}=${token}; Path=/; Secure` : `${NAME}=${token}; Path=/v1`;
  return `${where}; Max-Age=${maxAgeSeconds}; HttpOnly; SameSite=Strict`;
}
