/**
 * Which headers of a request are forwarded to a guest, and which of its answer are returned. Pure. Heads are
 * flat lists of names and values in their order, so that repeated headers stay repeated.
 *
 * Always:
 * - hop-by-hop headers are not forwarded (RFC 9110, 7.6.1);
 * - no key or token of Flotilla reaches a guest in the value of a header: the header is dropped, and of
 *   `cookie` only the cookies that contain one;
 * - only a trusted proxy says from where a request came, and for which host;
 * - a guest sets cookies for its own host or path only, and never one of Flotilla's;
 * - a guest that answers under the address of the API (`prefix`) is untrusted there: its pages are sandboxed,
 *   so that their origin is not the API's; headers that affect the whole origin are dropped; its root is the
 *   prefix.
 */
import { holdsOwnCredential, isOwnCredential } from "../auth/keys.ts";
import { SESSION_COOKIES } from "../auth/session-cookie.ts";
import { SHARE_COOKIE } from "./cookies.ts";

type Head = readonly string[];

const HOP_BY_HOP = [
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
];
/** Replaced. This server has answered `expect` itself. */
const REQUEST_REWRITTEN = ["expect", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-prefix"];
/** HTTP/1.0 knows no hosts, and a request to a guest is HTTP/1.1, which asks for one. */
const HOST_OF_NONE = "localhost";
/** Headers that affect a whole origin, or its port. */
const OF_ORIGIN = [
  "alt-svc",
  "clear-site-data",
  "nel",
  "public-key-pins",
  "report-to",
  "reporting-endpoints",
  "service-worker-allowed",
  "strict-transport-security",
  // A browser would ask for a password for the API.
  "www-authenticate",
];
/** Everything but `allow-same-origin` and the top window. */
const SANDBOX = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts";

/** RFC 9110, 5.1 and 5.5. */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
// oxlint-disable-next-line no-control-regex -- the pattern is for control characters
const NO_FIELD_VALUE = /[^\t\x20-\x7e\x80-\xff]/;

const OWN_COOKIES: readonly string[] = [SHARE_COOKIE, ...SESSION_COOKIES];

const BASIC = /^basic +([A-Za-z0-9+/=_-]+) *$/i;
/** The start of a key or token, whose underscore may be escaped. No encoder escapes letters. */
const MAY_HOLD = /sm[bckls][_%]/;
/** Also of what was escaped several times, such as an address in the query of another. */
const ESCAPE = /%(?:25)*([0-9a-f]{2})/gi;

export interface RequestFacts {
  /** The path under which the caller sees the guest's root; empty for a separate host. */
  readonly prefix: string;
  readonly remoteAddress: string;
  /** Whether a trusted proxy sent it. What others say of the way that the request came is not passed on. */
  readonly isFromProxy: boolean;
  readonly isEncrypted: boolean;
  /** The protocol that the caller wants to upgrade to; null: none. */
  readonly upgradeTo: string | null;
  /** Whether the connection may carry another request after this one. */
  readonly isKept: boolean;
}

export function requestHead(raw: Head, method: string, facts: RequestFacts): string[] {
  const out: string[] = [];
  const dropped = new Set([...HOP_BY_HOP, ...REQUEST_REWRITTEN, ...connectionOptions(raw)]);
  if (!facts.isFromProxy) dropped.add("forwarded");
  const last = new Map<string, string>();
  let isFramed = false;
  for (const [name, value] of pairs(raw)) {
    const lower = name.toLowerCase();
    if (lower === "transfer-encoding") {
      out.push("transfer-encoding", "chunked");
      isFramed = true;
    }
    if (lower === "content-length") isFramed = true;
    if (lower !== "cookie" && holdsCredential(value)) continue;
    last.set(lower, lower === "x-forwarded-for" && last.has(lower) ? `${last.get(lower)}, ${value}` : value);
    if (dropped.has(lower)) continue;
    const kept = lower === "cookie" ? withoutOwnCookies(value) : value;
    // An empty value may have a meaning, such as that of `accept-encoding`.
    if (kept !== "" || lower !== "cookie") out.push(name, kept);
  }
  if (!isFramed && ["POST", "PUT", "PATCH"].includes(method)) out.push("content-length", "0");
  const said = (name: string): string | undefined => (facts.isFromProxy ? last.get(name) : undefined);
  const proto = said("x-forwarded-proto") ?? "";
  const before = said("x-forwarded-for");
  out.push("x-forwarded-for", before === undefined ? facts.remoteAddress : `${before}, ${facts.remoteAddress}`);
  out.push("x-forwarded-proto", /^https?$/.test(proto) ? proto : facts.isEncrypted ? "https" : "http");
  const host = said("x-forwarded-host") ?? last.get("host");
  if (host !== undefined) out.push("x-forwarded-host", host);
  if (!last.has("host")) out.push("host", HOST_OF_NONE);
  if (facts.prefix !== "") out.push("x-forwarded-prefix", facts.prefix);
  const { upgradeTo } = facts;
  if (upgradeTo === null || holdsCredential(upgradeTo)) out.push("connection", facts.isKept ? "keep-alive" : "close");
  else out.push("connection", "Upgrade", "upgrade", upgradeTo);
  return out;
}

/** `own`: headers of this server in every answer, which the guest cannot set. */
export function answerHead(raw: Head, prefix: string, own: Readonly<Record<string, string>>, status = 200): string[] {
  const out: string[] = [];
  const dropped = new Set([...HOP_BY_HOP, ...connectionOptions(raw), ...Object.keys(own)]);
  if (prefix !== "") for (const name of OF_ORIGIN) dropped.add(name);
  // Such an answer has no body; a client that trusts a length would wait for one.
  if (status === 204) dropped.add("content-length");
  for (const [name, value] of pairs(raw)) {
    const lower = name.toLowerCase();
    if (dropped.has(lower)) continue;
    if (lower === "set-cookie") {
      const scoped = scopedCookie(value, prefix);
      if (scoped !== undefined) out.push(name, scoped);
    } else if (lower === "location" || lower === "content-location") out.push(name, below(value, prefix));
    else out.push(name, value);
  }
  if (prefix !== "") out.push("content-security-policy", SANDBOX);
  for (const [name, value] of Object.entries(own)) out.push(name, value);
  return out;
}

/** Fields that say how a message is framed, read, routed or authorized: they count only before its body. */
const NEVER_TRAILERS = new Set([
  ...HOP_BY_HOP,
  ...REQUEST_REWRITTEN,
  ...["content-length", "content-encoding", "content-range", "content-type", "host", "location"],
  ...["authorization", "cookie", "set-cookie", "forwarded", "www-authenticate", "cache-control", "vary"],
]);

/** The fields after a body that are passed on, in both directions. */
export const trailersOf = (raw: Head): [string, string][] =>
  [...pairs(raw)]
    .filter(([name, value]) => TOKEN.test(name) && !NO_FIELD_VALUE.test(value) && !holdsCredential(value))
    .filter(([name]) => !NEVER_TRAILERS.has(name.toLowerCase()))
    .map(([name, value]) => [name, value]);

/**
 * Why an answer of a guest cannot be forwarded; null: it can. Its head was parsed leniently, so it may
 * contain what the head of our answer must not: characters that end a line, or two lengths, of which the
 * caller might use the other one.
 */
export function faultOfAnswer(raw: Head): string | null {
  const lengths: string[] = [];
  for (const [name, value] of pairs(raw)) {
    if (!TOKEN.test(name)) return `it has a header named ${JSON.stringify(name.slice(0, 64))}`;
    if (NO_FIELD_VALUE.test(value)) return `its header ${name} has control characters`;
    const lower = name.toLowerCase();
    if (lower === "transfer-encoding" && value.trim().toLowerCase() !== "chunked")
      return `its transfer-encoding is ${JSON.stringify(value.slice(0, 64))}`;
    if (lower === "content-length" && !/^\d{1,15}$/.test(value.trim()))
      return `its content-length is ${JSON.stringify(value.slice(0, 64))}`;
    if (lower === "transfer-encoding" || lower === "content-length") lengths.push(name);
  }
  return lengths.length > 1 ? `it gives its length twice (${lengths.join(", ")})` : null;
}

/**
 * A URL without the named parameter where it holds a key or token of Flotilla, however escaped; every other
 * byte stays.
 */
export function withoutCredential(url: string, name: string): string {
  const at = url.indexOf("?");
  if (at < 0) return url;
  const parts = url.slice(at + 1).split("&");
  const kept = parts.filter((part) => !isOwnCredential(new URLSearchParams(part).get(name) ?? undefined));
  if (kept.length === parts.length) return url;
  return kept.length === 0 ? url.slice(0, at) : `${url.slice(0, at)}?${kept.join("&")}`;
}

function withoutOwnCookies(value: string): string {
  const isOwn = holdsCredential(value) ? holdsCredential : () => false;
  return value
    .split(";")
    .map((part) => part.trim())
    .filter((part) => part !== "" && !OWN_COOKIES.includes(part.split("=", 1)[0] ?? "") && !isOwn(part))
    .join("; ");
}

/**
 * Whether a header's value contains a key or token of Flotilla: as it is, percent-encoded as in cookies and
 * addresses, or as the name or password of `Basic`. For nearly every value it costs one search.
 */
function holdsCredential(value: string): boolean {
  const basic = BASIC.exec(value)?.[1];
  const text = basic === undefined ? value : Buffer.from(basic, "base64").toString("latin1");
  if (!MAY_HOLD.test(text)) return false;
  return holdsOwnCredential(
    text.replaceAll(ESCAPE, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 16))),
  );
}

/**
 * undefined: a cookie that a guest must not set. Without `Domain` it belongs to the host that set it only.
 */
function scopedCookie(value: string, prefix: string): string | undefined {
  const [pair = "", ...attributes] = value.split(";");
  // Browsers send back a cookie that begins with `=` without that sign.
  if (OWN_COOKIES.includes(pair.replace(/^\s*=/, "").split("=", 1)[0]?.trim() ?? "")) return undefined;
  const path = attributes.find((attribute) => /^\s*path\s*=/i.test(attribute));
  const kept = attributes.filter((attribute) => !/^\s*(domain|path)\s*(=|$)/i.test(attribute));
  const asked = path?.slice(path.indexOf("=") + 1).trim() ?? "";
  // Without a path the browser uses the directory of the request, which is below the prefix anyway.
  const scope = asked.startsWith("/") ? `${prefix}${asked}` : prefix === "" ? "" : `${prefix}/`;
  return [pair, ...kept, ...(scope === "" ? [] : [` Path=${scope}`])].join(";");
}

/** A path from the guest's root, as the caller sees it. */
const below = (location: string, prefix: string): string =>
  location.startsWith("/") && !location.startsWith("//") ? prefix + location : location;

function connectionOptions(raw: Head): string[] {
  const options: string[] = [];
  for (const [name, value] of pairs(raw)) {
    if (name.toLowerCase() === "connection") options.push(...value.split(",").map((word) => word.trim().toLowerCase()));
  }
  // A caller that names these would remove what the guest needs to understand the request.
  return options.filter((word) => !["host", "content-length", "authorization", "cookie"].includes(word));
}

function* pairs(raw: Head): Generator<readonly [string, string]> {
  for (let at = 0; at + 1 < raw.length; at += 2) yield [raw[at] ?? "", raw[at + 1] ?? ""];
}
