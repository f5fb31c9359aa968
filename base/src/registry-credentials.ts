/**
 * Credentials of registries in the format of docker's config.json. Pure.
 *
 * Always: credentials match by exact host and port, so a mirror never gets those of the registry it mirrors.
 *
 * Only `auths` is read. Credential helpers are desktop programs and are not run.
 */

export interface Credentials {
  /** The value of an Authorization header, or undefined. `host` is as in a URL, with its port. */
  basicFor(host: string): string | undefined;
}

/** Throws when the text is not a JSON object with `auths`. */
export function parseCredentials(text: string): Credentials {
  const document: unknown = JSON.parse(text);
  const auths = objectOf(objectOf(document)?.["auths"]);
  if (auths === undefined) throw new Error("no auths");
  const headers = new Map<string, string>();
  for (const [key, value] of Object.entries(auths)) {
    const entry = objectOf(value);
    const pair = entry === undefined ? undefined : pairOf(entry);
    if (pair !== undefined) headers.set(hostOf(key), `Basic ${Buffer.from(pair).toString("base64")}`);
  }
  return { basicFor: (host) => headers.get(hostOf(host)) };
}

function pairOf(entry: Record<string, unknown>): string | undefined {
  if (typeof entry["auth"] === "string") {
    const pair = Buffer.from(entry["auth"], "base64").toString("utf8");
    return pair.includes(":") ? pair : undefined;
  }
  if (typeof entry["username"] !== "string" || typeof entry["password"] !== "string") return undefined;
  return `${entry["username"]}:${entry["password"]}`;
}

/** `https://index.docker.io/v1/`, `docker.io` and `registry-1.docker.io` are the same registry. */
function hostOf(key: string): string {
  const host = key
    .replace(/^https?:\/\//, "")
    .replace(/\/.*$/s, "")
    .toLowerCase();
  return host === "docker.io" || host === "index.docker.io" ? "registry-1.docker.io" : host;
}

function objectOf(value: unknown): Record<string, unknown> | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : undefined;
}
