/**
 * A server whose clock was a month ahead, and was set back: what it had postponed then is done now, and not
 * in a month.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import type { Context } from "../src/context.ts";
import { sql } from "../src/db/database.ts";
import { instantOf } from "../src/db/instant.ts";
import { openDatabase } from "../src/db/postgres.ts";
import { claimKey } from "../src/api/idempotency-store.ts";
import { claimDueMachines } from "../src/machines/store.ts";
import { claimOperations } from "../src/operations/store.ts";
import { clockReconciler } from "../src/reconcilers/clocks.ts";
import { startReceiver } from "./support/receiver.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const MONTH_MS = 30 * 24 * 60 * 60_000;
const DEADLINE_MS = 30_000;

let aheadMs = MONTH_MS;
const clock: Clock = { ...systemClock, now: () => Date.now() + aheadMs };

/** A database that a server has used, and no server uses any more. */
async function leftDatabase(): Promise<Context> {
  const server = await startTestServer({ clock });
  const made = await server.client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" } });
  assert.equal(made.status, 201, made.text);
  await server.stop();
  const db = openDatabase({
    connection: { connectionString: server.databaseUrl },
    clock: systemClock,
    log: server.context.log,
  });
  after(() => db.close());
  return { ...server.context, db };
}
const left = await leftDatabase();
const [machine] = await left.db.query<{ id: string; tenantId: string; keyId: string }>(sql`
  SELECT m.id, m.tenant_id AS "tenantId", k.id AS "keyId" FROM machines m JOIN api_keys k USING (tenant_id)`);
assert.ok(machine !== undefined);

test.beforeEach(() => {
  aheadMs = MONTH_MS;
});

/** The clock is right now, and a loop has noticed what was postponed before. */
async function setBack(context: Context): Promise<void> {
  aheadMs = 0;
  const { errors, isRepair } = await clockReconciler(context).activate(new AbortController().signal);
  assert.deepEqual([errors, isRepair], [[], true]);
  // Leases end a minute later, unless their server lives.
  aheadMs = 61_000;
}

/** Before and after the clock is set back, the second claim finds nothing. */
const ONCE_EACH = [1, 0, 1, 0];

/** How many are claimed by two claims before the clock is set back, and by two after it. */
async function claims(claim: () => Promise<{ readonly length: number }>): Promise<readonly number[]> {
  const first = (await claim()).length;
  const again = (await claim()).length;
  await setBack(left);
  return [first, again, (await claim()).length, (await claim()).length];
}

test("a webhook receives what happens after the clock was set back", async () => {
  const { client, context } = await startTestServer({
    clock,
    webhookNetworks: ["127.0.0.0/8"],
    webhookHttp: true,
    resolve: async () => [{ address: "127.0.0.1", family: 4 }],
  });
  const { db } = context;
  const receiver = await startReceiver();
  const hook = await client.post("/v1/webhooks", { url: receiver.url });
  assert.equal(hook.status, 201, hook.text);
  const idOf = (number: number): string => `ev-${String(number).padStart(32, "0")}`;
  const emit = (number: number) =>
    db.execute(sql`
      INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
      SELECT ${idOf(number)}, tenant_id, 'machine', 'mach-1', 'machine.started', '{}', 'info', 'x',
        ${instantOf(clock.now())}::timestamptz
      FROM webhooks WHERE id = ${hook.json.id}`);
  // An attempt whose answer a busy host is late to read is repeated.
  const arrived = (number: number) =>
    until(() => receiver.accepted.some(({ id }) => id === idOf(number)), {
      what: `event ${number}`,
      deadlineMs: DEADLINE_MS,
    });
  const isReleased = () =>
    db.queryOne(sql`SELECT id FROM webhooks WHERE id = ${hook.json.id} AND leased_until <= ${instantOf(clock.now())}`);
  await emit(1);
  await arrived(1);
  await until(isReleased, { what: "the end of the lease", deadlineMs: DEADLINE_MS });
  await setBack(context);
  await emit(2);
  await arrived(2);
});

test("an operation of a server that died before its clock was set back is claimed by the next one", async () => {
  const now = instantOf(clock.now());
  await left.db.execute(sql`
    INSERT INTO operations (id, tenant_id, kind, status, resource_kind, resource_id, input, steps, created_at, updated_at, deadline_at, attempt, leased_until)
    SELECT 'op-' || repeat('0', 32), ${machine.tenantId}, 'machine move', 'running', 'machine', ${machine.id}, '{}', '[]', ${now}::timestamptz, ${now}::timestamptz,
      ${now}::timestamptz, 0, ${now}::timestamptz`);
  const room = { all: 8, ofOwners: new Map(), ofOthers: 8 };
  assert.deepEqual(
    await claims(() => claimOperations(left, { kinds: ["machine move"], room, leaseMs: 10_000 })),
    ONCE_EACH,
  );
});

test("a machine that is not in its desired state is looked at again", async () => {
  await left.db.execute(sql`UPDATE machines SET reconcile_at = ${instantOf(clock.now())} WHERE id = ${machine.id}`);
  assert.deepEqual(await claims(() => claimDueMachines(left, { limit: 8, leaseMs: 12_000 })), ONCE_EACH);
});

test("a request whose server died runs again under its idempotency key", async () => {
  const owners = ["first", "second", "third", "fourth"];
  const claim = async (): Promise<readonly unknown[]> => {
    const [at, owner] = [clock.now(), owners.shift() ?? ""];
    const key = { keyId: machine.keyId, key: "one", owner, fingerprint: Buffer.from("a request") };
    const row = await claimKey(left.db, { ...key, at, leaseUntil: at + 60_000, expiresAt: at + 24 * 60 * 60_000 });
    return row?.owner === owner ? [row] : [];
  };
  assert.deepEqual(await claims(claim), ONCE_EACH);
});
