/**
 * A server and two nodes of this host with real machines, as separate processes.
 *
 * Always: whatever happens, the processes and the VMMs are ended and the directory is removed.
 */
import type { ChildProcess } from "node:child_process";
import { mkdir, mkdtemp, readFile, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Flotilla } from "@flotilla/sdk/client";
import { findVmms } from "../../node/src/driver/qemu/processes.ts";
import { sleep } from "./clock.ts";
import { removeOnInterrupt } from "./interrupt.ts";
import { end, firstLine, start } from "./programs.ts";

const POLL_MS = 100;
const POLLS_MAX = 1_200;
const NODES = ["one", "two"] as const;

export interface TwoNodes extends AsyncDisposable {
  readonly client: Flotilla;
}

export async function startTwoNodes(): Promise<TwoNodes> {
  const directory = await realpath(await mkdtemp(path.join(tmpdir(), "flotilla-bench-")));
  const children: ChildProcess[] = [];
  let removing: Promise<void> | null = null;
  const removeAll = async (): Promise<void> => {
    forget();
    for (const child of children.toReversed()) await end(child);
    for (const name of NODES)
      for (const { pid } of await findVmms(path.join(directory, name, "node"))) process.kill(pid, "SIGKILL");
    await rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: POLL_MS });
  };
  const remove = (): Promise<void> => (removing ??= removeAll());
  const forget = removeOnInterrupt(remove);
  try {
    const own = path.join(directory, "server");
    await mkdir(own);
    const server = start("server/src/main.ts", { FLOTILLA_DATA_DIR: own, FLOTILLA_LISTEN: "127.0.0.1:0" });
    children.push(server);
    const { url, adminKeyFile } = JSON.parse(await firstLine(server)) as Record<"url" | "adminKeyFile", string>;
    const socket = { FLOTILLA_NODE_SOCKET: path.join(own, "nodes.sock") };
    for (const name of NODES) {
      const place = { FLOTILLA_NODE_ID: name, FLOTILLA_DATA_DIR: path.join(directory, name) };
      children.push(start("node/src/main.ts", { ...place, FLOTILLA_DRIVER: "qemu", FLOTILLA_URL: url, ...socket }));
    }
    const apiKey = (await readFile(adminKeyFile, "utf8")).trim();
    const client = new Flotilla({ url, apiKey, retries: 0 });
    await untilReady(client);
    return { client, [Symbol.asyncDispose]: remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

async function untilReady(client: Flotilla): Promise<void> {
  for (let poll = 0; poll < POLLS_MAX; poll += 1) {
    const nodes = await client.listNodes();
    if (nodes.filter(({ status }) => status === "ready").length === NODES.length) return;
    await sleep(POLL_MS);
  }
  throw new Error("the nodes did not report");
}
