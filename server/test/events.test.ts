/**
 * Events of tenants: they outlive their machine, other tenants do not see them, and a follower misses none,
 * whatever order their transactions commit in.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import pg from "pg";
import { followEvents } from "../src/events/follow.ts";
import { listTenantEvents, reorderRestoredEvents } from "../src/events/store.ts";
import { type Database, sql, type Statement } from "../src/db/database.ts";
import { currentHolder, forHolder } from "../src/db/holder.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

interface Read {
  readonly id: string;
  readonly message: string;
  readonly subject: { readonly kind: string; readonly id: string };
  readonly type: string;
  readonly cursor: string;
}

const server = await startTestServer();
const { client, context } = server;
const source = { type: "image", reference: "local/busybox" };
const TENANT = (await client.post("/v1/tenants", { name: "follower" })).json.id as string;
const follower = client.withKey(
  (
    await client.post("/v1/apikeys", {
      name: "f",
      scopes: ["machine:read", "machine:create", "machine:delete"],
      tenantId: TENANT,
    })
  ).json.key,
);

const created = async (by = follower): Promise<string> => (await by.post("/v1/machines", { source })).json.id;

async function read(query = "", by = follower): Promise<readonly Read[]> {
  const answer = await by.get(`/v1/events${query}`);
  assert.equal(answer.status, 200, answer.text);
  return answer.json;
}

test("the events of one machine, and of one app, are read by an index, however many the tenant has", async () => {
  const [busy, quiet] = [await created(), await created()];
  const app = `app-${"1".repeat(32)}`;
  await context.db.execute(sql`
    INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
    SELECT 'ev-' || md5(n::text), ${TENANT}, 'machine', ${busy}, 'machine.started', '{}', 'info', 'x', now()
    FROM generate_series(1, 20000) n`);
  await context.db.execute(sql`
    INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
    SELECT 'ev-' || md5('app' || n), ${TENANT}, 'instance', 'inst-' || md5(n::text), 'instance.healthy',
      jsonb_build_object('appId', 'app-' || md5((n % 500)::text)), 'info', 'x', now()
    FROM generate_series(1, 20000) n`);
  await context.db.execute(sql`ANALYZE tenant_events`);
  const page = { tenantId: TENANT, machineId: null, appId: null, type: null, after: null, limit: 10 };
  const plans = [
    [{ ...page, machineId: quiet }, /tenant_events_of_subject/],
    [{ ...page, appId: app }, /tenant_events_of_app/],
  ] as const;
  for (const [asked, index] of plans)
    for (const plan of await plansOf((db) => listTenantEvents(db, asked))) {
      assert.match(plan, index);
      assert.doesNotMatch(plan, /tenant_events_order/);
    }
  await context.db.execute(sql`DELETE FROM tenant_events WHERE subject_id = ${busy} OR subject_kind = 'instance'`);
});

/** PostgreSQL's plans: for these parameters, and for any, as for a statement that is sent often. */
async function plansOf(ask: (db: Database) => Promise<unknown>): Promise<readonly string[]> {
  let asked: Statement | undefined;
  const db = Object.create(context.db, {
    query: { value: (statement: Statement) => ((asked = statement), context.db.query(statement)) },
  }) as Database;
  await ask(db);
  assert.ok(asked !== undefined);
  const values = asked.values.map((value) => (value === null ? "NULL" : `'${value as string | number}'`));
  const plans: string[] = [];
  for (const mode of ["force_custom_plan", "force_generic_plan"]) {
    await using connection = await connect();
    await connection.query(`SET plan_cache_mode = ${mode}`);
    await connection.query(`PREPARE asked AS ${asked.text}`);
    const { rows } = await connection.query(`EXPLAIN EXECUTE asked(${values.join()})`);
    plans.push(JSON.stringify(rows));
  }
  return plans;
}

/** All events after the cursor, page by page. */
async function follow(cursor: string | undefined, limit = 3): Promise<readonly Read[]> {
  const seen: Read[] = [];
  for (let at = cursor; ; ) {
    const events = await read(`?limit=${limit}${at === undefined ? "" : `&cursor=${at}`}`);
    seen.push(...events);
    at = events.at(-1)?.cursor;
    if (at === undefined) return seen;
  }
}

const lastCursor = async (): Promise<string | undefined> => (await follow(undefined, 1000)).at(-1)?.cursor;

async function connect(): Promise<pg.Client & AsyncDisposable> {
  const connection = new pg.Client({ connectionString: server.databaseUrl });
  await connection.connect();
  return Object.assign(connection, { [Symbol.asyncDispose]: () => connection.end() });
}

let written = 0;

/** In the connection's transaction, if there is one. */
async function write(connection: pg.Client, message: string): Promise<void> {
  written += 1;
  const id = `ev-${String(written).padStart(32, "0")}`;
  await connection.query(
    `INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
     VALUES ($1, $2, 'machine', 'mach-x', 'machine.started', '{}', 'info', $3, now())`,
    [id, TENANT, message],
  );
}

test("a tenant's events outlive their machine, name it, and are hidden from other tenants", async () => {
  const id = await created();
  await follower.delete(`/v1/machines/${id}`);
  const events = await until(
    async () => {
      const found = await read(`?machine=${id}`);
      return found.length === 2 && found;
    },
    { what: "both events" },
  );
  assert.deepEqual(
    events.map(({ message, subject }) => [message, subject.id]),
    [
      ["machine created", id],
      ["machine deleted", id],
    ],
  );
  assert.equal((await follower.get(`/v1/machines/${id}/events`)).status, 404);
  await context.db.execute(sql`DELETE FROM machines WHERE id = ${id}`);
  assert.equal((await read(`?machine=${id}`)).length, 2);
  assert.deepEqual(await read(`?machine=${id}`, client), []);
  assert.deepEqual(await read(`?cursor=${events[0]?.cursor}`, client), await read("", client));
});

test("pages have a link to the next one, also with a filter", async () => {
  const id = await created();
  await follower.delete(`/v1/machines/${id}`);
  const first = await until(
    async () => {
      const answer = await follower.get(`/v1/events?limit=1&machine=${id}`);
      return answer.headers.get("link") !== null && answer;
    },
    { what: "a second page" },
  );
  const next = /^<([^>]+)>; rel="next"$/.exec(first.headers.get("link") ?? "")?.[1] ?? "";
  const second = await follower.get(next);
  assert.deepEqual(
    [first, second].flatMap(({ json }) => (json as Read[]).map(({ message }) => message)),
    ["machine created", "machine deleted"],
  );
});

test("an event whose transaction commits late is not skipped", async () => {
  const cursor = await lastCursor();
  await using late = await connect();
  await using early = await connect();
  await late.query("BEGIN");
  await write(late, "late");
  await write(early, "early");
  assert.deepEqual(await follow(cursor), []);
  await late.query("COMMIT");
  const seen = await until(
    async () => {
      const found = await follow(cursor);
      return found.length === 2 && found;
    },
    { what: "both events" },
  );
  assert.deepEqual(
    seen.map(({ message }) => message),
    ["late", "early"],
  );
});

test("a follower sees each event once, in one order, while eight write in transactions of any length", async () => {
  const cursor = await lastCursor();
  const expected = new Set<string>();
  let isOver = false;
  const seen: string[] = [];
  const following = (async () => {
    for (let at = cursor; ; ) {
      const wasOver = isOver;
      const events = await read(`?limit=7${at === undefined ? "" : `&cursor=${at}`}`);
      seen.push(...events.map(({ message }) => message));
      at = events.at(-1)?.cursor ?? at;
      if (wasOver && events.length === 0) return;
    }
  })();
  const writers = Array.from({ length: 8 }, async (_, writer) => {
    await using connection = await connect();
    for (let transaction = 0; transaction < 12; transaction += 1) {
      await connection.query("BEGIN");
      for (let event = 0; event <= (writer + transaction) % 3; event += 1) {
        const message = `${writer} ${transaction} ${event}`;
        await write(connection, message);
        expected.add(message);
        await connection.query("SELECT pg_sleep($1)", [((writer * 7 + transaction * 5 + event) % 9) / 1000]);
      }
      await connection.query("COMMIT");
    }
  });
  await Promise.all(writers);
  isOver = true;
  await following;
  assert.equal(seen.length, expected.size);
  assert.deepEqual(new Set(seen), expected);
  assert.deepEqual(
    (await follow(cursor)).map(({ message }) => message),
    seen,
  );
});

test("events from before a restore sort before those written afterwards", async () => {
  const before = await follow(undefined, 1000);
  const cursor = before.at(-1)?.cursor;
  await context.db.execute(
    sql`UPDATE tenant_events SET transaction_id = (transaction_id::text::bigint + 4000000000)::text::xid8`,
  );
  // A few at a time, as they are when there are many.
  assert.equal(await reorderRestoredEvents(context.db, 7), before.length + (await read("", client)).length);
  assert.equal(await reorderRestoredEvents(context.db), 0);
  assert.deepEqual(await follow(undefined, 1000), before);
  // A second restore, whose renumbering begins again after a crash.
  await context.db.execute(
    sql`UPDATE tenant_events SET transaction_id = (transaction_id::text::bigint + 4000000000)::text::xid8`,
  );
  let statements = 0;
  const crashing = Object.create(context.db, {
    queryOne: {
      value: async (statement: Statement) => {
        statements += 1;
        if (statements === 3) throw new Error("crashed");
        return await context.db.queryOne(statement);
      },
    },
  }) as Database;
  await assert.rejects(reorderRestoredEvents(crashing, 7), /crashed/);
  assert.ok((await reorderRestoredEvents(context.db, 7)) > 0);
  assert.equal(await reorderRestoredEvents(context.db), 0);
  await using connection = await connect();
  await write(connection, "new");
  const after = await until(
    async () => {
      const found = await follow(cursor);
      return found.length > 0 && found;
    },
    { what: "the new event" },
  );
  assert.deepEqual(
    after.map(({ message }) => message),
    ["new"],
  );
  assert.deepEqual((await follow(undefined, 1000)).slice(0, -1), before);
});

test("an invalid cursor is refused, and one whose event was purged starts at the beginning", async () => {
  for (const cursor of ["x", "-1", "1.5", "1e3", "9".repeat(30)])
    assert.equal((await follower.get(`/v1/events?cursor=${cursor}`)).status, 422, cursor);
  assert.deepEqual(await read("?cursor=999999999999999"), await read());
});

interface Following {
  readonly query?: string;
  readonly lastId?: string;
  /** Until this id was sent, with an event or alone. */
  readonly upTo?: string | undefined;
}

/** The events of a stream until there are `count`, by their ids; then it is abandoned. */
async function followed(count: number, { query = "", lastId, upTo }: Following = {}) {
  const abandoned = new AbortController();
  const answer = await fetch(`${server.url}/v1/events?follow=true${query}`, {
    headers: {
      authorization: `Bearer ${follower.key}`,
      ...(lastId === undefined ? {} : { "last-event-id": lastId }),
    },
    signal: AbortSignal.any([abandoned.signal, AbortSignal.timeout(60_000)]),
  });
  assert.deepEqual([answer.status, answer.headers.get("content-type")], [200, "text/event-stream"]);
  const found: { id: string; data: Read }[] = [];
  let text = "";
  let passed = "";
  for await (const chunk of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += chunk;
    for (const frame of text.split("\n\n").slice(0, -1)) {
      const [, id = "", data] = /^\n*id: (.*)(?:\ndata: (.*))?$/.exec(frame) ?? [];
      passed = id;
      if (data !== undefined) found.push({ id, data: JSON.parse(data) as Read });
    }
    text = text.slice(text.lastIndexOf("\n\n") + 2);
    if (found.length >= count && (upTo === undefined || upTo === passed)) break;
  }
  abandoned.abort();
  return found;
}

test("events are followed as a stream, which continues after the last one that was received", async () => {
  const before = await follow(undefined, 1000);
  const waiting = followed(before.length + 1);
  const machine = await created();
  const all = await waiting;
  assert.deepEqual(
    all.slice(0, before.length).map(({ data }) => data),
    before,
  );
  const last = all.at(-1);
  assert.deepEqual([last?.data.subject.id, last?.id], [machine, last?.data.cursor]);
  assert.equal((await follower.delete(`/v1/machines/${machine}`)).status, 204);
  // The address of a reader that connects again has its first cursor.
  const [next] = await followed(1, { query: `&cursor=${before[0]?.cursor}`, lastId: last?.id ?? "" });
  assert.deepEqual([next?.data.subject.id, next?.data.message], [machine, "machine deleted"]);
  const ofMachine = await followed(2, { query: `&machine=${machine}` });
  assert.ok(ofMachine.every(({ data }) => data.subject.id === machine));
  assert.equal((await follower.get("/v1/events?follow=true&cursor=x")).status, 422);
});

test("events are read and followed by their type, or by all types of a subject", async () => {
  const before = await lastCursor();
  const machine = await created();
  await context.db.execute(sql`
    INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
    SELECT 'ev-typed-' || n, ${TENANT}, 'tenant', ${TENANT}, 'tenant.budgetUsed', '{"percent":80}', 'warn', n::text, now()
    FROM generate_series(1, 3) n`);
  assert.equal((await follower.delete(`/v1/machines/${machine}`)).status, 204);
  const typesOf = (events: readonly Read[]) => events.map(({ type }) => type);
  const since = `&cursor=${before ?? ""}`;
  assert.deepEqual(typesOf(await read(`?type=machine.*${since}`)), ["machine.created", "machine.deleted"]);
  assert.deepEqual(typesOf(await read(`?type=machine.deleted${since}`)), ["machine.deleted"]);
  assert.deepEqual(await read(`?type=machine.delete${since}`), []);
  const first = await follower.get(`/v1/events?type=tenant.*&limit=2${since}`);
  const next = /^<([^>]+)>; rel="next"$/.exec(first.headers.get("link") ?? "")?.[1] ?? "";
  const paged = [...first.json, ...(await follower.get(next)).json] as readonly (Read & { data: object })[];
  assert.deepEqual(
    paged.map(({ subject, data }) => [subject, data]),
    Array.from({ length: 3 }, () => [{ kind: "tenant", id: TENANT }, { percent: 80 }]),
  );
  const [deleted] = await followed(1, { query: `&type=machine.deleted${since}` });
  assert.equal(deleted?.data.type, "machine.deleted");
  const other = await created();
  const timeline = async (query: string) =>
    typesOf((await follower.get(`/v1/machines/${other}/events?${query}`)).json as readonly Read[]);
  for (const query of ["type=machine.created", "type=machine.created&limit=5", "type=machine.*&limit=1"])
    assert.deepEqual(await timeline(query), ["machine.created"], query);
  assert.deepEqual(await timeline("type=machine.deleted"), []);
  for (const type of ["machine", "*", "machine.a%25"])
    assert.equal((await follower.get(`/v1/events?type=${type}`)).status, 422, type);
  await follower.delete(`/v1/machines/${other}`);
});

test("a reader whose filter matches nothing is moved past what it left out", async () => {
  const answer = await follower.get("/v1/events?type=webhook.disabled");
  const cursor = answer.headers.get("x-cursor") ?? "";
  assert.deepEqual([answer.json, cursor], [[], await lastCursor()]);
  assert.deepEqual(await followed(0, { query: "&type=webhook.disabled", upTo: cursor }), []);
  const again = await follower.get(`/v1/events?type=webhook.disabled&cursor=${cursor}`);
  assert.equal(again.headers.get("x-cursor"), cursor);
  const machine = await created();
  const next = await until(async () => {
    const { json, headers } = await follower.get(`/v1/events?type=machine.*&cursor=${cursor}`);
    return json.length > 0 && { json: json as readonly Read[], cursor: headers.get("x-cursor") };
  });
  assert.deepEqual([next.json[0]?.subject.id, next.cursor], [machine, next.json.at(-1)?.cursor]);

  await follower.delete(`/v1/machines/${machine}`);
});

test("a machine's timeline has its newest thousand events without a limit, and all of them in pages", async () => {
  const machine = await created();
  await context.db.execute(sql`
    INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
    SELECT 'ev-long-' || n, ${TENANT}, 'machine', ${machine}, 'machine.started', '{}', 'info', n::text,
      now() + n * interval '1 ms' FROM generate_series(1, 1005) n`);
  const path = `/v1/machines/${machine}/events`;
  const newest = (await follower.get(path)).json as readonly Read[];
  assert.deepEqual(
    newest.map(({ message }) => Number(message)),
    Array.from({ length: 1_000 }, (_, at) => at + 6),
  );
  const first = await follower.get(`${path}?limit=1000`);
  const next = /^<([^>]+)>; rel="next"$/.exec(first.headers.get("link") ?? "")?.[1] ?? "";
  const all = [...first.json, ...(await follower.get(next)).json] as readonly Read[];
  assert.deepEqual(all.slice(-1_000), newest);
  assert.ok(all.length >= 1_005, `${all.length} events`);
  await follower.delete(`/v1/machines/${machine}`);
});

test("a follower's looks count for its tenant, also after its request was answered", async () => {
  const holders: (string | null)[] = [];
  const db = Object.create(context.db, {
    query: { value: (statement: Statement) => (holders.push(currentHolder()), context.db.query(statement)) },
  }) as Database;
  const clock = { ...context.clock, sleep: (_ms: number, signal?: AbortSignal) => context.clock.sleep(1, signal) };
  const asked = { tenantId: TENANT, machineId: null, appId: null, type: null, after: null };
  const answer = await forHolder(TENANT, () => followEvents({ ...context, db, clock }, asked));
  answer.resume();
  await until(() => holders.length > 2, { what: "two looks after the first" });
  answer.destroy();
  assert.deepEqual([...new Set(holders)], [TENANT]);
});

test("events are listed from the newest on, page by page, and the cursor of the answer follows what is new", async () => {
  const all = await follow(undefined, 1000);
  const first = await follower.get("/v1/events?order=desc&limit=2");
  assert.deepEqual(first.json, all.slice(-2).toReversed());
  assert.equal(first.headers.get("x-cursor"), all.at(-1)?.cursor);
  const next = /<(.*)>/.exec(first.headers.get("link") ?? "")?.[1] ?? "";
  assert.deepEqual((await follower.get(next)).json, all.slice(-4, -2).toReversed());
  const deleted = all.filter(({ type }) => type === "machine.deleted");
  const ofType = await follower.get("/v1/events?order=desc&type=machine.deleted&limit=1");
  assert.deepEqual(ofType.json, deleted.slice(-1));
  assert.deepEqual((await follower.get(`/v1/events?order=desc&cursor=${all[0]?.cursor}`)).json, []);
  const refused = await follower.get("/v1/events?order=desc&follow=true");
  assert.deepEqual([refused.status, refused.text.startsWith("order: ")], [422, true]);
});

test("a stream says what has changed and has no events, to those who may read it", async () => {
  const id = `op-${"1".repeat(32)}`;
  const stopped = new AbortController();
  const changesOf = async (key: string | null, isLast: (line: string) => boolean): Promise<readonly string[]> => {
    const answer = await fetch(`${server.url}/v1/events?follow=true&changes=true&type=machine.none`, {
      headers: { authorization: `Bearer ${key}` },
      signal: AbortSignal.any([stopped.signal, AbortSignal.timeout(60_000)]),
    });
    begun.release();
    const lines: string[] = [];
    for await (const chunk of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      lines.push(...chunk.split("\n").filter((line) => line.startsWith('data: {"kind"')));
      if (lines.some(isLast)) break;
    }
    return lines;
  };
  let waiting = 2;
  const all = Promise.withResolvers<void>();
  const begun = { release: () => void (--waiting === 0 && all.resolve()) };
  const ofTenant = changesOf(follower.key, (line) => line.includes("operation"));
  const ofOperator = changesOf(client.key, (line) => line.includes("changing"));
  await all.promise;
  await context.db.execute(sql`
    INSERT INTO nodes (id, address, status, credential_hash, registered_at)
    VALUES ('changing', 'unix:/nowhere', 'ready', sha256('changing'), now())`);
  await context.db.execute(sql`
    INSERT INTO operations (id, tenant_id, kind, status, resource_kind, resource_id, input, steps, deadline_at,
      attempt, leased_until, created_at, updated_at)
    VALUES (${id}, ${TENANT}, 'image pull', 'running', 'image', 'alpine', '{}', '[]', now() + interval '1 hour', 1,
      now() + interval '1 hour', now(), now())`);
  assert.deepEqual(await ofTenant, [`data: {"kind":"operation","id":"${id}"}`]);
  const operators = await ofOperator;
  assert.ok(operators.includes('data: {"kind":"node","id":"changing"}'));
  assert.ok(
    operators.every((line) => !line.includes(id)),
    "another tenant's operation",
  );
  stopped.abort();
});
