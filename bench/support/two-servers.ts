/**
 * Two servers on one PostgreSQL and one node with the fake driver, as separate processes.
 *
 * Always: whatever happens, the processes are ended and the directory is removed.
 */
import type { ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { systemClock } from "@flotilla/base/clock";
import { Flotilla } from "@flotilla/sdk/client";
import { startEmbeddedPostgres } from "../../server/src/embedded-postgres/embedded.ts";
import { createLog } from "../../server/src/log.ts";
import { sleep } from "./clock.ts";
import { removeOnInterrupt } from "./interrupt.ts";
import { end, firstLine, start, urlOf } from "./programs.ts";

const POLL_MS = 100;
const POLLS_MAX = 600;

export interface TwoServers extends AsyncDisposable {
  readonly urls: readonly string[];
  /** Of the first server, with the first admin key. */
  readonly client: Flotilla;
}

export async function startTwoServers(): Promise<TwoServers> {
  const directory = await mkdtemp(path.join(tmpdir(), "flotilla-bench-"));
  const options = {
    directory: path.join(directory, "postgres"),
    clock: systemClock,
    log: createLog("error"),
    randomBytes,
  };
  const postgres = await startEmbeddedPostgres(options);
  const children: ChildProcess[] = [];
  let removing: Promise<void> | null = null;
  const removeAll = async (): Promise<void> => {
    forget();
    for (const child of children.toReversed()) await end(child);
    await postgres.stop();
    await rm(directory, { recursive: true, force: true });
  };
  const remove = (): Promise<void> => (removing ??= removeAll());
  const forget = removeOnInterrupt(remove);
  try {
    const databaseUrl = await urlOf(postgres);
    const secretsKey = randomBytes(32).toString("hex");
    const served: { readonly url: string; readonly adminKeyFile: string }[] = [];
    for (const name of ["one", "two"]) {
      const own = path.join(directory, name);
      await mkdir(own);
      // Servers of one database have the same key.
      await writeFile(path.join(own, "secrets.key"), secretsKey, { mode: 0o600 });
      const environment = { DATABASE_URL: databaseUrl, FLOTILLA_DATA_DIR: own, FLOTILLA_LISTEN: "127.0.0.1:0" };
      const child = start("server/src/main.ts", environment);
      children.push(child);
      served.push(JSON.parse(await firstLine(child)) as (typeof served)[number]);
    }
    const urls = served.map(({ url }) => url);
    const [url = ""] = urls;
    const node = {
      FLOTILLA_NODE_ID: "node-a",
      FLOTILLA_DRIVER: "fake",
      FLOTILLA_ACCELERATOR: "tcg",
      FLOTILLA_URL: url,
    };
    children.push(start("node/src/main.ts", { ...node, FLOTILLA_DATA_DIR: path.join(directory, "node") }));
    const apiKey = (await readFile(served[0]?.adminKeyFile ?? "", "utf8")).trim();
    const client = new Flotilla({ url, apiKey, retries: 0 });
    await untilReady(client);
    return { urls, client, [Symbol.asyncDispose]: remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

async function untilReady(client: Flotilla): Promise<void> {
  for (let poll = 0; poll < POLLS_MAX; poll++) {
    if ((await client.listNodes()).some(({ status }) => status === "ready")) return;
    await sleep(POLL_MS);
  }
  throw new Error("the node did not report");
}
