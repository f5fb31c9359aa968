/**
 * Registry credentials, from a file in the format of docker's config.json.
 *
 * Always:
 * - the file is read for each pull, so a rotated password works without a restart;
 * - credentials match by exact host and port, so a mirror never gets those of the registry it mirrors;
 * - credentials are never logged and never part of an error.
 *
 * Only `auths` is read. Credential helpers are desktop programs and are not run.
 */
import { open } from "node:fs/promises";
import type { Log } from "@flotilla/base/log";

export interface Credentials {
  /** The value of an Authorization header, or undefined. `host` is as in a URL, with its port. */
  basicFor(host: string): string | undefined;
}

const FILE_BYTES_MAX = 1024 * 1024;
const NONE: Credentials = { basicFor: () => undefined };

/**
 * Throws when the file cannot be used. Tenants see the message, so it contains neither the path nor the
 * content.
 */
export async function readCredentials(path: string | null, log: Log): Promise<Credentials> {
  if (path === null) return NONE;
  let text: string;
  try {
    await using file = await open(path, "r");
    const facts = await file.stat();
    if ((facts.mode & 0o077) !== 0)
      log.warn({ path }, "other users of this host can read the registry credentials; run chmod 600 on the file");
    if (facts.size > FILE_BYTES_MAX) throw new Error("the file is larger than 1 MiB");
    text = await file.readFile("utf8");
  } catch (error) {
    log.error({ path, error }, "the registry credentials cannot be read");
    throw new Error(
      "the node's registry credentials cannot be read; its operator can find the reason in the node's log",
    );
  }
  try {
    return parseCredentials(text);
  } catch {
    // The parser's message would quote the file.
    log.error({ path }, "the registry credentials are not in the format of docker's config.json");
    throw new Error(
      "the node's registry credentials cannot be read; its operator can find the reason in the node's log",
    );
  }
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
