/**
 * The settings of `flotilla up`: flags and environment, read once.
 *
 * Always: flags are turned into variables here, so that the programs started by `up` get every setting the
 * same way.
 */
import { resolve } from "node:path";
import { ownMessageOf } from "@flotilla/base/errors";
import { type Environment, parseSettings, type Setting, type SettingName, settings } from "@flotilla/contract/settings";
import { usage } from "../failure.ts";

export type UpConfig = ReturnType<typeof readConfig>;

/** Throws a Failure at the first bad value. `options` are commander's: flags in camel case. */
export function readConfig(environment: Environment, options: Readonly<Record<string, string | undefined>>) {
  const merged: Record<string, string | undefined> = { ...environment };
  // Messages name the flag that the user gave.
  const flags: Record<string, string | undefined> = {};
  const names: SettingName[] = [];
  for (const [name, setting] of Object.entries<Setting<unknown>>(settings)) {
    if (!setting.programs.includes("up")) continue;
    names.push(name as SettingName);
    if (setting.flag === undefined) continue;
    flags[setting.flag] = options[setting.flag.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase())];
    if (flags[setting.flag] !== undefined) merged[setting.env] = flags[setting.flag];
  }
  try {
    const parsed = parseSettings(names, merged, flags);
    return Object.freeze({
      listen: parsed.listen,
      /** null: not configured. */
      nodeListen: parsed.nodeListen,
      /** null: the server runs its own. */
      databaseUrl: parsed.databaseUrl,
      driver: parsed.driver,
      /** null: without the gateway for E2B's clients. */
      e2bListen: parsed.e2bListen,
      dataDirectory: resolve(parsed.dataDirectory),
      cacheDirectory: resolve(parsed.cacheDirectory),
      /** The environment, including the flags. */
      environment: merged,
    });
  } catch (error) {
    throw usage(ownMessageOf(error));
  }
}
