/**
 * Which disks that follow their machines are sent: those whose former nodes are away keep no others from their turn.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { until } from "../../../test/support/until.ts";
import type { MachineServices } from "../machines/services.ts";
import { followingReconciler } from "./following.ts";

const CLAIMED = 8;

test("disks of which nothing arrives keep no other disk from being sent", async (t) => {
  let claims = 0;
  const notes: string[] = [];
  const rows = Array.from({ length: CLAIMED }, (_, at) => ({ machineId: `mach-${at}`, isDeleted: false }));
  const stopping = new AbortController();
  const clock = {
    ...systemClock,
    monotonic: () => systemClock.monotonic() * 1_000,
    sleep: (ms: number, signal?: AbortSignal) => systemClock.sleep(ms / 1_000, signal),
  };
  const db = {
    query: async () => {
      claims += 1;
      return claims === 1 ? rows : [];
    },
    queryOne: async () => ({}),
    execute: async () => 0,
  };
  const background: Promise<unknown>[] = [];
  const services = {
    context: { clock, db, randomBytes: () => Buffer.alloc(16) },
    activity: { note: (_id: string, _level: string, text: string) => notes.push(text) },
    cache: { readAny: () => Promise.reject(new Error("its node is away")) },
    inBackground: (_name: string, work: () => Promise<unknown>) => background.push(work()),
  } as unknown as MachineServices;
  t.after(async () => {
    stopping.abort();
    await Promise.all(background);
  });
  const loop = followingReconciler(services);
  assert.equal((await loop.activate(stopping.signal)).counts["claimed"], CLAIMED);
  await loop.activate(stopping.signal);
  assert.equal(claims, 1, "so many are sent at a time");
  await until(() => notes.length === CLAIMED, { what: "trouble with all of them" });
  await loop.activate(stopping.signal);
  assert.equal(claims, 2);
});
