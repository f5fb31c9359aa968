/**
 * How `flotilla up` starts the server and the node: which program, with which environment, as which user.
 *
 * Always:
 * - Each program gets only what it needs: the node never sees the database's address, and neither sees an API
 *   key.
 * - The join token is new at each start and is passed only in the environment.
 *
 * The node runs each machine as its own user and so needs root. Another user starts it through sudo; where
 * sudo is unavailable, the error says what to run instead.
 */
import { spawnSync } from "node:child_process";
import { realpathSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { type Environment, settings } from "@flotilla/contract/settings";
import { Failure } from "../failure.ts";
import { quote } from "./greeting.ts";

export const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
export const SERVER_MAIN = `${ROOT}server/src/main.ts`;
export const INGRESS_MAIN = `${ROOT}server/src/ingress-main.ts`;
export const BACKUP_MAIN = `${ROOT}server/src/backup/main.ts`;
export const SUSPEND_MAIN = `${ROOT}node/src/suspend-main.ts`;
export const E2B_MAIN = `${ROOT}gateway/e2b/src/main.ts`;
export const NODE_MAIN = `${ROOT}node/src/main.ts`;

/** The command that runs one of these programs. */
export const programCommand = (main: string): readonly [program: string, main: string] => [process.execPath, main];

/**
 * The directories that the server's program is read from: this checkout, and Node's where it is elsewhere.
 */
export function programDirectories(): string[] {
  const checkout = ROOT.replace(/\/$/, "");
  // The links in node_modules may lead out of the checkout.
  const modules = realpathSync(`${checkout}/node_modules`);
  const paths = [checkout, modules, dirname(realpathSync(process.execPath))];
  return paths.filter(
    (path, index) => !paths.some((other, at) => isBelow(path, other) && (path !== other || at < index)),
  );
}

const isBelow = (path: string, other: string): boolean => path === other || path.startsWith(`${other}/`);

/** Never passed to a child that does not need it. */
const NOT_FOR_SERVER = [settings.apiKey.env, settings.serverUrl.env, settings.nodeId.env];
const NOT_FOR_INGRESS = [...NOT_FOR_SERVER, settings.joinToken.env];
const NOT_FOR_NODE = [settings.apiKey.env, settings.databaseUrl.env, settings.listen.env];
/** It uses its callers' keys. */
const NOT_FOR_E2B = [settings.apiKey.env, settings.databaseUrl.env, settings.joinToken.env];
const HIDDEN = { server: NOT_FOR_SERVER, ingress: NOT_FOR_INGRESS, node: NOT_FOR_NODE, e2b: NOT_FOR_E2B };

/** The environment of a program: this process's, without what it must not see, plus `set`. */
export function childEnvironment(
  environment: Environment,
  program: keyof typeof HIDDEN,
  set: Readonly<Record<string, string>>,
): Record<string, string> {
  const hidden: readonly string[] = HIDDEN[program];
  const kept = Object.entries({ ...environment, ...set }).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && (!hidden.includes(entry[0]) || entry[0] in set),
  );
  return Object.fromEntries(kept);
}

export interface Launch {
  readonly command: readonly [program: string, ...operands: string[]];
  readonly environment: Readonly<Record<string, string>>;
  readonly hasOwnSession: boolean;
  /** Why it cannot be started now, and what to do; null when nothing is in the way. */
  readonly hindrance?: () => string | null;
}

/**
 * Determines how the node is started. The returned function takes the node's environment and the server's
 * address. Throws a Failure that says what to run when root is needed and unavailable.
 */
export function nodeLaunch(facts: {
  readonly needsRoot: boolean;
  readonly dataDirectory: string;
  readonly hasTerminal: boolean;
}): (environment: Readonly<Record<string, string>>, serverUrl: string) => Launch {
  const isRoot = !facts.needsRoot || process.getuid?.() === 0;
  if (!isRoot && !canUseSudo(facts.hasTerminal)) {
    throw new Failure(
      "the node runs each machine as its own user, which needs root, and sudo is not available",
      `run this as root, with the other settings of this call: ${quote(`${ROOT}flotilla`)} up --data-dir ${quote(facts.dataDirectory)}`,
    );
  }
  return (given, serverUrl) => {
    const reached = { ...given, [settings.serverUrl.env]: serverUrl };
    const command = programCommand(NODE_MAIN);
    if (isRoot) return { command, environment: reached, hasOwnSession: true };
    const environment = { ...reached, [settings.serverUid.env]: String(process.getuid?.()) };
    const names = [...Object.keys(environment).filter((name) => PRESERVED.test(name)), ...CHANNEL].join(",");
    return {
      command: ["sudo", "-n", `--preserve-env=${names}`, ...command],
      environment,
      hasOwnSession: false,
      hindrance,
    };
  };
}

/** sudo remembers a password for some minutes only. */
const hindrance = (): string | null =>
  isSudoOpen()
    ? null
    : "sudo asks for the password again, so it cannot be restarted: stop Flotilla and start it again; machines run on";

/** Variables for the node; sudo drops all others. */
const PRESERVED = /^(FLOTILLA_\w+|NODE_\w+|LANG|LC_\w+|TZ|\w+_proxy|\w+_PROXY)$/;
/** With these a Node process finds its channel to its parent. */
const CHANNEL = ["NODE_CHANNEL_FD", "NODE_CHANNEL_SERIALIZATION_MODE"];

/** Without a password, or with one that can be asked for now. */
function canUseSudo(hasTerminal: boolean): boolean {
  if (isSudoOpen()) return true;
  return hasTerminal && spawnSync("sudo", ["-v"], { stdio: "inherit" }).status === 0;
}

const isSudoOpen = (): boolean => spawnSync("sudo", ["-n", "true"], { stdio: "ignore" }).status === 0;
