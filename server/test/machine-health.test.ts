/**
 * The health check of a machine, from its row to its node, and what the node finds, back to the row.
 *
 * No endpoint takes a check: apps give their machines one when they make them, and it is never changed.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { MachineHealth, MachineHealthCheck } from "@flotilla/contract/link/link";
import { until } from "../../test/support/until.ts";
import { sql } from "../src/db/database.ts";
import { startMachineServer } from "./support/machine-server.ts";

const { client, context, machine, node } = await startMachineServer();

const CHECK: MachineHealthCheck = {
  ...{ type: "http", path: "/healthz", port: 80, command: null, host: "web.example.com" },
  ...{ intervalMs: 200, timeoutMs: 60_000, retries: 3 },
};

/** A machine as an app makes it: with a check, before it is started. */
async function checkedMachine(env: Readonly<Record<string, string>>): Promise<string> {
  const id = await machine({ env });
  const row = await context.db.queryOne<{ revision: number }>(sql`
    UPDATE machines SET health = ${JSON.stringify(CHECK)}::jsonb, revision = revision + 1 WHERE id = ${id} RETURNING revision`);
  await context.db.notify("machines", `${id}:${row?.revision}`);
  return id;
}

const health = async (id: string): Promise<MachineHealth | null> =>
  (
    await context.db.queryOne<{ health: MachineHealth | null }>(
      sql`SELECT observed_details->'health' AS health FROM machines WHERE id = ${id}`,
    )
  )?.health ?? null;

const becomes = (id: string, status: MachineHealth["status"]): Promise<MachineHealth> =>
  until(
    async () => {
      const seen = await health(id);
      return seen?.status === status && seen;
    },
    { what: `the machine to be ${status}` },
  );

const exec = async (id: string, ...command: string[]): Promise<void> => {
  const answer = await client.post(`/v1/machines/${id}/exec`, { command });
  assert.deepEqual([answer.status, answer.json.exitCode], [200, 0], answer.text);
};

test("a machine that is checked becomes healthy and unhealthy in its row, and an agent's restart does not change that", async () => {
  const id = await checkedMachine({ FAKE_LISTEN: "80=200" });
  assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  const first = await becomes(id, "healthy");
  assert.ok(first.since !== null && Math.abs(first.since - Date.now()) < 60_000);
  await node.kill();
  await node.restart();
  // The new agent has had no result when it reports the machine, and its first one is a success again.
  await exec(id, "true");
  assert.deepEqual(await health(id), first);
  await exec(id, "listen", "80", "500");
  const { reason } = await becomes(id, "unhealthy");
  assert.match(reason ?? "", /^GET \/healthz was answered 500: \S+ GET \/healthz$/);
  assert.equal((await client.get(`/v1/machines/${id}`)).json.state, "started", "it runs on");
  await exec(id, "listen", "80");
  await becomes(id, "healthy");
});

test("a machine that is stopped has no health, and one that is deleted has no check", async () => {
  const id = await checkedMachine({ FAKE_LISTEN: "80=204" });
  await client.post(`/v1/machines/${id}/start`);
  await becomes(id, "healthy");
  assert.equal((await client.post(`/v1/machines/${id}/stop`)).status, 200);
  assert.equal(await health(id), null);
  await client.delete(`/v1/machines/${id}`);
  const row = await context.db.queryOne<{ health: unknown }>(sql`SELECT health FROM machines WHERE id = ${id}`);
  assert.equal(row?.health, null);
});

test("a machine that no app made is not checked", async () => {
  const id = await machine({ env: { FAKE_LISTEN: "80=200" }, ports: [{ port: 80 }] });
  await client.post(`/v1/machines/${id}/start`);
  await until(async () => (await client.get(`/v1/machines/${id}`)).json.ready, { what: "the machine to be ready" });
  assert.equal(await health(id), null);
});
