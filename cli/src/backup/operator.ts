/**
 * `flotilla backup` and `flotilla restore`: this process becomes the server's program that does it, because
 * it reads the database and the data directory without a server.
 */
import { settings } from "@flotilla/contract/settings";
import type { Call } from "../call.ts";
import { BACKUP_MAIN, childEnvironment } from "../up/launch.ts";

interface Options {
  readonly to?: string;
  readonly revokeKeys?: boolean;
  readonly dataDir?: string;
}

export const backup = {
  run: (call: Call, _operands: readonly string[], { to, dataDir }: Options) =>
    become(call, ["backup", ...flag("to", to)], dataDir),
};
export const restore = {
  run: (call: Call, operands: readonly string[], { revokeKeys, dataDir }: Options) =>
    become(call, ["restore", ...(revokeKeys === true ? ["--revoke-keys"] : []), "--", ...operands], dataDir),
};

const flag = (name: string, value: string | undefined): string[] => (value === undefined ? [] : [`--${name}=${value}`]);

async function become(call: Call, argv: readonly string[], dataDirectory: string | undefined): Promise<never> {
  const set = dataDirectory === undefined ? {} : { [settings.dataDirectory.env]: dataDirectory };
  const environment = childEnvironment(call.world.environment, "server", set);
  process.execve?.(process.execPath, [process.execPath, BACKUP_MAIN, ...argv], environment);
  throw new Error("this Node cannot replace its process; start Flotilla with ./flotilla, which uses a Node that can");
}
