/**
 * What was sent to a machine is in the audit log with the machine's id, whatever door it came through and
 * however it ends: its caller leaves, its right ends, its machine is deleted, its node dies.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { test } from "node:test";
import type { AuditEntry } from "@flotilla/contract/audit";
import { WebSocket } from "ws";
import { AuditRecorder } from "../src/audit/recorder.ts";
import { sql } from "../src/db/database.ts";
import type { Client } from "./support/client.ts";
import { createMachine, startMachineServer } from "./support/machine-server.ts";
import { until } from "../../test/support/until.ts";

const { server, node, client, context } = await startMachineServer();
const LONG = ["sleep", "600"];
const ENDLESS = { script: "sleep 600", interpreters: { FAKE_INTERPRETERS: "python3" } };

interface Tenant {
  readonly id: string;
  readonly keyId: string;
  readonly caller: Client;
}

async function newTenant(name: string): Promise<Tenant> {
  const id = (await client.post("/v1/tenants", { name })).json.id as string;
  const key = (await client.post("/v1/apikeys", { tenantId: id })).json as { id: string; key: string };
  return { id, keyId: key.id, caller: client.withKey(key.key) };
}

const startedMachine = async ({ caller }: Tenant): Promise<string> => {
  const id = await createMachine(caller, { env: ENDLESS.interpreters });
  assert.equal((await caller.post(`/v1/machines/${id}/start`)).status, 200);
  return id;
};

async function rowsOf({ id }: Tenant, resource: string, type: string): Promise<readonly AuditEntry[]> {
  const rows = (await client.get(`/v1/audit?limit=1000&tenantId=${id}`)).json as readonly AuditEntry[];
  return rows.filter((row) => row.type === `machines.${type}` && row.resource?.split("/")[0] === resource);
}

const rowsWhen = (of: Tenant, resource: string, type: string, isThere: (rows: readonly AuditEntry[]) => boolean) =>
  until(
    async () => {
      const rows = await rowsOf(of, resource, type);
      return isThere(rows) && rows;
    },
    { what: `rows of ${type}`, deadlineMs: 10_000 },
  );

/** Begins work in a machine that does not end. Its answer, if there is one, comes later. */
type Begin = (caller: Client, machineId: string, signal: AbortSignal) => Promise<unknown>;

const posting =
  (path: string, body: object): Begin =>
  (caller, id, signal) =>
    caller.post(`/v1/machines/${id}/${path}`, body, { signal });

const DOORS: Readonly<Record<string, Begin>> = {
  exec: posting("exec", { command: LONG }),
  execStream: posting("exec/stream", { command: LONG }),
  runCode: posting("code", { language: "python", code: ENDLESS.script }),
  async execInSession(caller, id, signal) {
    const session = (await caller.post(`/v1/machines/${id}/sessions`)).json.id as string;
    return await caller.post(`/v1/machines/${id}/sessions/${session}/exec`, { command: LONG }, { signal });
  },
  async openTerminal(caller, id, signal) {
    const headers = { authorization: `Bearer ${caller.key}` };
    const socket = new WebSocket(`${server.url.replace("http", "ws")}/v1/machines/${id}/exec/interactive`, { headers });
    socket.on("error", () => undefined);
    signal.addEventListener("abort", () => socket.terminate());
    await once(socket, "close");
  },
  async writeFile(caller, id, signal) {
    const headers = { authorization: `Bearer ${caller.key}`, "content-length": "2000000" };
    const sent = httpRequest(`${server.url}/v1/machines/${id}/files?path=/workspace/part`, { method: "POST", headers });
    sent.on("error", () => undefined);
    signal.addEventListener("abort", () => sent.destroy());
    sent.write(new Uint8Array(1_000));
    await once(sent, "close");
  },
};

interface Ending {
  readonly end: (of: Tenant, machineId: string, leave: () => void) => Promise<unknown>;
  /** The statuses with which a command that was not answered before ends. */
  readonly statuses: readonly number[];
}

const ENDINGS: Readonly<Record<string, Ending>> = {
  "its caller leaves": { end: async (_of, _id, leave) => leave(), statuses: [503] },
  "its key is revoked": { end: ({ keyId }) => client.delete(`/v1/apikeys/${keyId}`), statuses: [401] },
  "its tenant is suspended": { end: ({ id }) => client.post(`/v1/tenants/${id}/suspend`), statuses: [402] },
  "its machine is deleted": {
    end: ({ caller }, id) => caller.delete(`/v1/machines/${id}`),
    statuses: [404, 502, 503, 504],
  },
};

for (const [name, { end, statuses }] of Object.entries(ENDINGS))
  test(`what runs has a row, and another one when ${name}, for every door`, async () => {
    const of = await newTenant(name);
    const machineId = await startedMachine(of);
    const leaving = new AbortController();
    const running = Object.values(DOORS).map((begin) =>
      begin(of.caller, machineId, leaving.signal).catch(() => undefined),
    );
    // A server that dies now leaves these.
    for (const type of Object.keys(DOORS)) await rowsWhen(of, machineId, type, (rows) => rows.length > 0);
    await end(of, machineId, () => leaving.abort());
    for (const type of Object.keys(DOORS)) {
      const [first, last] = await rowsWhen(
        of,
        machineId,
        type,
        ([begun, ended]) => begun !== undefined && (begun.status !== 102 || ended !== undefined),
      );
      // A stream and a terminal are answered when they begin.
      const answered = { execStream: [200], openTerminal: [101] }[type] ?? statuses;
      const status = first?.status === 102 ? last?.status : first?.status;
      assert.ok(answered.includes(status ?? 0), `${type}: ${first?.status}, ${last?.status}`);
      assert.ok([first, last].every((row) => row === undefined || row.keyId === of.keyId));
    }
    leaving.abort();
    await Promise.all(running);
  });

test("commands whose callers hang up have a row each that names their machine, behind any number of others", async () => {
  const of = await newTenant("hung up");
  const [decoy, interesting] = [await startedMachine(of), await startedMachine(of)];
  const leaving = new AbortController();
  const commands = [...Array.from({ length: 12 }, () => decoy), ...Array.from({ length: 3 }, () => interesting)];
  const running: Promise<unknown>[] = [];
  for (const [index, machineId] of commands.entries()) {
    const body = { command: `echo x >/workspace/hidden${index}; sleep 600` };
    running.push(
      of.caller.post(`/v1/machines/${machineId}/exec`, body, { signal: leaving.signal }).catch(() => undefined),
    );
  }
  const hasRun = async (machineId: string, index: number): Promise<boolean> =>
    (await of.caller.get(`/v1/machines/${machineId}/files?path=/workspace/hidden${index}`)).status === 200;
  for (const [index, machineId] of commands.entries())
    await until(() => hasRun(machineId, index), { what: `command ${index}`, deadlineMs: 20_000 });
  leaving.abort();
  await Promise.all(running);
  const ended = (count: number) => (rows: readonly AuditEntry[]) =>
    rows.filter(({ status }) => status === 503).length === count;
  for (const [machineId, count] of [
    [decoy, 12],
    [interesting, 3],
  ] as const) {
    const rows = await rowsWhen(of, machineId, "exec", ended(count));
    assert.ok(rows.every(({ calls }) => calls === undefined));
  }
});

test("a command that ends at once has one row", async () => {
  const of = await newTenant("quick");
  const machineId = await startedMachine(of);
  assert.equal((await of.caller.post(`/v1/machines/${machineId}/exec`, { command: "true" })).status, 200);
  const rows = await rowsWhen(of, machineId, "exec", ({ length }) => length > 0);
  assert.deepEqual(
    rows.map(({ status }) => status),
    [200],
  );
});

test("a refused command that was sent nowhere has no row of what was sent", async () => {
  const of = await newTenant("refused");
  assert.equal((await of.caller.post("/v1/machines/mach-none/exec", { command: "true" })).status, 404);
  const machineId = await startedMachine(of);
  assert.equal((await of.caller.post(`/v1/machines/${machineId}/exec`, { command: [] })).status, 422);
  assert.equal((await of.caller.post(`/v1/machines/${machineId}/exec`, { command: "true" })).status, 200);
  const rows = await rowsWhen(of, machineId, "exec", ({ length }) => length > 0);
  assert.equal(rows.length, 1);
});

test("no record of what was sent is dropped: above the bound the answers wait, and a stop writes all", async () => {
  const { id } = await newTenant("flooding");
  const recorder = new AuditRecorder(context);
  const record = (status: number, requestId: string) => ({
    ...{ at: new Date(context.clock.now()).toISOString(), requestId, type: "machines.exec", resource: "mach-1" },
    ...{ keyId: "key-1", scopes: [], address: "192.0.2.1", status, errorCode: null },
  });
  const waiting: Promise<void>[] = [];
  for (let count = 0; count < 5_000; count += 1) {
    const sent = recorder.sent(id, record(102, `req-${count}`));
    const written = sent.answered(record(200, `req-${count}`));
    if (written !== undefined) waiting.push(written);
  }
  assert.ok(waiting.length > 0);
  await Promise.all(waiting);
  await recorder.stop();
  const found = await context.db.query(sql`SELECT 1 FROM audit_log WHERE tenant_id = ${id} AND key_id = 'key-1'`);
  assert.equal(found.length, 5_000);
});

test("a flood of commands delays no record of a refused call", async () => {
  const [flooding, refused] = [await newTenant("flood"), await newTenant("refused meanwhile")];
  const recorder = new AuditRecorder(context);
  const record = (status: number) => ({
    ...{
      at: new Date(context.clock.now()).toISOString(),
      requestId: "req-1",
      type: "machines.exec",
      resource: "mach-1",
    },
    ...{ keyId: "key-1", scopes: [], address: "192.0.2.1", status, errorCode: null },
  });
  recorder.note(refused.id, record(403), "whateverNamed");
  // As many wait at any time as are kept.
  for (let round = 0; round < 3; round += 1) {
    const waiting: Promise<void>[] = [];
    for (let count = 0; count < 2_500; count += 1) {
      const written = recorder.sent(flooding.id, record(102)).answered(record(200));
      if (written !== undefined) waiting.push(written);
    }
    await waiting[0];
  }
  const found = await context.db.query(
    sql`SELECT 1 FROM audit_log WHERE tenant_id = ${refused.id} AND key_id = 'key-1'`,
  );
  await recorder.stop();
  assert.equal(found.length, 1);
});

test("a command whose node dies has a row that says so", async () => {
  const of = await newTenant("node dies");
  const machineId = await startedMachine(of);
  const leaving = new AbortController();
  const running = of.caller.post(`/v1/machines/${machineId}/exec`, { command: LONG }, { signal: leaving.signal });
  const ended = running.catch(() => undefined);
  await rowsWhen(of, machineId, "exec", ([begun]) => begun?.status === 102);
  await node.kill();
  // The server looks for the node's next agent, and its caller waits no longer.
  leaving.abort();
  await ended;
  await rowsWhen(of, machineId, "exec", (rows) => rows.at(-1)?.status === 503);
});
