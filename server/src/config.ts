/**
 * The server's settings, parsed once from flags and environment into a frozen object.
 *
 * Always: no other file of the server reads the environment or the command line. contract/src/settings.ts documents
 * each setting.
 */
import { parseArgs } from "node:util";
import { parseSettings, type SettingName, type SettingValue, settings } from "@flotilla/contract/settings";

const NAMES = [
  "listen",
  "dataDirectory",
  "databaseUrl",
  "plansUrl",
  "portsPerMachine",
  "publicUrl",
  "appsUrl",
  "logLevel",
  "joinToken",
  "allowedRegistries",
  "registryMirrors",
  "insecureRegistries",
  "nodeListen",
  "trustedProxies",
  "connectionsPerAddress",
  "expectsNode",
] as const satisfies readonly SettingName[];

export type ServerSettings = { readonly [Name in (typeof NAMES)[number]]: SettingValue<Name> };

/** Reads `process.env` and the given arguments. Throws an Error for users at the first bad value or unknown flag. */
export function readSettings(argv: readonly string[]): ServerSettings {
  const options: Record<string, { type: "string" }> = {};
  for (const name of NAMES) {
    const declared = settings[name];
    if ("flag" in declared && declared.flag !== undefined) options[declared.flag] = { type: "string" };
  }
  const { values } = parseArgs({ args: [...argv], options, strict: true, allowPositionals: false });
  return parseSettings(NAMES, process.env, values as Record<string, string | undefined>);
}
