/**
 * Credentials of registries, from a file in the form of docker's config.json.
 *
 * Always: read anew for each pull, so that a rotated password works without a restart; matched by exact host and port,
 * so that a mirror never gets the credentials of the registry it stands for; never logged, never part of an error.
 * Only `auths` is read. Credential helpers are programs of a user's desktop and are not run.
 */
import { open } from "node:fs/promises";
import type { Log } from "@flotilla/base/log";

export interface Credentials {
  /** The value of an Authorization header, or undefined. `host` as in a URL, with port. */
  basicFor(host: string): string | undefined;
}

const FILE_BYTES_MAX = 1024 * 1024;
const NONE: Credentials = { basicFor: () => undefined };

/** Throws when the file cannot be used; the text holds no path and no content, for tenants see it. */
export async function readCredentials(path: string | null, log: Log): Promise<Credentials> {
  if (path === null) return NONE;
  let text: string;
  try {
    await using file = await open(path, "r");
    const facts = await file.stat();
    if ((facts.mode & 0o077) !== 0)
      log.warn({ path }, "the registry credentials can be read by other users of this host; chmod 600 it");
    if (facts.size > FILE_BYTES_MAX) throw new Error("the file is larger than 1 MiB");
    text = await file.readFile("utf8");
  } catch (error) {
    log.error({ path, error }, "cannot read the registry credentials");
    throw new Error("the node's registry credentials cannot be read; its operator finds the reason in the node's log");
  }
  try {
    return parseCredentials(text);
  } catch {
    // The parser's own message would quote the file.
    log.error({ path }, "the registry credentials are not in the form of docker's config.json");
    throw new Error("the node's registry credentials cannot be read; its operator finds the reason in the node's log");
  }
}

/** Throws when it is not a JSON object with `auths`. */
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

/** `https://index.docker.io/v1/`, `docker.io` and `registry-1.docker.io` are one. */
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
