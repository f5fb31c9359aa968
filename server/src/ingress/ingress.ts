/**
 * Requests to machines by their public address, mostly from browsers: decides who has access, then forwards like the bridge.
 *
 * A public machine is open to everyone. Any other needs its share link, which is immediately exchanged for a cookie so that
 * the token is in no history and no `Referer`, or a key of its tenant with `machine:exec`.
 *
 * Always:
 * - a caller without access learns nothing, not even whether the machine exists: 401, or 404 with a key of another tenant;
 * - access is checked for every request (access.ts limits how old it may be); a revoked link opens nothing, and what it
 *   opened ends;
 * - the cookie of a share link opens nothing for pages of other hosts (page-origin.ts), except by a link that is followed;
 * - no credential of Flotilla reaches the guest.
 */
import type { IncomingMessage } from "node:http";
import { Refusal } from "@flotilla/contract/errors";
import { grants } from "@flotilla/contract/scopes";
import type { Right } from "../auth/access-watch.ts";
import { bearerOf } from "../auth/authenticate.ts";
import { hashedName, hashKey, hasKeyForm, hasShareTokenForm } from "../auth/keys.ts";
import { type Outgoing, passOn } from "../http/answer.ts";
import type { Ingress, IngressRequest } from "../api/ingress.ts";
import type { MachineAddresses, Route } from "../machines/addresses.ts";
import type { AccessTable } from "./access.ts";
import type { MachineAccess } from "./access-store.ts";
import { shareCookie, shareCookies } from "./cookies.ts";
import { forward, type ForwardServices } from "./forward.ts";
import { withoutCredential } from "./head.ts";
import { isFromOtherPage } from "./page-origin.ts";

/** The parameter that holds a share token, and the one that holds a key on a WebSocket handshake. */
const SHARE_PARAMETER = "t";
const KEY_PARAMETER = "access_token";

const OTHER_PAGE =
  "a page of another host sent this request, and the cookie of a share link gives access only to its own host's pages; open the machine's address in a tab, or send a key with machine:exec";

/** The credential that gave access; all null for a public machine. */
type Admission = Pick<Right, "keyId" | "expiresAt" | "shareHash">;

/** The share tokens of a request: `token` is the query's, `links` are all. */
interface Links {
  readonly route: Route;
  readonly token: string | undefined;
  readonly links: readonly string[];
}

export interface IngressServices extends ForwardServices {
  readonly addresses: Pick<MachineAddresses, "routeOf">;
  readonly access: AccessTable;
}

export class MachineIngress implements Ingress {
  readonly #services: IngressServices;

  constructor(services: IngressServices) {
    this.#services = services;
  }

  owns({ headers, url = "" }: Pick<IncomingMessage, "headers" | "url">): boolean {
    return this.#services.addresses.routeOf(headers.host, targetOf(url)) !== undefined;
  }

  async answer(request: IngressRequest): Promise<Outgoing> {
    const { raw, signal } = request;
    const target = targetOf(raw.url);
    const route = this.#services.addresses.routeOf(raw.message.headers.host, target);
    if (route === undefined) throw new Error(`no machine has ${raw.url}`);
    const path = target.slice(route.prefix.length);
    // Relative links of the guest's pages resolve below its root.
    if (route.by === "path" && !path.startsWith("/")) return redirect(308, `${route.prefix}/${path}`);
    const repay = await request.pay();
    const search = parametersOf(path);
    const token = search.getAll(SHARE_PARAMETER).find(hasShareTokenForm);
    const links = [...(token === undefined ? [] : [token]), ...shareCookies(raw.message.headers.cookie)];
    const access = this.#known(route.name, links) ?? (await this.#find(request, route.name, links));
    const { method = "GET" } = raw.message;
    const isPage = (method === "GET" || method === "HEAD") && raw.upgrade === undefined;
    // A public machine needs no link, so one that has ended does no harm.
    if (token !== undefined && isPage && !(access?.isPublic === true && !opens(access, token))) {
      const redirected = exchanged({ access, route, path, token });
      repay();
      return redirected;
    }
    const admission = await this.#admit(request, access, { route, token, links });
    if (access === undefined) throw new Refusal("missing_key", "");
    repay();
    if (access.isSuspended) throw new Refusal("payment_required", "the tenant of this machine is suspended");
    await request.admit(
      { ...admission, what: "the connection", tenantId: access.tenantId, machineId: access.id },
      access,
    );
    const reply = await forward(this.#services, {
      machine: access,
      port: null,
      raw,
      path: withoutCredential(withoutCredential(path, SHARE_PARAMETER), KEY_PARAMETER),
      prefix: route.prefix,
      signal,
    });
    return passOn(reply);
  }

  /** undefined: the database is to be asked. */
  #known(name: string, links: readonly string[]): MachineAccess | undefined {
    const access = this.#services.access.known(name);
    return access === undefined || mayBeOld(access, links) ? undefined : access;
  }

  async #find(
    { beginForAddress }: IngressRequest,
    name: string,
    links: readonly string[],
  ): Promise<MachineAccess | undefined> {
    await beginForAddress();
    const { access: table } = this.#services;
    const access = await table.find(name);
    return access !== undefined && mayBeOld(access, links) ? await table.findNewer(name) : access;
  }

  async #admit(
    { raw, authenticate }: IngressRequest,
    access: MachineAccess | undefined,
    { route, token, links }: Links,
  ): Promise<Admission> {
    if (access?.isPublic === true) return { keyId: null, expiresAt: null, shareHash: null };
    const { headers, method } = raw.message;
    const link = links.find((each) => access !== undefined && opens(access, each));
    // Browsers add a cookie by themselves, but not a token in the query.
    const isOtherPage =
      link !== undefined &&
      link !== token &&
      isFromOtherPage({ headers, method, by: route.by, isUpgrade: raw.upgrade !== undefined });
    if (link !== undefined && !isOtherPage) return { keyId: null, expiresAt: null, shareHash: hashedName(link) };
    const inQuery = raw.upgrade === undefined ? null : parametersOf(raw.url).get(KEY_PARAMETER);
    const bearer = bearerOf(headers.authorization) ?? inQuery ?? undefined;
    // Any other kind of `Authorization` is for the guest, which this caller cannot reach.
    if (bearer === undefined || !hasKeyForm(bearer))
      throw isOtherPage ? new Refusal("unknown_key", OTHER_PAGE) : new Refusal("missing_key", "");
    const key = await authenticate(bearer);
    if (!grants(key.scopes, "machine:exec")) throw new Refusal("missing_scope", "missing scope: machine:exec");
    // The same answer for another tenant's machine and for none, so that callers cannot tell which machines exist.
    if (access?.tenantId !== key.tenantId) throw new Refusal("not_found", "your tenant has no machine at this address");
    return { keyId: key.keyId, expiresAt: key.expiresAt, shareHash: null };
  }
}

/** Path and query, also of a target that begins with an origin (RFC 9112, 3.2.2). */
const targetOf = (url: string): string => {
  const target = url.replace(/^https?:\/\/[^/?]*/i, "");
  return target === url || target.startsWith("/") ? target : `/${target}`;
};

const parametersOf = (url: string): URLSearchParams =>
  new URLSearchParams(url.slice(url.indexOf("?") + 1 || url.length));

/** Compares hashes, so that the time it takes reveals nothing about the token. */
const opens = ({ shareHash }: MachineAccess, token: string): boolean =>
  hasShareTokenForm(token) && shareHash !== null && hashKey(token).equals(shareHash);

/** A link that another server has just made may not be in memory yet. */
const mayBeOld = (access: MachineAccess, links: readonly string[]): boolean =>
  !access.isPublic && links.length > 0 && !links.some((link) => opens(access, link));

interface Exchange {
  readonly access: MachineAccess | undefined;
  readonly route: Route;
  readonly path: string;
  readonly token: string;
}

/** Sets the token as a cookie and redirects to the address without it. */
function exchanged({ access, route, path, token }: Exchange): Outgoing {
  if (access === undefined || !opens(access, token))
    throw new Refusal(
      "unknown_key",
      "this share link does not work any more: it was revoked or replaced; ask its owner for a new one",
    );
  const cookie = shareCookie(token, { path: `${route.prefix}/`, isEncrypted: route.isEncrypted });
  // One slash at the start: after two, a browser reads the rest as another host.
  const clean = withoutCredential(path, SHARE_PARAMETER).replace(/^[/\\]+/, "/");
  const answer = redirect(302, `${route.prefix}${clean}`);
  return { ...answer, headers: { ...answer.headers, "set-cookie": cookie } };
}

const redirect = (status: number, location: string): Outgoing => ({
  status,
  headers: { location, "referrer-policy": "no-referrer" },
  body: "",
});
