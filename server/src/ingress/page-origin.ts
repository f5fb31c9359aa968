/**
 * Whether a browser sends a request for a page of another host. Pure.
 *
 * Browsers treat all hosts below one domain as one site, so they send a `SameSite=Lax` cookie also with
 * requests of other machines' pages. `Origin` and `Sec-Fetch-*` say which page sends a request, and scripts
 * cannot set them.
 *
 * Always:
 * - a link leads to a machine from every page: GET and HEAD of a tab's own page are accepted;
 * - a request without these headers is accepted: programs and old browsers do not send them;
 * - by path all machines' pages are sandboxed, and have the same origin, `null`: it is accepted there.
 */
import type { IncomingMessage } from "node:http";
import type { Route } from "../machines/addresses.ts";

export interface PageRequest extends Pick<IncomingMessage, "headers" | "method"> {
  readonly by: Route["by"];
  readonly isUpgrade: boolean;
}

export function isFromOtherPage(request: PageRequest): boolean {
  const { headers, by } = request;
  const { host, origin } = headers;
  const site = headers["sec-fetch-site"];
  // Also the origin of a form of this host's own page, if that has the referrer policy `no-referrer`.
  if (origin === "null") return by === "host" && site !== "same-origin";
  if (origin !== undefined && !isOriginOf(host ?? "", origin)) return true;
  if (site === undefined || site === "same-origin" || site === "none") return false;
  // To a browser a sandboxed page is of another site than its own server.
  if (by === "path" && site === "cross-site") return false;
  return !isOwnTab(request);
}

/** Whether the answer becomes the page of a tab: a link, or an address that was typed. */
const isOwnTab = ({ headers, method, isUpgrade }: PageRequest): boolean =>
  headers["sec-fetch-mode"] === "navigate" &&
  headers["sec-fetch-dest"] === "document" &&
  (method === "GET" || method === "HEAD") &&
  !isUpgrade;

/** Whether the origin is the host's, of either scheme: a proxy may have decrypted the request. */
function isOriginOf(host: string, origin: string): boolean {
  const page = URL.parse(origin);
  if (page === null || !/^https?:$/.test(page.protocol)) return false;
  const own = URL.parse(`${page.protocol}//${host}`);
  if (own === null) return false;
  // A proxy may have removed the port from `Host`. Cookies are the same for all ports of a host.
  return /:\d+$/.test(host) ? own.host === page.host : own.hostname === page.hostname;
}
