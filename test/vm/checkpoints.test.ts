/**
 * Checkpoints of a real machine that is gone: its programs continue from one with memory, and what is made of
 * a disk alone boots with the files that were written.
 */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { CheckpointInfo } from "@flotilla/contract/checkpoints";
import { startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

const LONG = { deadlineMs: 60_000 };
/** The file is in memory, and is never half written. */
const COUNT =
  "i=0; while :; do i=$((i + 1)); echo $i >/dev/shm/next; mv /dev/shm/next /dev/shm/count; sleep 0.05; done";

test("machines are made from the checkpoints of a machine that is gone", { skip: skipReason }, async (context) => {
  await using flotilla = await startFlotilla({ driver: "qemu" });
  const client = flotilla.client();
  const { id } = await flotilla.create({ branchable: true, resources: { cpus: 1, memoryMb: 256, diskGb: 1 } });
  await flotilla.start(id);

  const counted = async (machine: string): Promise<number> =>
    Number(await flotilla.exec(machine, "cat /dev/shm/count 2>/dev/null || echo 0"));
  const write = (machine: string, text: string) => flotilla.exec(machine, `echo ${text} >/workspace/file`);
  const file = (machine: string) => flotilla.exec(machine, "cat /workspace/file");
  async function keep(body: object): Promise<CheckpointInfo> {
    const beganAt = performance.now();
    const { status, text, json } = await client.post(`/v1/machines/${id}/checkpoints`, body);
    assert.equal(status, 201, text);
    const { hasMemory, sizeBytes } = json as CheckpointInfo;
    const size = (sizeBytes / 2 ** 20).toFixed(1);
    context.diagnostic(
      `${hasMemory ? "with" : "without"} memory: ${(performance.now() - beganAt).toFixed(0)} ms, ${size} MiB`,
    );
    return json;
  }
  async function branch(checkpoint: string, name: string): Promise<string> {
    const beganAt = performance.now();
    const { status, text, json } = await client.post(`/v1/checkpoints/${checkpoint}/branches`, { names: [name] });
    assert.equal(status, 201, text);
    context.diagnostic(`${name} runs after ${(performance.now() - beganAt).toFixed(0)} ms`);
    return json.clones[0].id;
  }

  const counter = await client.post(`/v1/machines/${id}/exec`, { command: ["sh", "-c", COUNT], background: true });
  assert.equal(counter.status, 200, counter.text);
  await until(async () => (await counted(id)) > 0, LONG);
  await write(id, "first");
  const countBefore = await counted(id);
  const whole = await keep({ name: "whole" });
  assert.equal(whole.hasMemory, true);
  const countAfter = await counted(id);
  await write(id, "second");
  const disk = await keep({ name: "disk", memory: false });
  assert.equal(disk.hasMemory, false);
  await until(async () => (await counted(id)) > countAfter, { what: "the machine to count on", ...LONG });
  await flotilla.remove(id);

  const continued = await branch("whole", "continued");
  const seen = await counted(continued);
  assert.ok(seen >= countBefore, `${countBefore} ${seen}`);
  await until(async () => (await counted(continued)) > seen, { what: "the branch to count", ...LONG });
  assert.equal(await file(continued), "first\n");
  assert.equal((await flotilla.exec(continued, "hostname")).trim(), "continued");

  const booted = await branch("disk", "booted");
  assert.deepEqual([await counted(booted), await file(booted)], [0, "second\n"]);

  const restored = await client.post("/v1/checkpoints/whole/restore", { name: "restored" });
  assert.deepEqual([restored.status, restored.json.state], [201, "stopped"], restored.text);
  for (const name of ["whole", "disk"]) assert.equal((await client.delete(`/v1/checkpoints/${name}`)).status, 204);
  await flotilla.start(restored.json.id);
  assert.deepEqual([await counted(restored.json.id), await file(restored.json.id)], [0, "first\n"]);

  for (const machine of [continued, booted, restored.json.id]) await flotilla.remove(machine);
  const points = join(flotilla.nodeDirectory(), "points");
  await until(() => readdirSync(points).length === 0, { what: "the points to be removed", ...LONG });
});
