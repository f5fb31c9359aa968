/**
 * How the server and the node are started by `flotilla up`: which program, with which environment, as whom.
 *
 * Always: each gets what it needs and no more: the node never sees the database's address, neither sees an API key; the
 * join token is new at each start and travels only in the environment.
 *
 * The node runs machines as users of their own and so needs root. As anybody else it is started through sudo; where
 * that is not to be had, the error says what to run instead.
 */
import { spawnSync } from "node:child_process";
import { realpathSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { type Environment, settings } from "@flotilla/contract/settings";
import { Failure } from "../failure.ts";

export const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
export const SERVER_MAIN = `${ROOT}server/src/main.ts`;
export const NODE_MAIN = `${ROOT}node/src/main.ts`;

/** What the server's program is read from: this checkout, and Node where that is not in it. */
export function programDirectories(): string[] {
  const checkout = ROOT.replace(/\/$/, "");
  // The links of node_modules may lead out of the checkout.
  const modules = realpathSync(`${checkout}/node_modules`);
  const paths = [checkout, modules, dirname(realpathSync(process.execPath))];
  return paths.filter(
    (path, index) => !paths.some((other, at) => isBelow(path, other) && (path !== other || at < index)),
  );
}

const isBelow = (path: string, other: string): boolean => path === other || path.startsWith(`${other}/`);

/** Never handed to a child that has no use for them. */
const NOT_FOR_SERVER = [settings.apiKey.env, settings.serverUrl.env, settings.nodeId.env];
const NOT_FOR_NODE = [settings.apiKey.env, settings.databaseUrl.env, settings.listen.env];

/** The environment of a program: this one's, less what it must not see, with `set` on top. */
export function childEnvironment(
  environment: Environment,
  program: "server" | "node",
  set: Readonly<Record<string, string>>,
): Record<string, string> {
  const hidden: readonly string[] = program === "server" ? NOT_FOR_SERVER : NOT_FOR_NODE;
  const kept = Object.entries({ ...environment, ...set }).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && (!hidden.includes(entry[0]) || entry[0] in set),
  );
  return Object.fromEntries(kept);
}

export interface Launch {
  readonly command: readonly [program: string, ...operands: string[]];
  readonly environment: Readonly<Record<string, string>>;
  readonly hasOwnSession: boolean;
}

/**
 * Settles how the node will be started; the answer takes its environment and the server's address. Throws a Failure
 * that says what to run when it would need root and cannot get it.
 */
export function nodeLaunch(facts: {
  readonly needsRoot: boolean;
  readonly dataDirectory: string;
  readonly hasTerminal: boolean;
}): (environment: Readonly<Record<string, string>>, serverUrl: string) => Launch {
  const isRoot = !facts.needsRoot || process.getuid?.() === 0;
  if (!isRoot && !canUseSudo(facts.hasTerminal)) {
    throw new Failure(
      "the node runs each machine as a user of its own, which needs root, and sudo is not to be had",
      `run this as root: ${ROOT}flotilla up --data-dir ${facts.dataDirectory}`,
    );
  }
  return (given, serverUrl) => {
    const reached = { ...given, [settings.serverUrl.env]: serverUrl };
    const command = [process.execPath, NODE_MAIN] as const;
    if (isRoot) return { command, environment: reached, hasOwnSession: true };
    const environment = { ...reached, [settings.serverUid.env]: String(process.getuid?.()) };
    const names = [...Object.keys(environment).filter((name) => PRESERVED.test(name)), ...CHANNEL].join(",");
    return { command: ["sudo", "-n", `--preserve-env=${names}`, ...command], environment, hasOwnSession: false };
  };
}

/** Variables that mean something to the node; sudo drops all others. */
const PRESERVED = /^(FLOTILLA_\w+|NODE_\w+|LANG|LC_\w+|TZ|\w+_proxy|\w+_PROXY)$/;
/** With these a Node process finds its channel to its parent. */
const CHANNEL = ["NODE_CHANNEL_FD", "NODE_CHANNEL_SERIALIZATION_MODE"];

/** Without a password, or with one that is asked for now. */
function canUseSudo(hasTerminal: boolean): boolean {
  if (spawnSync("sudo", ["-n", "true"], { stdio: "ignore" }).status === 0) return true;
  return hasTerminal && spawnSync("sudo", ["-v"], { stdio: "inherit" }).status === 0;
}
