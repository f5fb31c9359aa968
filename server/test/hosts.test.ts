/**
 * Host names in the database: unique over tenants, given with their subject, and kept for its tenant when it
 * is deleted, also when two statements come together.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type Queryable, sql } from "../src/db/database.ts";
import { HOST_KINDS } from "../src/hosts/kinds.ts";
import { findHost } from "../src/hosts/store.ts";
import { findAnyMachine } from "../src/machines/store.ts";
import type { Client } from "./support/client.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const { client, context } = await startTestServer();
const { db } = context;

async function newTenant(name: string): Promise<Client> {
  const { id: tenantId } = (await client.post("/v1/tenants", { name })).json;
  return client.withKey((await client.post("/v1/apikeys", { tenantId })).json.key);
}

const [first, second] = [await newTenant("first"), await newTenant("second")];
const SIZE = { resources: { cpus: 1, memoryMb: 256 } };

async function create(as: Client, name: string): Promise<string> {
  const { status, json, text } = await as.post("/v1/machines", {
    source: { type: "image", reference: "local/busybox" },
    name,
    ...SIZE,
  });
  assert.equal(status, 201, text);
  return json.id;
}

await db.execute(sql`
  INSERT INTO nodes (id, address, status, credential_hash, registered_at)
  VALUES ('node-1', 'node', 'ready', sha256('x'), now())`);

/** As a delete of a machine that has been started. */
const remove = (id: string) => (queryable: Queryable) =>
  queryable.execute(sql`
    UPDATE machines SET desired_state = 'absent', deleted_at = now(), revision = revision + 1, node_id = 'node-1'
    WHERE id = ${id}`);

const ownerOf = async (name: string): Promise<string | undefined> => (await findHost(db, name))?.id;
const hostNameOf = async (id: string): Promise<string | undefined> => (await findAnyMachine(db, id))?.hostName;
const longer = (name: string, id: string): string => `${name.slice(0, 54)}-${id.slice(5, 13)}`;

test("the first of a name has it as its host name, and one of another tenant has it with a part of its id", async () => {
  const one = await create(first, "Shop");
  const two = await create(second, "shop");
  assert.deepEqual([await ownerOf("shop"), await ownerOf(longer("shop", two))], [one, two]);
  assert.deepEqual([await hostNameOf(one), await hostNameOf(two)], ["shop", longer("shop", two)]);
  const long = "l".repeat(63);
  const longest = await create(first, long);
  assert.equal(await ownerOf(long), longest);
  const next = await create(second, long);
  assert.equal(await hostNameOf(next), longer(long, next));
});

test("a name that cannot be a label, or looks like an id of any kind, is not given: the id is the host name", async () => {
  for (const name of ["a.b", "x-", "x_y", `mach-${"0".repeat(32)}`, `app-${"0".repeat(32)}`]) {
    const id = await create(first, name);
    assert.equal(await hostNameOf(id), id, name);
    assert.equal(await ownerOf(name), undefined, name);
    const rows = await db.query(sql`SELECT FROM hosts WHERE subject_id = ${id}`);
    assert.equal(rows.length, 0, name);
  }
});

test("a living machine keeps its name, whatever happens to its row", async () => {
  const id = await create(first, "kept");
  await assert.rejects(
    db.execute(
      sql`INSERT INTO hosts (name, kind, subject_id, tenant_id) VALUES ('kept', 'machine', 'mach-x', 'tenant-x')`,
    ),
    /hosts_pkey/,
  );
  const again = await first.post("/v1/machines", {
    source: { type: "image", reference: "local/busybox" },
    name: "kept",
  });
  assert.equal(again.status, 409);
  await db.execute(sql`UPDATE machines SET deleted_at = deleted_at, revision = revision + 1 WHERE id = ${id}`);
  await create(second, "kept");
  assert.equal(await ownerOf("kept"), id);
});

test("a deleted machine's name leads nowhere and is its tenant's alone, until its row is purged", async () => {
  const one = await create(first, "freed");
  const two = await create(second, "freed");
  await remove(two)(db);
  assert.deepEqual([await ownerOf("freed"), await ownerOf(longer("freed", two))], [one, undefined]);
  await remove(one)(db);
  assert.equal(await ownerOf("freed"), undefined);
  assert.equal(await hostNameOf(one), one, "it is shown by its id");
  const three = await create(second, "freed");
  assert.equal(
    await hostNameOf(three),
    longer("freed", three),
    "visitors of the first tenant's machine get to no other",
  );
  assert.equal(await ownerOf("freed"), undefined);
  const four = await create(first, "freed");
  assert.deepEqual([await ownerOf("freed"), await hostNameOf(four)], [four, "freed"]);
  // As a purge, 30 days later.
  await db.execute(sql`DELETE FROM machines WHERE id = ${one}`);
  assert.equal(await ownerOf("freed"), four);
  await remove(four)(db);
  await db.execute(sql`DELETE FROM machines WHERE id = ${four}`);
  await remove(three)(db);
  const five = await create(second, "freed");
  assert.equal(await ownerOf("freed"), five);
  // A row that is deleted without a delete of its machine.
  await db.execute(sql`DELETE FROM machines WHERE id = ${five}`);
  assert.deepEqual(await db.query(sql`SELECT FROM hosts WHERE name = 'freed'`), []);
});

test("the name of a machine that was never started is free at once, so a tenant reserves none without machines", async () => {
  const one = await create(first, "unused");
  assert.equal((await first.delete(`/v1/machines/${one}`)).status, 204);
  const two = await create(second, "unused");
  assert.deepEqual([await ownerOf("unused"), await hostNameOf(two)], [two, "unused"]);
  assert.equal(await hostNameOf(one), one);
});

/** What `work` gives, which waits for a lock of the transaction until that ends as `end` says. */
async function meanwhile<T>(
  begin: (transaction: Queryable) => Promise<unknown>,
  end: "commit" | "rollback",
  work: () => Promise<T>,
): Promise<T> {
  let working: Promise<T> | undefined;
  const transaction = db.transaction(async (queryable) => {
    await begin(queryable);
    working = work();
    await until(async () => (await waiting()) === 1, { what: "a statement that waits" });
    if (end === "rollback") throw new Error("rolled back");
  });
  if (end === "commit") await transaction;
  else await assert.rejects(transaction, /^Error: rolled back$/);
  assert.ok(working);
  return await working;
}

async function waiting(): Promise<number> {
  const row = await db.queryOne<{ count: number }>(sql`
    SELECT count(*)::int AS count FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`);
  return row?.count ?? 0;
}

/** As a create: another row like the one of the machine. */
const copy = (id: string, name: string, newId: string) => (transaction: Queryable) =>
  transaction.execute(sql`
    INSERT INTO machines (id, name, tenant_id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral, is_public,
      is_branchable, created_at, updated_at, desired_state, generation, desired_at, observed_state, observed_generation, revision)
    SELECT ${newId}, ${name}, tenant_id, source, network, env, ports, labels, cpus, memory_mb, disk_gb, is_ephemeral, is_public,
      is_branchable, created_at, updated_at, desired_state, generation, desired_at, observed_state, observed_generation, revision
    FROM machines WHERE id = ${id}`);

test("a create waits for a delete that is not committed, and gets the name if it is and the name is its tenant's", async () => {
  for (const [end, as] of [
    ["commit", second],
    ["commit", first],
    ["rollback", second],
  ] as const) {
    const name = `waited-${end}-${as === first ? "own" : "other"}`;
    const one = await create(first, name);
    const two = await meanwhile(remove(one), end, () => create(as, name));
    const isFree = end === "commit" && as === first;
    assert.equal(await hostNameOf(two), isFree ? name : longer(name, two), name);
    assert.equal(await ownerOf(name), isFree ? two : end === "commit" ? undefined : one, name);
  }
});

test("a create waits for another of the name that is not committed, and gets the name if it is rolled back", async () => {
  const model = await create(first, "model");
  for (const [index, end] of (["commit", "rollback"] as const).entries()) {
    const name = `created-${end}`;
    const one = `mach-${String(index).padStart(32, "0")}`;
    const two = await meanwhile(copy(model, name, one), end, () => create(second, name));
    assert.equal(await hostNameOf(two), end === "commit" ? longer(name, two) : name);
    assert.equal(await ownerOf(name), end === "commit" ? one : two);
  }
});

test("creates and deletes of one name by several tenants at the same time leave each name with one living machine", async () => {
  const tenants = [first, second, await newTenant("third"), await newTenant("fourth")];
  await Promise.all(
    tenants.map(async (tenant) => {
      for (let round = 0; round < 6; round += 1) {
        const id = await create(tenant, "contested");
        assert.equal((await tenant.delete(`/v1/machines/${id}`)).status, 204);
      }
      await create(tenant, "contested");
    }),
  );
  const named = await db.query<{ name: string; id: string; isDeleted: boolean }>(sql`
    SELECT h.name, m.id, m.deleted_at IS NOT NULL AS "isDeleted" FROM hosts h JOIN machines m ON m.id = h.subject_id
    WHERE h.name LIKE 'contested%' AND h.freed_at IS NULL`);
  assert.equal(named.length, 4);
  assert.equal(new Set(named.map(({ id }) => id)).size, 4);
  assert.ok(named.every(({ isDeleted }) => !isDeleted));
});

test("the kinds of the table are those of the code", async () => {
  const check = await db.queryOne<{ definition: string }>(sql`
    SELECT pg_get_constraintdef(oid) AS definition FROM pg_constraint WHERE contype = 'c' AND conrelid = 'hosts'::regclass`);
  const kinds = [...(check?.definition ?? "").matchAll(/'([a-z]+)'::text/g)].map(([, kind]) => kind);
  assert.deepEqual(kinds.toSorted(), Object.keys(HOST_KINDS).toSorted());
});
