/**
 * The parsers of settings' values: addresses, networks, pairs, choices. Pure.
 *
 * Always: a parser throws an Error that says what was expected.
 */
import { mirrorBase, parseRegistry } from "./registries.ts";

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/** Parses `host:port` or `[v6]:port`; port 0 lets the system choose. */
export function parseListenAddress(value: string): ListenAddress {
  const match = /^(\[[0-9a-fA-F:.]+\]|[^:[\]]+):(\d{1,5})$/.exec(value);
  const port = Number(match?.[2]);
  if (match?.[1] === undefined || port > 65_535) throw new Error("expected host:port, such as 127.0.0.1:8080");
  return { host: match[1].replace(/^\[|\]$/g, ""), port };
}

/** An address without a path, `https://host` or `http://host:port`; a trailing slash is removed. */
export function parseOrigin(value: string): string {
  const url = URL.canParse(value) ? new URL(value) : null;
  const isOrigin = url !== null && /^https?:$/.test(url.protocol) && `${url.origin}/` === url.href;
  if (!isOrigin) throw new Error("expected http://host:port or https://host, without a path");
  return url.origin;
}

/** A ratio above 0; null when it is not set. */
export function parseRatio(value: string | undefined): number | null {
  if (value === undefined) return null;
  const ratio = Number(value);
  if (!/^\d+(\.\d+)?$/.test(value) || ratio <= 0 || ratio > 1_000_000)
    throw new Error("expected a number above 0, such as 1.5");
  return ratio;
}

/** `a=b,c=d` as pairs; used for registry mirrors (`docker.io=http://127.0.0.1:5000`). */
export function parsePairs(value: string): ReadonlyMap<string, string> {
  const pairs = new Map<string, string>();
  for (const part of value.split(",").filter((item) => item.trim() !== "")) {
    const at = part.indexOf("=");
    if (at < 1 || at === part.length - 1) throw new Error("expected name=value pairs separated by commas");
    pairs.set(part.slice(0, at).trim(), part.slice(at + 1).trim());
  }
  return pairs;
}

/** `registry=mirror` pairs. */
export function parseMirrors(value: string): ReadonlyMap<string, string> {
  const expected = "expected registry=http://host:port or registry=host";
  const mirrors = new Map<string, string>();
  for (const [registry, mirror] of parsePairs(value)) {
    // Another scheme, or a slash too few: as a URL that would be a host of this name.
    const isAddress = !/^[a-z][a-z0-9+.-]*:\//i.test(mirror.replace(/^https?:\/\//, ""));
    if (!isAddress || !URL.canParse(mirrorBase(mirror))) throw new Error(expected);
    mirrors.set(registryOr(registry, expected), mirror);
  }
  return mirrors;
}

/** Registries, each one host with or without a port, separated by commas. */
export const parseRegistries = (value: string): readonly string[] =>
  parseList(value).map((item) =>
    registryOr(item, "expected registries such as registry.lan:5000, separated by commas"),
  );

function registryOr(text: string, expected: string): string {
  try {
    return parseRegistry(text);
  } catch {
    throw new Error(`${expected}; got ${text}`);
  }
}

/** Addresses and networks: `10.0.0.1`, `10.0.0.0/8`, `fd00::/8`. The value `none` is the empty list. */
export function parseNetworks(value: string): readonly string[] {
  const networks = parseList(value);
  if (networks.length === 1 && networks[0] === "none") return [];
  for (const network of networks) {
    const [, address = "", prefix] = /^([0-9a-fA-F.:]+)(?:\/(\d{1,3}))?$/.exec(network) ?? [];
    const isV6 = address.includes(":");
    const isGood = URL.canParse(isV6 ? `http://[${address}]/` : `http://${address}/`) && (isV6 || IPV4.test(address));
    if (!isGood || Number(prefix ?? 0) > (isV6 ? 128 : 32))
      throw new Error(`expected addresses or networks such as 10.0.0.0/8, separated by commas; got ${network}`);
  }
  return networks;
}

/**
 * What the word `private` means: the private addresses of IPv4 (RFC 1918), and those shared by customers of a
 * provider (RFC 6598).
 */
const PRIVATE_NETWORKS = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"] as const;

/** Addresses and networks as parseNetworks takes them, of which one may be the word `private`. */
export const parseBlockedNetworks = (value: string): readonly string[] =>
  parseNetworks(
    parseList(value)
      .flatMap((item) => (item === "private" ? PRIVATE_NETWORKS : [item]))
      .join(","),
  );

/** Without zeros in front, which make a number octal in a URL, and which Node refuses in an address. */
const IPV4 = /^(0|[1-9]\d{0,2})(\.(0|[1-9]\d{0,2})){3}$/;

/** Items separated by commas. */
export const parseList = (value: string): readonly string[] =>
  value
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== "");

/** Parses one of the choices; `fallback` when nothing is given. */
export const choice =
  <const T extends string>(choices: readonly T[], fallback: T) =>
  (value: string | undefined): T => {
    const found = choices.find((item) => item === (value ?? fallback));
    if (found === undefined) throw new Error(`expected one of ${choices.join(", ")}`);
    return found;
  };

/** A registry's address, without `/` at its end. */
export function parseRegistryUrl(value: string): string {
  const expected = "expected embedded, none or an address such as https://registry.example.com/flotilla";
  if (!URL.canParse(value)) throw new Error(expected);
  const url = new URL(value);
  const isLoopback = /^(127\.\d+\.\d+\.\d+|\[::1\]|localhost)$/.test(url.hostname);
  if (url.protocol !== "https:" && !(url.protocol === "http:" && isLoopback))
    throw new Error(`${expected}, with https`);
  if (url.username !== "" || url.password !== "")
    throw new Error("put the user name and the password into FLOTILLA_REGISTRY_CREDENTIALS");
  if (url.search !== "" || url.hash !== "") throw new Error(expected);
  const path = url.pathname.replace(/\/+$/, "");
  if (path !== "" && !/^(\/[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*)+$/.test(path))
    throw new Error("its path is not a repository's: lower-case letters and digits, with '.', '_' or '-' between them");
  return `${url.origin}${path}`;
}
