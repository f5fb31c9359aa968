/**
 * The launcher of node/native/jail.c, compiled as for a node that uses this cache.
 */
import { join } from "node:path";
import { parseSettings } from "@flotilla/contract/settings";
import { JAIL_NAME } from "@flotilla/node/driver/qemu/guest-files";
import { makeGuestFiles } from "@flotilla/node/driver/qemu/index";

export async function launcherPath(): Promise<string> {
  const { cacheDirectory } = parseSettings(["cacheDirectory"], process.env);
  return join((await makeGuestFiles(cacheDirectory)).directory, JAIL_NAME);
}
