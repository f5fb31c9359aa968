/**
 * The time at which an agent of this node was last alive, as the time stamp of a file. Machines that ended
 * while no agent ran, for example when the host lost power, ran at least until then.
 *
 * Owns `<node directory>/alive`. Always: its time is never later than the last moment at which an agent ran.
 * A crash of the host may set it back by about half a minute, which the kernel had not written yet.
 */
import { stat, utimes, writeFile } from "node:fs/promises";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";

const PERIOD_MS = 5_000;

/** Epoch milliseconds; null: no agent has run on this directory yet. */
export async function readLastAlive(path: string): Promise<number | null> {
  const found = await stat(path).catch(() => null);
  return found === null ? null : found.mtimeMs;
}

/** Notes that the agent is alive, until the signal is aborted. Never rejects. */
export async function keepAlive(path: string, clock: Clock, log: Log, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await touch(path, clock.now() / 1000).catch((error: unknown) => {
      log.debug({ reason: messageOf(error) }, "the time stamp of the agent could not be written");
    });
    await clock.sleep(PERIOD_MS, signal);
  }
}

async function touch(path: string, seconds: number): Promise<void> {
  await utimes(path, seconds, seconds).catch(async (error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
    await writeFile(path, "", { mode: 0o600 });
  });
}
