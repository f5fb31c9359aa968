/**
 * Sends one HTTP request to a server whose addresses were checked first.
 *
 * Always:
 * - the name is resolved once, and the connection goes to one of the checked addresses, so a DNS answer that
 *   changes after the check has no effect;
 * - the host is normalised as in any URL (`2130706433` and `0x7f.1` are 127.0.0.1) before it is checked;
 * - redirects are returned like any other answer; the caller decides about them;
 * - a server that switches to another protocol, or announces an answer without end, has failed: a promise
 *   settles in any case;
 * - TLS is verified against the URL's host.
 */
import { lookup } from "node:dns/promises";
import { type Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { type Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { type BlockList, isIP, type LookupFunction } from "node:net";
import { networkInterfaces } from "node:os";
import { orAborted } from "./abort.ts";
import { isPublicAddress } from "./public-address.ts";

/** Resolves a host name with the system's resolver. Rejects with its error. */
export type Resolve = (hostname: string) => Promise<readonly ResolvedAddress[]>;

export interface ResolvedAddress {
  readonly address: string;
  readonly family: number;
}

export const systemResolve: Resolve = (hostname) => lookup(hostname, { all: true });

export interface CheckedRequest {
  /** http or https, without a user name. */
  readonly url: URL;
  /** Default: GET. */
  readonly method?: "GET" | "POST";
  readonly headers: Readonly<Record<string, string>>;
  /** Default: none. */
  readonly body?: string;
  readonly allowedAddresses: AllowedAddresses;
  readonly agents: { readonly http: HttpAgent; readonly https: HttpsAgent };
  readonly resolve: Resolve;
  readonly signal: AbortSignal;
}

/**
 * `public`: only addresses of the public internet, except this host's own. A list: also the addresses in it.
 * `any`: every address the name resolves to.
 */
export type AllowedAddresses = "any" | "public" | BlockList;

/** Answers of status 1xx before the final one. Servers send one or two. */
const INTERIM_ANSWERS_MAX = 16;

/** The name resolves only to addresses that the request may not use. */
export class AddressRefused extends Error {}

/**
 * Returns the answer with its body unread. Rejects with AddressRefused, the signal's reason or the system's
 * error.
 */
export async function sendChecked(options: CheckedRequest): Promise<IncomingMessage> {
  const { url, method = "GET", headers, body, agents, signal } = options;
  const addresses = await checkedAddresses(options);
  signal.throwIfAborted();
  const common = { method, headers, signal, lookup: pinnedTo(addresses) };
  const sent =
    url.protocol === "https:"
      ? httpsRequest(url, { ...common, agent: agents.https })
      : httpRequest(url, { ...common, agent: agents.http });
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  sent.once("response", resolve).on("error", reject);
  // Also after an answer of status 101, which comes with neither of the two.
  sent.once("close", () => reject(new Error("the connection ended before an answer")));
  let interim = 0;
  sent.on("information", () => {
    interim += 1;
    if (interim > INTERIM_ANSWERS_MAX) sent.destroy(new Error("the answer was announced again and again"));
  });
  sent.end(body);
  return await promise;
}

async function checkedAddresses(options: CheckedRequest): Promise<readonly ResolvedAddress[]> {
  const host = options.url.hostname.replace(/^\[|\]$/g, "");
  const family = isIP(host);
  const found =
    family === 0 ? await orAborted(options.resolve(host), options.signal) : [{ address: host, family } as const];
  const { allowedAddresses } = options;
  if (allowedAddresses === "any") return found;
  const own = ownAddresses();
  const allowed = found.filter(
    ({ address }) => (isPublicAddress(address) && !own.has(address)) || isListed(address, allowedAddresses),
  );
  if (allowed.length > 0) return allowed;
  const shown = found.map(({ address }) => address).join(", ");
  throw new AddressRefused(
    `${host} resolves to ${shown || "no address"}; only public addresses other than this host's are allowed`,
  );
}

function isListed(address: string, list: "public" | BlockList): boolean {
  const family = isIP(address);
  return list !== "public" && family !== 0 && list.check(address, family === 6 ? "ipv6" : "ipv4");
}

function ownAddresses(): ReadonlySet<string> {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return new Set(all.map(({ address }) => address));
}

/** Replaces the resolution that the connection would do. */
function pinnedTo(addresses: readonly ResolvedAddress[]): LookupFunction {
  return (_hostname, options, done) => {
    const [first] = addresses;
    if (first === undefined) done(new Error("the name has no address"), "");
    else if (options.all === true) done(null, [...addresses]);
    else done(null, first.address, first.family);
  };
}
