/**
 * The schema: how it is made, and its invariants.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { INVOICE_METERS, LEDGER_ACCOUNTS, LEDGER_KINDS } from "@flotilla/contract/billing";
import { IMAGE_FAULTS } from "@flotilla/contract/errors";
import { BUDGET_POLICIES } from "@flotilla/contract/plans";
import { TENANT_STATUSES } from "@flotilla/contract/tenants";
import pg from "pg";
import { migrate, readMigrations } from "../src/db/migrate.ts";
import { createLog } from "../src/log.ts";
import { until } from "../../test/support/until.ts";
import { freshDatabase, startTestServer } from "./support/server.ts";

const log = createLog("silent");
const migrated = await freshDatabase();

async function rows<Row extends object>(connectionString: string, text: string): Promise<readonly Row[]> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    return (await client.query<Row>(text)).rows;
  } finally {
    await client.end();
  }
}

/** Everything about the schema that a program can read, as lines. */
const CATALOG = `
  SELECT format('column %s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default) AS line
  FROM information_schema.columns WHERE table_schema = 'public'
  UNION ALL SELECT format('index %s', indexdef) FROM pg_indexes WHERE schemaname = 'public'
  UNION ALL SELECT format('constraint %s %s', conrelid::regclass, pg_get_constraintdef(oid))
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace
  ORDER BY line`;

test("migrating a migrated database does nothing", async () => {
  const before = await rows(migrated, CATALOG);
  assert.ok(before.length > 20);
  assert.deepEqual(await migrate({ connection: { connectionString: migrated }, log }), []);
  assert.deepEqual(await rows(migrated, CATALOG), before);
});

test("ten servers that migrate at the same time apply each file once", async () => {
  const connectionString = await freshDatabase({ isEmpty: true });
  const applied = await Promise.all(
    Array.from({ length: 10 }, () => migrate({ connection: { connectionString }, log })),
  );
  const versions = (await readMigrations()).map((migration) => migration.version);
  assert.deepEqual(
    applied.flat().toSorted((one, other) => one - other),
    versions,
  );
  assert.deepEqual(await rows(connectionString, CATALOG), await rows(migrated, CATALOG));
  assert.deepEqual(await rows(connectionString, "SELECT count(*)::int AS count FROM tenants"), [{ count: 1 }]);
});

test("servers that start at the same time on an empty database all serve, each with an admin key", async () => {
  const databaseUrl = await freshDatabase({ isEmpty: true });
  const servers = await Promise.all(Array.from({ length: 4 }, () => startTestServer({ databaseUrl })));
  for (const server of servers) assert.equal((await server.client.get("/v1/tenants")).json.length, 1);
  assert.equal(new Set(servers.map(({ adminKey }) => adminKey.key)).size, servers.length);
});

test("a database that has the first files gets the others", async () => {
  const connectionString = await freshDatabase({ isEmpty: true });
  const known = await readMigrations();
  const versions = known.map(({ version }) => version);
  const connection = { connectionString };
  assert.deepEqual(await migrate({ connection, log, migrations: known.slice(0, 5) }), versions.slice(0, 5));
  assert.deepEqual(await migrate({ connection, log }), versions.slice(5));
  assert.deepEqual(await rows(connectionString, CATALOG), await rows(migrated, CATALOG));
});

test("a failed migration leaves nothing of itself", async () => {
  const connectionString = await freshDatabase();
  const known = await readMigrations();
  const broken = { version: known.length + 1, name: "9999_broken", text: "CREATE TABLE half (id int); SELECT 1/0;" };
  await assert.rejects(
    migrate({ connection: { connectionString }, log, migrations: [...known, broken] }),
    /9999_broken/,
  );
  assert.deepEqual(await rows(connectionString, CATALOG), await rows(migrated, CATALOG));
  assert.deepEqual(await migrate({ connection: { connectionString }, log }), []);
});

const next = async (text: string) => {
  const known = await readMigrations();
  return [...known, { version: known.length + 1, name: "9999_next", text }];
};

test("the locks of a server that stopped in a migration are released", async () => {
  const connectionString = await freshDatabase();
  const migrations = await next(
    "CREATE TABLE bounds AS SELECT setting::int FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'",
  );
  await migrate({ connection: { connectionString }, log, migrations });
  const [bound] = await rows<{ setting: number }>(connectionString, "SELECT setting FROM bounds");
  assert.ok(bound !== undefined && bound.setting > 0 && bound.setting <= 30_000, `${bound?.setting} ms`);
});

test("a migration that waits for a table which is read for long keeps no other reader waiting", async () => {
  const connectionString = await freshDatabase();
  const reader = new pg.Client({ connectionString });
  await reader.connect();
  await reader.query("BEGIN; SELECT FROM tenants");
  const migrations = await next("ALTER TABLE tenants ADD COLUMN next int");
  const migrated = migrate({ connection: { connectionString }, log, migrations });
  try {
    const waiting =
      "SELECT FROM pg_stat_activity WHERE application_name = 'flotilla migration' AND wait_event_type = 'Lock'";
    await until(async () => (await rows(connectionString, waiting)).length === 1);
    await rows(connectionString, "SET statement_timeout = '10s'; SELECT FROM tenants");
  } finally {
    await reader.end();
  }
  assert.deepEqual(await migrated, [migrations.length]);
});

test("a database with a newer schema is refused with an explanation", async () => {
  const connectionString = await freshDatabase();
  await rows(connectionString, "INSERT INTO schema_migrations (version, name) VALUES (999, '0999_from_the_future')");
  await assert.rejects(
    migrate({ connection: { connectionString }, log }),
    /newer than this program.*0999_from_the_future/,
  );
});

test("a database of another line of the program is refused with an explanation", async () => {
  const connectionString = await freshDatabase();
  await rows(connectionString, "UPDATE schema_migrations SET name = '0001_other' WHERE version = 1");
  await assert.rejects(migrate({ connection: { connectionString }, log }), /another line of this program/);
});

test("CHECK lists equal the arrays of the contract", async () => {
  const lists = {
    "plans.budget_policy": BUDGET_POLICIES,
    "tenants.status": TENANT_STATUSES,
    "invoice_lines.meter": INVOICE_METERS,
    "ledger_transactions.kind": LEDGER_KINDS,
    "ledger_entries.account": LEDGER_ACCOUNTS,
    "machines.observed_reason_code": IMAGE_FAULTS,
  };
  for (const [name, values] of Object.entries(lists)) {
    const [table, column] = name.split(".");
    const checks = await rows<{ text: string }>(
      migrated,
      `SELECT pg_get_constraintdef(oid) AS text FROM pg_constraint
       WHERE conrelid = '${table}'::regclass AND contype = 'c' AND pg_get_constraintdef(oid) LIKE '%${column} = ANY%'`,
    );
    const listed = [...(checks[0]?.text.matchAll(/'([a-z_]+)'::text/g) ?? [])].map((match) => match[1]);
    assert.deepEqual(listed.sort(), [...values].sort(), name);
  }
});

test("there is one default plan, and the database refuses a second", async () => {
  await assert.rejects(rows(migrated, "UPDATE plans SET is_default = true"), /plans_one_default/);
});
