/**
 * `flotilla backup` and `flotilla restore`: this process becomes the server's program that does it, because
 * it reads the database and the data directory without a server.
 *
 * Always: a backup is of the control plane that `--data-dir` names, or that other commands of this terminal
 * talk to. A server that answers them is asked for its cluster's id, with which the program compares.
 */
import { parseSettings, settings } from "@flotilla/contract/settings";
import { Flotilla } from "@flotilla/sdk";
import type { Call } from "../call.ts";
import { namedUrl, readUrl } from "../connection.ts";
import { Failure } from "../failure.ts";
import { BACKUP_MAIN, childEnvironment } from "../up/launch.ts";
import { type Answered, clusterToSave } from "./cluster.ts";

const ANSWER_MS = 5_000;

interface Options {
  readonly to?: string;
  readonly revokeKeys?: boolean;
  readonly dataDir?: string;
}

export const backup = {
  run: async (call: Call, _operands: readonly string[], { to, dataDir }: Options) => {
    const cluster = await expectedCluster(call, dataDir);
    return await become(call, ["backup", ...flag("to", to), ...flag("cluster", cluster)], dataDir);
  },
};
export const restore = {
  run: (call: Call, operands: readonly string[], { revokeKeys, dataDir }: Options) =>
    become(call, ["restore", ...(revokeKeys === true ? ["--revoke-keys"] : []), "--", ...operands], dataDir),
};

const flag = (name: string, value: string | undefined): string[] => (value === undefined ? [] : [`--${name}=${value}`]);

/** The cluster that may be saved; undefined: whichever the directory has. Throws a Failure. */
async function expectedCluster({ world }: Call, dataDir: string | undefined): Promise<string | undefined> {
  const { environment } = world;
  const isExternal = Boolean(environment[settings.databaseUrl.env]);
  const named = namedUrl(environment);
  const url = named ?? readUrl(environment, {});
  const outcome = await clusterToSave({
    isDirectoryGiven: dataDir !== undefined && !isExternal,
    isPlaceNamed: isExternal || Boolean(environment[settings.dataDirectory.env]),
    isUrlNamed: named !== null,
    ask: () => ask(url),
  });
  if (outcome !== "unknown") return outcome.cluster;
  const { dataDirectory } = parseSettings(["dataDirectory"], environment);
  throw new Failure(
    `${url} does not answer, so it is unknown whether its control plane is in ${dataDirectory}`,
    "name the directory of the one to save: flotilla backup --data-dir DIRECTORY",
  );
}

async function ask(url: string): Promise<Answered> {
  const health = await new Flotilla({ url, retries: 0 }).getHealth({ timeoutMs: ANSWER_MS }).catch(() => null);
  return typeof health?.clusterId === "string" && health.clusterId !== "" ? health.clusterId : null;
}

async function become(call: Call, argv: readonly string[], dataDirectory: string | undefined): Promise<never> {
  const set = dataDirectory === undefined ? {} : { [settings.dataDirectory.env]: dataDirectory };
  const environment = childEnvironment(call.world.environment, "server", set);
  process.execve?.(process.execPath, [process.execPath, BACKUP_MAIN, ...argv], environment);
  throw new Error("this Node cannot replace its process; start Flotilla with ./flotilla, which uses a Node that can");
}
