/**
 * The node agent's settings: flags and environment → one frozen, validated object.
 *
 * The only file of the node agent that reads the process's environment. contract/src/settings.ts defines the
 * settings; this file adds the paths below the data directory.
 */
import { hostname } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { type Environment, parseSettings, settings } from "@flotilla/contract/settings";

const NAMES = [
  "dataDirectory",
  "cacheDirectory",
  "logLevel",
  "allowedRegistries",
  "registryMirrors",
  "insecureRegistries",
  "registryCredentials",
  "imageCacheGb",
  "publishOnLoopback",
  "blockedNetworks",
  "driver",
  "accelerator",
  "nodeId",
  "serverUrl",
  "nodeSocket",
  "joinToken",
  "linkListen",
  "serverUid",
] as const;

export type NodeConfig = ReturnType<typeof parseNodeConfig>;

/** Throws an Error with a user-facing message at the first invalid value. */
function parseNodeConfig(environment: Environment, flags: Environment) {
  const settings = parseSettings(NAMES, environment, flags);
  const nodeDirectory = join(resolve(settings.dataDirectory), "node");
  return Object.freeze({
    ...settings,
    nodeId: settings.nodeId ?? nameFromHost(hostname()),
    nodeDirectory,
    machinesDirectory: join(nodeDirectory, "machines"),
    preparedDirectory: join(nodeDirectory, "prepared"),
    imagesDirectory: join(nodeDirectory, "images"),
    temporaryDirectory: join(nodeDirectory, "temporary"),
  });
}

/** This process's settings: `--name value` and `--name=value` among the arguments, then the environment. */
export function readNodeConfig(flags: readonly string[] = process.argv.slice(2)): NodeConfig {
  return parseNodeConfig(process.env, flagsOf(flags));
}

/** Converts a host name to a node id: replaces characters that an id may not contain by `-`. */
function nameFromHost(name: string): string {
  const clean = name.replace(/[^A-Za-z0-9._-]/g, "-").replace(/^[^A-Za-z0-9]+/, "");
  return clean.slice(0, 128) || "node";
}

function flagsOf(argv: readonly string[]): Environment {
  const options: Record<string, { type: "string" }> = {};
  for (const name of NAMES) {
    const declared = settings[name];
    if ("flag" in declared) options[declared.flag] = { type: "string" };
  }
  const { values } = parseArgs({ args: [...argv], options, strict: true, allowPositionals: false });
  return values;
}
