/**
 * Which image registries are allowed: the operator's list, and what an entry of it allows.
 *
 * An entry is `*` (every registry), `*.suffix` (every host below it) or `host[:port]`; `host:*` is every
 * port. Without a port it is the default one.
 *
 * Always: `*`, `*.suffix` and the entries of DEFAULT_REGISTRIES allow public addresses only. Only an entry
 * with a full host, written by the operator, may have a private address, because only then did the operator
 * name that host. Mirrors and insecure registries are also written by the operator, and count as such
 * entries.
 *
 * Pure. The server uses it to refuse early; the node, which connects, decides.
 */

/** `listed`: at any address. `public`: at public addresses only. null: not allowed. */
export type RegistryGrant = "listed" | "public" | null;

export interface RegistryRules {
  /** Entries as the operator wrote them; null: DEFAULT_REGISTRIES. */
  readonly allowed: readonly string[] | null;
  /** Registry → base URL of its mirror. */
  readonly mirrors: ReadonlyMap<string, string>;
  readonly insecure: readonly string[];
}

/** Well-known public registries. */
export const DEFAULT_REGISTRIES: readonly string[] = [
  "docker.io",
  "ghcr.io",
  "quay.io",
  "gcr.io",
  "*.gcr.io",
  "*.pkg.dev",
  "public.ecr.aws",
  "registry.k8s.io",
  "mcr.microsoft.com",
  "registry.gitlab.com",
  "registry.access.redhat.com",
  "registry.fedoraproject.org",
  "lscr.io",
  "nvcr.io",
  "cgr.dev",
];

interface Entry {
  /** In lower case; with `*.` in front for every host below it, or `*`. */
  readonly host: string;
  /** null: the default one; `*`: any. */
  readonly port: string | null;
}

const ENTRY =
  /^(\*|(?:\*\.)?[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*|\[[0-9a-f:]+\])(?::(\d{1,5}|\*))?$/;
const DOCKER_HUB_NAMES = new Set(["docker.io", "index.docker.io", "registry-1.docker.io"]);

/** Parses the operator's list: entries separated by commas. Throws an Error that says what was expected. */
export function parseAllowedRegistries(text: string): readonly string[] {
  const entries = text
    .split(",")
    .map((item) => item.trim().toLowerCase())
    .filter((item) => item !== "");
  for (const entry of entries) parseEntry(entry);
  return entries;
}

function parseEntry(text: string): Entry {
  const [, host, port] = ENTRY.exec(text) ?? [];
  if (host === undefined || (port !== undefined && port !== "*" && Number(port) > 65_535))
    throw new Error("expected registries separated by commas: *, *.example.com, ghcr.io, 127.0.0.1:5000, host:*");
  return { host: DOCKER_HUB_NAMES.has(host) ? "docker.io" : host, port: port ?? null };
}

/**
 * A registry as references name it: in lower case, docker.io by its usual name. Throws an Error for a pattern
 * or an address.
 */
export function parseRegistry(text: string): string {
  const { host, port } = parseEntry(text.toLowerCase());
  if (host.startsWith("*") || port === "*") throw new Error("expected one host, with or without a port");
  return port === null ? host : `${host}:${port}`;
}

/** The parsed list, for lookups. `registry` is `host` or `host:port`, as in references and URLs. */
export class RegistryList {
  readonly #listed: readonly Entry[];
  readonly #public: readonly Entry[];
  /**
   * Named by the operator in other settings: registries that have a mirror, the mirrors, and insecure ones.
   */
  readonly #named: ReadonlySet<string>;

  constructor({ allowed, mirrors, insecure }: RegistryRules) {
    const entries = (allowed ?? DEFAULT_REGISTRIES).map(parseEntry);
    const isListed = ({ host }: Entry): boolean => allowed !== null && !host.startsWith("*");
    this.#listed = entries.filter(isListed);
    this.#public = entries.filter((entry) => !isListed(entry));
    this.#named = new Set([...mirrors.keys(), ...[...mirrors.values()].map(authorityOfMirror), ...insecure]);
  }

  grant(registry: string): RegistryGrant {
    if (this.#named.has(registry)) return "listed";
    const [, host = registry, port = null] = /^(.*?)(?::(\d+))?$/.exec(registry) ?? [];
    const matches = (entry: Entry): boolean => fitsHost(entry.host, host) && fitsPort(entry, port);
    if (this.#listed.some(matches)) return "listed";
    return this.#public.some(matches) ? "public" : null;
  }
}

function fitsHost(pattern: string, host: string): boolean {
  if (pattern === "*") return true;
  return pattern.startsWith("*.") ? host.endsWith(pattern.slice(1)) : host === pattern;
}

function fitsPort(entry: Entry, port: string | null): boolean {
  if (entry.port === "*" || entry.host === "*") return true;
  return entry.port === port || (entry.port === null && port === "443");
}

/** A mirror's base URL; without a scheme it is https. */
export function mirrorBase(mirror: string): string {
  const base = mirror.replace(/\/+$/, "");
  return /^https?:\/\//.test(base) ? base : `https://${base}`;
}

function authorityOfMirror(mirror: string): string {
  return authorityOf(new URL(mirrorBase(mirror)));
}

/**
 * `host` for https on its default port, else `host:port`: two URLs have the same authority exactly when they
 * reach the same server.
 */
export function authorityOf(url: URL): string {
  return url.protocol === "http:" && url.port === "" ? `${url.hostname}:80` : url.host;
}

/** The refusal of a registry that is not allowed. */
export function registryRefusal(registry: string): string {
  return (
    `images of registry ${registry} are not allowed here: use another registry, ` +
    "or ask the operator to add it to the setting allowed-registries (FLOTILLA_ALLOWED_REGISTRIES)"
  );
}
