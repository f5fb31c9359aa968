/**
 * Which server a command talks to, and with which key.
 *
 * The address: --url, then FLOTILLA_URL, then what `flotilla login` saved, then http://127.0.0.1:8080. The
 * key: --api-key-file, then FLOTILLA_API_KEY, then the saved one, then the admin key of a data directory on
 * this machine.
 *
 * Always: a saved key is sent only to the address it was saved with, and a local admin key only to this
 * machine. Another server never receives a key that is not for it.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ownMessageOf } from "@flotilla/base/errors";
import { type Environment, parseSettings, settings } from "@flotilla/contract/settings";
import { Flotilla, type FlotillaOptions } from "@flotilla/sdk";
import { type ConnectionFacts, fileErrorText, usage } from "./failure.ts";

export interface ConnectionOptions {
  readonly url?: string;
  readonly apiKeyFile?: string;
  readonly dataDir?: string;
}

export interface Connection extends ConnectionFacts {
  readonly key: string | null;
}

interface Saved {
  readonly url: string;
  readonly apiKey: string;
}

/** The file in which `flotilla login` saves address and key. */
export function savedPath(environment: Environment): string {
  const home = environment["XDG_CONFIG_HOME"] || join(environment["HOME"] || "/var/lib", ".config");
  return join(home, "flotilla", "config.json");
}

/**
 * Throws a Failure when a file that was named explicitly cannot be read, when a saved one that is needed
 * cannot be read or has something else in it, and for an address or a key that cannot be one.
 */
export function resolveConnection(environment: Environment, options: ConnectionOptions): Connection {
  const isNamed = options.url !== undefined || Boolean(environment[settings.serverUrl.env]);
  const hasKey = options.apiKeyFile !== undefined || Boolean(environment[settings.apiKey.env]);
  // A saved file that cannot be used does not matter to a call that names both.
  const saved = isNamed && hasKey ? null : readSaved(savedPath(environment), isNamed);
  const url = isNamed || saved === null ? readUrl(environment, options) : saved.url;
  const found = resolveKey(environment, options, url, saved);
  if (found.key !== null) requireKey(found.key, found.keySource ?? "");
  return { url, ...found };
}

/** The address that FLOTILLA_URL or `flotilla login` names; null: neither does. Throws a Failure. */
export function namedUrl(environment: Environment): string | null {
  if (environment[settings.serverUrl.env]) return readUrl(environment, {});
  return readSaved(savedPath(environment), false)?.url ?? null;
}

/** The address given now, else the default; not that of a login. Throws a Failure for what cannot be one. */
export function readUrl(environment: Environment, options: ConnectionOptions): string {
  let url: string;
  try {
    url = parseSettings(["serverUrl"], environment, { url: options.url }).serverUrl;
  } catch (error) {
    throw usage(ownMessageOf(error));
  }
  const source = options.url === undefined ? settings.serverUrl.env : "--url";
  if (!URL.canParse(url))
    throw usage(`${source} is "${url}", which is not an address`, "such as http://127.0.0.1:8080");
  if (hasUser(url))
    throw usage(`${source} holds a user or a password`, "leave it out; `flotilla login` asks for the API key");
  return url;
}

function hasUser(url: string): boolean {
  const { username, password } = new URL(url);
  return username + password !== "";
}

/** Throws a Failure, which does not show it, for what cannot be an API key. `source`: where it came from. */
export function requireKey(key: string, source: string): void {
  const advice = "give the key as `flotilla key create` printed it, on one line";
  if (key === "") throw usage(`there is no API key in ${source}`, advice);
  if (!/^[\x21-\x7e]+$/.test(key))
    throw usage(`the API key from ${source} has a space, a line break or another character that no key has`, advice);
}

function resolveKey(
  environment: Environment,
  options: ConnectionOptions,
  url: string,
  saved: Saved | null,
): Pick<Connection, "key" | "keySource"> {
  if (options.apiKeyFile !== undefined) {
    return { key: readKeyFile(options.apiKeyFile), keySource: options.apiKeyFile };
  }
  const variable = environment[settings.apiKey.env];
  if (variable) return { key: variable.trim(), keySource: settings.apiKey.env };
  if (saved?.url === url) return { key: saved.apiKey, keySource: `\`flotilla login\` (${savedPath(environment)})` };
  if (!isThisMachine(url)) return { key: null, keySource: null };
  const { dataDirectory } = parseSettings(["dataDirectory"], environment, { "data-dir": options.dataDir });
  const path = join(dataDirectory, "admin.key");
  const key = readKey(path);
  return key === null ? { key: null, keySource: null } : { key, keySource: path };
}

/** Whether a new terminal of this user, without settings, finds this server and its admin key. */
export function isFoundByDefault(
  environment: Environment,
  server: { readonly url: string; readonly dataDirectory: string },
): boolean {
  const plain = Object.fromEntries(
    ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"].map((name) => [name, environment[name]]),
  );
  try {
    const { url, key } = resolveConnection(plain, {});
    return url === server.url && key !== null && key === readKey(join(server.dataDirectory, "admin.key"));
  } catch {
    return false;
  }
}

export function openFlotilla(connection: Connection, transport?: FlotillaOptions["fetch"]): Flotilla {
  return new Flotilla({ url: connection.url, apiKey: connection.key ?? undefined, fetch: transport });
}

/** Whether the address can only lead to programs on this machine. */
function isThisMachine(url: string): boolean {
  const { hostname } = new URL(url);
  return hostname === "localhost" || hostname === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(hostname);
}

/** A file that the user named. */
function readKeyFile(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch (error) {
    throw usage(
      `--api-key-file ${path}: ${fileErrorText(error) ?? ownMessageOf(error)}`,
      "name a file whose only line is an API key",
    );
  }
}

function readKey(path: string): string | null {
  try {
    return readFileSync(path, "utf8").trim() || null;
  } catch {
    return null;
  }
}

/**
 * null when there is none. Without its address the call would go to another server, so one that cannot be
 * read is a Failure then.
 */
function readSaved(path: string, isNamed: boolean): Saved | null {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (isNamed || code === "ENOENT" || code === "ENOTDIR") return null;
    const advice = "name the server with --url or FLOTILLA_URL, or run this as the user of `flotilla login`";
    throw usage(`${path}: ${fileErrorText(error) ?? ownMessageOf(error)}`, advice);
  }
  try {
    const { url, apiKey } = JSON.parse(text) as Partial<Saved>;
    const isAddress = typeof url === "string" && /^https?:/.test(url) && URL.canParse(url) && !hasUser(url);
    if (isAddress && typeof apiKey === "string") return { url, apiKey };
  } catch {
    // The same error as for JSON of another kind.
  }
  throw usage(`${path} holds no address and key`, "remove it, or run `flotilla login` again");
}
