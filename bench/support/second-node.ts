/**
 * A second node on this host for a bench of moves, with real machines.
 *
 * Always: when it is removed, its VMMs and its directory are too. Machines that it has must have been deleted before.
 */
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { findVmms } from "../../node/src/driver/qemu/processes.ts";
import { sleep } from "./clock.ts";
import type { BenchFlotilla } from "./flotilla.ts";
import { removeOnInterrupt } from "./interrupt.ts";
import { end, start } from "./programs.ts";

const POLL_MS = 100;
const POLLS_MAX = 1_200;

/** Resolves when both nodes are ready. */
export async function startSecondNode({ client, access }: BenchFlotilla): Promise<AsyncDisposable> {
  const directory = await realpath(await mkdtemp(path.join(tmpdir(), "flotilla-bench-")));
  const child = start("node/src/main.ts", {
    FLOTILLA_NODE_ID: "second",
    FLOTILLA_DRIVER: "qemu",
    FLOTILLA_URL: access.url,
    FLOTILLA_DATA_DIR: directory,
  });
  let removing: Promise<void> | null = null;
  const removeAll = async (): Promise<void> => {
    forget();
    await end(child);
    for (const { pid } of await findVmms(path.join(directory, "node"))) process.kill(pid, "SIGKILL");
    await rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: POLL_MS });
  };
  const remove = (): Promise<void> => (removing ??= removeAll());
  const forget = removeOnInterrupt(remove);
  for (let poll = 0; poll < POLLS_MAX; poll += 1) {
    if ((await client.listNodes()).filter(({ status }) => status === "ready").length === 2)
      return { [Symbol.asyncDispose]: remove };
    await sleep(POLL_MS);
  }
  await remove();
  throw new Error("the second node did not report");
}
