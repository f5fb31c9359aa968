/**
 * The node agent's settings: flags and environment → one frozen, checked object.
 *
 * The only file of the node agent that reads the process's environment. What the settings mean stands in
 * contract/src/settings.ts; this file adds what follows from them: the paths below the data directory.
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
  "driver",
  "accelerator",
  "nodeId",
  "serverUrl",
  "nodeSocket",
  "joinToken",
  "serverUid",
] as const;

export type NodeConfig = ReturnType<typeof parseNodeConfig>;

/** Throws an Error for people at the first bad value. */
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
export function readNodeConfig(): NodeConfig {
  return parseNodeConfig(process.env, flagsOf(process.argv.slice(2)));
}

/** A host name as a node's id: what the id may not hold becomes `-`. */
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
