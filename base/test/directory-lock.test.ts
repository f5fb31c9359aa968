/**
 * One process at a time holds a directory; the next one waits while the holder is stopping.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { systemClock } from "../src/clock.ts";
import { type LockOptions, lockDirectory } from "../src/directory-lock.ts";

const directory = await mkdtemp(join(tmpdir(), "flotilla-lock-"));
after(() => rm(directory, { recursive: true }));

const OPTIONS: LockOptions = {
  clock: systemClock,
  name: "flotilla-test",
  otherHolder: "another test",
  runningWaitMs: 0,
  stoppingWaitMs: 20_000,
};

test("a second process is refused while one runs, and the message names the holder", async () => {
  const unlock = await lockDirectory(directory, OPTIONS);
  await assert.rejects(lockDirectory(directory, OPTIONS), /is in use by another test; stop that one/);
  unlock();
});

test("a process waits for a holder that is stopping", async () => {
  const stopping = new AbortController();
  const unlock = await lockDirectory(directory, { ...OPTIONS, stopping: stopping.signal });
  stopping.abort();
  const waits = Promise.withResolvers<void>();
  const sleep: typeof systemClock.sleep = (ms, signal) => {
    waits.resolve();
    return systemClock.sleep(ms, signal);
  };
  const next = lockDirectory(directory, { ...OPTIONS, clock: { ...systemClock, sleep } });
  await waits.promise;
  unlock();
  (await next)();
});

test("a process that asks for the directory and does not close its connection holds nothing of the holder", async () => {
  const unlock = await lockDirectory(directory, OPTIONS);
  const { dev, ino } = await stat(directory);
  const descriptors = async (): Promise<number> => (await readdir("/proc/self/fd")).length;
  const before = await descriptors();
  const sockets = await Promise.all(
    Array.from({ length: 20 }, async () => {
      const socket = connect({ path: `\0flotilla-test-${dev}-${ino}`, allowHalfOpen: true });
      const [answer] = (await once(socket, "data")) as [Buffer];
      assert.equal(String(answer), "running");
      return socket;
    }),
  );
  for (const socket of sockets) if (!socket.readableEnded) await once(socket, "end");
  assert.equal((await descriptors()) - before, sockets.length);
  for (const socket of sockets) socket.destroy();
  unlock();
});

test("programs with different names do not exclude each other", async () => {
  const unlock = await lockDirectory(directory, OPTIONS);
  const unlockOther = await lockDirectory(directory, { ...OPTIONS, name: "flotilla-other" });
  unlock();
  unlockOther();
});

test("a process that begins to stop no longer waits for the directory", async () => {
  const unlock = await lockDirectory(directory, OPTIONS);
  const stopping = new AbortController();
  stopping.abort();
  const waiting = lockDirectory(directory, { ...OPTIONS, runningWaitMs: 20_000, stopping: stopping.signal });
  await assert.rejects(waiting, /is in use/);
  unlock();
});
