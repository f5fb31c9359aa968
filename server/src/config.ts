/**
 * The server's settings, parsed once from flags and environment into a frozen object.
 *
 * Always: no other file of the server reads the environment or the command line. contract/src/settings.ts
 * documents each setting.
 */
import { parseArgs } from "node:util";
import { ownMessageOf } from "@flotilla/base/errors";
import { parseSettings, type SettingName, type SettingValue, settings } from "@flotilla/contract/settings";

const NAMES = [
  "listen",
  "dataDirectory",
  "databaseUrl",
  "plansUrl",
  "portsPerMachine",
  "invoiceGraceHours",
  "publicUrl",
  "machinesUrl",
  "logLevel",
  "joinToken",
  "cpuOvercommit",
  "memoryOvercommit",
  "allowedRegistries",
  "registryMirrors",
  "insecureRegistries",
  "nodeListen",
  "nodeAddresses",
  "trustedProxies",
  "connectionsPerAddress",
  "stopDelaySeconds",
  "expectsNode",
  "auditDays",
  "webhookNetworks",
  "webhookHttp",
  "registry",
  "registryCredentials",
] as const satisfies readonly SettingName[];

/** Settings of the ingress as its own process. */
const INGRESS_NAMES = [
  "listen",
  "nodeListen",
  "nodeAddresses",
  "databaseUrl",
  "publicUrl",
  "machinesUrl",
  "logLevel",
  "trustedProxies",
  "connectionsPerAddress",
  "stopDelaySeconds",
] as const satisfies readonly SettingName[];

type SettingsOf<Names extends readonly SettingName[]> = { readonly [Name in Names[number]]: SettingValue<Name> };
export type ServerSettings = SettingsOf<typeof NAMES>;
export type IngressSettings = SettingsOf<typeof INGRESS_NAMES>;

/**
 * Reads `process.env` and the given arguments. Throws an Error for users at the first bad value or unknown
 * flag.
 */
export const readSettings = (argv: readonly string[]): ServerSettings => read(NAMES, argv);
/** The same, for the ingress. */
export const readIngressSettings = (argv: readonly string[]): IngressSettings => read(INGRESS_NAMES, argv);

function read<const Names extends readonly SettingName[]>(names: Names, argv: readonly string[]): SettingsOf<Names> {
  const options: Record<string, { type: "string" }> = {};
  for (const name of names) {
    const declared = settings[name];
    if ("flag" in declared && declared.flag !== undefined) options[declared.flag] = { type: "string" };
  }
  const { values } = parseArgs({ args: [...argv], options, strict: true, allowPositionals: false });
  return parseSettings(names, process.env, values as Record<string, string | undefined>);
}

const EXIT_USAGE = 2;

/**
 * What `read` returns. A setting that cannot be read ends the process, which is `flotilla <program>`, as for
 * every command.
 */
export function settingsOrExit<T>(program: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    process.stderr.write(`flotilla ${program}: ${ownMessageOf(error)}\n`);
    process.exit(EXIT_USAGE);
  }
}

/** Settings of `flotilla backup` and `flotilla restore`, with their own options. */
export interface OperatorSettings extends SettingsOf<typeof OPERATOR_NAMES> {
  /** The verb, then the file. */
  readonly operands: readonly string[];
  /** Where a backup is written; `-`: to standard output. */
  readonly to: string | undefined;
  /** The only cluster that may be saved; undefined: whichever is there. */
  readonly cluster: string | undefined;
  readonly revokesKeys: boolean;
}

const OPERATOR_NAMES = ["dataDirectory", "databaseUrl"] as const satisfies readonly SettingName[];

/** Throws an Error for users at the first bad value or unknown flag. */
export function readOperatorSettings(argv: readonly string[]): OperatorSettings {
  const { values, positionals } = parseArgs({
    args: [...argv],
    options: {
      "data-dir": { type: "string" },
      to: { type: "string" },
      cluster: { type: "string" },
      "revoke-keys": { type: "boolean" },
    },
    strict: true,
    allowPositionals: true,
  });
  const flags = { "data-dir": values["data-dir"] };
  return {
    ...parseSettings(OPERATOR_NAMES, process.env, flags),
    operands: positionals,
    to: values.to,
    cluster: values.cluster,
    revokesKeys: values["revoke-keys"] === true,
  };
}
