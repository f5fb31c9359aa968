/**
 * Requests to machines and apps by their public address, mostly from browsers: decides who has access, then
 * forwards like bridge.ts, or to an instance of the app.
 *
 * What is public is open to everyone. Anything else needs its share link, which is immediately exchanged for
 * a cookie so that the token is in no history and no `Referer`, or a key of its tenant with `machine:exec`.
 *
 * Always:
 * - a caller without access learns nothing, not even whether anything has the address: 401, or 404 with a key
 *   of another tenant;
 * - access is checked for every request (access.ts limits how old it may be); a revoked link opens nothing,
 *   and what it opened ends, as what everyone opened does when an app becomes private;
 * - the cookie of a share link opens nothing for pages of other hosts (page-origin.ts), except by a link that
 *   is followed;
 * - no credential of Flotilla reaches the guest.
 */
import { Refusal } from "@flotilla/contract/errors";
import { grants } from "@flotilla/contract/scopes";
import type { Right } from "../auth/access-watch.ts";
import { authenticateKey, bearerOf } from "../auth/authenticate.ts";
import { hashedName, hashKey, hasKeyForm, hasShareTokenForm } from "../auth/keys.ts";
import { forHolder } from "../db/holder.ts";
import { addressCaller } from "../fairness/semaphore.ts";
import { type Outgoing, passOn, type PassedReply } from "../http/answer.ts";
import { beginWork, callerOf, guardOf, type OpenRequest, rawOf, searchOf } from "../http/request.ts";
import type { HostKind, HostSubject } from "../hosts/kinds.ts";
import type { Route } from "../machines/addresses.ts";
import type { Access } from "./access-store.ts";
import { shareCookie, shareCookies } from "./cookies.ts";
import { forwardToApp } from "./apps/forward.ts";
import { forward, type ForwardOptions } from "./forward.ts";
import { withoutCredential } from "./head.ts";
import { isFromOtherPage } from "./page-origin.ts";
import { admit, type IngressParts, takeRequest } from "./admit.ts";

/** The parameter that holds a share token, and the one that holds a key on a WebSocket handshake. */
const SHARE_PARAMETER = "t";
const KEY_PARAMETER = "access_token";

const OTHER_PAGE =
  "a page of another host sent this request, and the cookie of a share link gives access only to its own host's pages; open the address in a tab, or send a key with machine:exec";

/** What gave access; all null for a machine that is public, which it stays. */
type Grant = Pick<Right, "keyId" | "expiresAt" | "shareHash" | "publicAppId" | "sessionHash">;
const NOTHING: Grant = { keyId: null, expiresAt: null, shareHash: null, publicAppId: null, sessionHash: null };

/** The share tokens of a request: `token` is the query's, `links` are all. */
interface Links {
  readonly route: Route;
  readonly token: string | undefined;
  readonly links: readonly string[];
}

/** The request's address, and the path and query that follow its origin. */
interface Addressed {
  readonly address: Route;
  readonly target: string;
}

/** Throws a Refusal. */
export async function answerAddress(parts: IngressParts, request: OpenRequest, to: Addressed): Promise<Outgoing> {
  const { presence, startedAt: now } = request;
  const from = callerOf(parts, request);
  const { admission } = parts;
  await admission.takeFromAddress(from, { now, presence });
  const { address: route, target } = to;
  const path = target.slice(route.prefix.length);
  // Relative links of the guest's pages resolve below its root.
  if (route.by === "path" && !path.startsWith("/")) return redirect(308, `${route.prefix}/${path}`);
  await admission.unauthenticated.charge(from, presence);
  const refund = (): void => admission.unauthenticated.refund(from);
  return await forHolder(addressCaller(from.address).name, () => visit(parts, request, { route, path, refund }));
}

interface Visit {
  readonly route: Route;
  readonly path: string;
  /** Returns what was charged to a caller that has access. */
  readonly refund: () => void;
}

async function visit(parts: IngressParts, request: OpenRequest, { route, path, refund }: Visit): Promise<Outgoing> {
  const { message, upgrade } = request;
  const token = searchOf(path).getAll(SHARE_PARAMETER).find(hasShareTokenForm);
  const links = [...(token === undefined ? [] : [token]), ...shareCookies(message.headers.cookie)];
  const access = known(parts, route.name, links) ?? (await find(parts, request, { name: route.name, links }));
  const { method = "GET" } = message;
  const isPage = (method === "GET" || method === "HEAD") && upgrade === undefined;
  // What is public needs no link, so one that has ended does no harm.
  if (token !== undefined && isPage && !(access?.isPublic === true && !opens(access, token))) {
    const redirected = exchanged({ access, route, path, token });
    refund();
    return redirected;
  }
  const grant = await grantOf(parts, request, { access, route, token, links });
  if (access === undefined) throw new Refusal("missing_key", "");
  refund();
  if (access.isSuspended) throw new Refusal("payment_required", `the tenant of this ${access.kind} is suspended`);
  if (access.kind === "app") countForApp(parts, request, access.id);
  const side = request.key === undefined ? "ingress" : "api";
  await takeRequest(parts, request, { owner: request.key ?? access, side });
  const { tenantId, id: machineId } = access;
  const right = { ...grant, what: "the connection", tenantId, machineId };
  await admit(parts, request, { right, owner: access, side });
  const options = {
    raw: rawOf(parts, request),
    path: withoutCredential(withoutCredential(path, SHARE_PARAMETER), KEY_PARAMETER),
    prefix: route.prefix,
    signal: request.presence.signal,
    closing: request.presence.closing,
  };
  return passOn(await FORWARDS[access.kind](parts, request, { access, options }));
}

interface Forwarding {
  readonly access: Access;
  readonly options: Omit<ForwardOptions, "target">;
}

type Forward = (parts: IngressParts, request: OpenRequest, forwarding: Forwarding) => Promise<PassedReply>;

/** Forwards to what has the address, by its kind. */
const FORWARDS: Readonly<Record<HostKind, Forward>> = {
  machine: (parts, _, { access: { tenantId, id }, options }) =>
    forward(parts, { ...options, target: { machine: { tenantId, id }, port: null } }),
  app(parts, request, { access: { id: appId }, options }) {
    let attempts = 0;
    const onAttempt = (machineId: string): void => {
      attempts += 1;
      request.details = { appId, machineId, ...(attempts === 1 ? {} : { attempts }) };
      if (attempts === 2) parts.appCounts.retried(appId);
    };
    return forwardToApp(parts, { ...options, appId, onAttempt });
  },
};

/** The request is the app's in the log and in metrics. */
function countForApp({ appCounts }: IngressParts, request: OpenRequest, appId: string): void {
  request.details = { appId };
  request.onAnswered = ({ status, seconds }) => appCounts.observe(appId, status, seconds);
}

/** A domain of an app, from the table of targets; undefined: the name is a label, or nothing has it. */
function subjectOfDomain({ apps }: IngressParts, name: string): HostSubject | undefined {
  const id = apps.appOf(name);
  return id === undefined ? undefined : { kind: "app", id };
}

/** undefined: the database is to be asked. */
function known(parts: IngressParts, name: string, links: readonly string[]): Access | undefined {
  const { hosts, access: table } = parts;
  const subject = subjectOfDomain(parts, name) ?? hosts.known(name);
  const access = subject && table.known(subject);
  return access === undefined || !hasName(access, name) || mayBeOld(access, links) ? undefined : access;
}

/** Asks the database. Until it is known whose machine it is, the request counts for its address. */
async function find(
  parts: IngressParts,
  request: OpenRequest,
  { name, links }: { readonly name: string; readonly links: readonly string[] },
): Promise<Access | undefined> {
  await beginWork(parts, request, addressCaller(callerOf(parts, request).address));
  const access = await resolve(parts, name);
  return access !== undefined && mayBeOld(access, links) ? await parts.access.findNewer(access) : access;
}

/** undefined: the name leads to nothing. */
async function resolve(parts: IngressParts, name: string): Promise<Access | undefined> {
  const { hosts, access: table } = parts;
  // A domain may change its app, so it is never kept with the names.
  if (name.includes(".")) {
    const subject = subjectOfDomain(parts, name);
    return subject && (await table.find(subject));
  }
  const subject = await hosts.find(name);
  if (subject === undefined) return undefined;
  const access = await table.find(subject);
  if (access !== undefined && hasName(access, name)) return access;
  // The subject is gone or has another name, and another may have this one.
  hosts.forget(name, subject);
  const next = await hosts.find(name);
  if (next === undefined) return undefined;
  return next.id === subject.id ? access : await table.find(next);
}

/** Whether the label leads to it, as far as is known: a branch may have taken it (branches/adopt.ts). */
const hasName = ({ id, hostName }: Access, name: string): boolean =>
  hostName === null || name === hostName || name === id;

async function grantOf(
  parts: IngressParts,
  request: OpenRequest,
  { access, route, token, links }: Links & { readonly access: Access | undefined },
): Promise<Grant> {
  if (access?.isPublic === true) return { ...NOTHING, publicAppId: access.kind === "app" ? access.id : null };
  const { upgrade, url } = request;
  const { headers, method } = request.message;
  const link = links.find((each) => access !== undefined && opens(access, each));
  // Browsers add a cookie by themselves, but not a token in the query.
  const isOtherPage =
    link !== undefined &&
    link !== token &&
    isFromOtherPage({ headers, method, by: route.by, isUpgrade: upgrade !== undefined });
  if (link !== undefined && !isOtherPage) return { ...NOTHING, shareHash: hashedName(link) };
  const inQuery = upgrade === undefined ? null : searchOf(url).get(KEY_PARAMETER);
  const bearer = bearerOf(headers.authorization) ?? inQuery ?? undefined;
  // Any other kind of `Authorization` is for the guest, which this caller cannot reach.
  if (bearer === undefined || !hasKeyForm(bearer))
    throw isOtherPage ? new Refusal("unknown_key", OTHER_PAGE) : new Refusal("missing_key", "");
  const key = await authenticateKey(parts, bearer, guardOf(parts, request));
  request.key = key;
  if (!grants(key.scopes, "machine:exec")) throw new Refusal("missing_scope", "missing scope: machine:exec");
  // The same answer for what another tenant has and for nothing, so that callers cannot tell what exists.
  if (access?.tenantId !== key.tenantId)
    throw new Refusal("not_found", "your tenant has no machine and no app at this address");
  return { ...NOTHING, keyId: key.keyId, expiresAt: key.expiresAt };
}

/** Compares hashes, so that the time it takes reveals nothing about the token. */
const opens = ({ shareHash }: Access, token: string): boolean =>
  hasShareTokenForm(token) && shareHash !== null && hashKey(token).equals(shareHash);

/** A link that another server has just made may not be in memory yet. */
const mayBeOld = (access: Access, links: readonly string[]): boolean =>
  !access.isPublic && links.length > 0 && !links.some((link) => opens(access, link));

interface Exchange {
  readonly access: Access | undefined;
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
