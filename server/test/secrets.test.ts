/**
 * What machines hold as secrets: nothing of it is left in the database once a machine is deleted.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sql } from "../src/db/database.ts";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer();
const { client } = server;
const { db } = server.context;
const source = { type: "image", reference: "local/busybox" };

/** Every row that may tell of the machine, as text. */
async function everything(id: string): Promise<string> {
  const rows = await db.query<{ row: string }>(sql`
    SELECT m::text AS row FROM machines m WHERE id = ${id}
    UNION ALL SELECT s::text FROM machine_sessions s WHERE machine_id = ${id}
    UNION ALL SELECT e::text FROM machine_events e WHERE machine_id = ${id}
    UNION ALL SELECT 'token' FROM connect_tokens WHERE machine_id = ${id}
    UNION ALL SELECT 'share' FROM machine_shares WHERE machine_id = ${id}`);
  return rows.map(({ row }) => row).join("\n");
}

test("the environment, the command, sessions, tokens and the share link of a machine go with it", async () => {
  const secret = "correct-horse-battery";
  const body = { source, env: { PASSWORD: secret }, command: ["serve", `--token=${secret}`], ports: [{ port: 80 }] };
  const { id } = (await client.post("/v1/machines", body)).json as { id: string };
  const path = `/v1/machines/${id}`;
  assert.equal((await client.post(`${path}/sessions`, { env: { MORE: secret } })).status, 200);
  assert.equal((await client.post(`${path}/connect-token`)).status, 201);
  assert.equal((await client.post(`${path}/share`)).status, 200);
  assert.match(await everything(id), /correct-horse[^]*token[^]*share/);
  assert.equal((await client.delete(path)).status, 204);
  const left = await everything(id);
  assert.match(left, /machine deleted/);
  assert.doesNotMatch(left, /correct-horse|^token|^share/m);
  assert.equal((await client.get(`${path}/usage`)).status, 200, "its usage stays");
});
