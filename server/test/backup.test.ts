/**
 * Backups of an external database, and restores into another: what is refused, what ends access, what is
 * moved on.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, openSync, statSync } from "node:fs";
import { chown, copyFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import pg from "pg";
import { type MadeBackup, makeBackup } from "../src/backup/backup.ts";
import { markPending } from "../src/backup/pending.ts";
import { restoreBackup } from "../src/backup/restore.ts";
import { createLog } from "../src/log.ts";
import { Secrets } from "../src/secrets.ts";
import { makeDisk } from "./support/disk.ts";
import { freshDatabase } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const directory = await mkdtemp(join(tmpdir(), "flotilla-backup-"));
const source = await freshDatabase();
const file = join(directory, "backup.tar.gz");
let made: Promise<MadeBackup>;
const place = { log: createLog("error"), signal: new AbortController().signal };

async function query<Row extends object>(databaseUrl: string, text: string): Promise<readonly Row[]> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    return (await client.query<Row>(text)).rows;
  } finally {
    await client.end();
  }
}

/** A final invoice over nothing. */
const invoiceOf = (month: string, number: number): string =>
  `INSERT INTO invoices (tenant_id, month, number, cut, finalized_at, line_count, total_micros)
   VALUES ('t', '${month}', ${number}, 1, now(), 0, 0)`;

before(async () => {
  const dataDirectory = join(directory, "source");
  await mkdir(dataDirectory);
  await writeFile(join(dataDirectory, "secrets.key"), "a key", { mode: 0o600 });
  await query(
    source,
    `INSERT INTO tenants (id, name) VALUES ('t', E'tab\\t, line\\n, \\\\ and ☃');
     INSERT INTO api_keys (id, tenant_id, key_hash, scopes) VALUES ('k', 't', sha256('k'), '{admin}');
     INSERT INTO nodes (id, address, status, credential_hash, registered_at) VALUES ('n', 'parked:n', 'ready', sha256('n'), now());
     INSERT INTO apps (id, tenant_id, name, count, is_public, created_by, created_at, updated_at, route_version)
       VALUES ('app-' || repeat('0', 32), 't', 'a', 0, false, 'k', now(), now(), 0);
     INSERT INTO app_shares (app_id, token_hash, created_by, created_at)
       VALUES ('app-' || repeat('0', 32), sha256('s'), 'k', now());
     INSERT INTO machine_copies (machine_id, node_id) VALUES ('m', 'n');
     INSERT INTO leases (tenant_id, id, operation_id, machine_id, state, owner_hash, heartbeat_seconds, heartbeat_at)
       VALUES ('t', 'l', 'op', 'm', 'ready', sha256('o'), 60, now() - interval '1 day');
     INSERT INTO branch_points (id, tenant_id, operation_id, machine_id, node_id, has_memory, created_at, made_at)
       SELECT 'point-' || repeat(n::text, 32), 't', 'op' || n, 'm', 'n', false, now(), CASE n WHEN 1 THEN now() END
       FROM generate_series(0, 1) n;
     INSERT INTO checkpoints (id, tenant_id, name, machine_id, point_id, machine, has_memory, created_at)
       SELECT replace(id, 'point', 'ckpt'), 't', operation_id, 'm', id, '{}', false, now() FROM branch_points;
     INSERT INTO join_tokens (prefix, token_hash, created_at, expires_at, max_uses)
       VALUES ('0123456789ab', sha256('j'), now(), now() + interval '1 day', 5);
     INSERT INTO operations (id, tenant_id, kind, status, resource_kind, resource_id, input, steps, created_at, updated_at, deadline_at, attempt, leased_until)
       VALUES ('op-' || repeat('0', 32), 't', 'node drain', 'running', 'node', 'n', '{}', '[{"name":"wait","status":"running"}]', now(), now(), now(), 1, now());
     INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
       VALUES ('e', 't', 'tenant', 't', 'tenant.budgetUsed', '{}', 'info', 'hello', now());
     UPDATE invoice_counter SET last_number = 1;
     ${invoiceOf("2026-01-01", 1)}`,
  );
  const now = systemClock.now();
  made = makeBackup({ ...place, dataDirectory, databaseUrl: source, to: file, version: "1", now });
  await made;
});
after(async () => await rm(directory, { recursive: true, force: true }));

const restoreTo = (databaseUrl: string, name: string, revokesKeys = false) =>
  restoreBackup({ ...place, from: file, dataDirectory: join(directory, name), databaseUrl, revokesKeys });

test("a restored database has the rows of the backup, and nothing that would harm nodes which are ahead of it", async () => {
  const target = await freshDatabase({ isEmpty: true });
  const { access } = await restoreTo(target, "whole");
  assert.deepEqual([access.keys, access.shares], [1, 1]);
  assert.equal(await readFile(join(directory, "whole", "secrets.key"), "utf8"), "a key");
  assert.deepEqual(await readdir(join(directory, "whole")), ["secrets.key"]);
  const names = "SELECT name FROM tenants ORDER BY id";
  assert.deepEqual(await query(target, names), await query(source, names));
  const [settled] = await query(
    target,
    `SELECT (SELECT status FROM nodes) AS node, (SELECT count(*)::int FROM machine_copies) AS copies,
       (SELECT heartbeat_at > now() - interval '1 minute' FROM leases) AS "isLeaseAlive",
       (SELECT expires_at <= now() FROM join_tokens) AS "isTokenOver",
       (SELECT string_agg(name, ',') FROM checkpoints) AS checkpoints,
       (SELECT status || ' ' || (steps -> 0 ->> 'status') FROM operations) AS operation,
       (SELECT revoked_at IS NULL FROM api_keys WHERE id = 'k') AS "isKeyValid",
       (SELECT count(*)::int FROM audit_log WHERE record LIKE '%"type":"operator.restore"%') AS restores`,
  );
  assert.deepEqual(settled, {
    node: "unreachable",
    copies: 0,
    isLeaseAlive: true,
    isTokenOver: true,
    checkpoints: "op1",
    operation: "failed failed",
    isKeyValid: true,
    restores: 1,
  });
  const [event] = await query<{ position: string }>(
    target,
    `INSERT INTO tenant_events (id, tenant_id, subject_kind, subject_id, type, data, level, message, created_at)
     VALUES ('f', 't', 'tenant', 't', 'tenant.budgetUsed', '{}', 'info', 'later', now()) RETURNING position`,
  );
  assert.ok(Number(event?.position) > 1_000_000_000, "a position that a client knows would name another event");
  await assert.rejects(query(target, "DELETE FROM audit_log"), /append-only/);
});

const secondOf = (series: string): number =>
  Date.parse(series.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, "$1-$2-$3T$4:$5:$6Z"));

test("numbers of invoices that were given since the backup name no other invoice: each restore begins a series", async () => {
  const names = new Set<string>();
  for (const name of ["series", "series again"]) {
    const target = await freshDatabase({ isEmpty: true });
    await restoreTo(target, name);
    await assert.rejects(query(target, invoiceOf("2026-02-01", 2)), /the numbers of invoices have a gap/);
    await query(target, `UPDATE invoice_counter SET last_number = 1; ${invoiceOf("2026-02-01", 1)}`);
    const [before, after] = await query<{ series: string; number: string; note: string }>(
      target,
      `SELECT i.series, i.number, l.note FROM invoices i JOIN ledger_transactions l ON l.invoice_month = i.month ORDER BY i.month`,
    );
    assert.deepEqual(before, { series: "", number: "1", note: "invoice 1" });
    assert.match(after?.series ?? "", /^20\d{6}T\d{6}Z$/);
    assert.deepEqual([after?.number, after?.note], ["1", `invoice ${after?.series}-1`]);
    names.add(after?.series ?? "");
    const earlier = invoiceOf("2026-03-01", 2)
      .replace("(tenant_id,", "(series, tenant_id,")
      .replace("('t',", "('', 't',");
    await assert.rejects(query(target, `UPDATE invoice_counter SET last_number = 2; ${earlier}`), /current series/);
    // A series is named after its second.
    await until(() => Math.floor(Date.now() / 1000) * 1000 > secondOf(after?.series ?? ""));
  }
  assert.equal(names.size, 2);
});

test("a restore may end every key and share link", async () => {
  const target = await freshDatabase({ isEmpty: true });
  const { access } = await restoreTo(target, "revoked", true);
  assert.deepEqual([access.keys, access.shares], [0, 0]);
});

test("a restore that is continued ends every key, also if the interrupted one was not asked to", async () => {
  const target = await freshDatabase({ isEmpty: true });
  await restoreTo(target, "continued");
  const { sha256 } = await made;
  await markPending(join(directory, "continued"), sha256);
  const { access } = await restoreTo(target, "continued", true);
  assert.equal(access.keys, 0);
});

test("a database with tables, and a directory with another key, are refused and stay as they are", async () => {
  await assert.rejects(restoreTo(source, "other"), /has tables, which a restore does not replace/);
  await writeFile(join(directory, "other", "secrets.key"), "another key");
  const target = await freshDatabase({ isEmpty: true });
  await assert.rejects(restoreTo(target, "other"), /secrets\.key exists and is not that of the backup/);
  assert.deepEqual(await readdir(join(directory, "other")), ["secrets.key"]);
  assert.deepEqual(await query(target, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'"), []);
});

test("a backup without the key of what is encrypted in the database is refused", async () => {
  const databaseUrl = await freshDatabase();
  const backup = async (name: string) => {
    const dataDirectory = join(directory, name);
    const to = join(dataDirectory, "backup.tar.gz");
    await mkdir(dataDirectory, { recursive: true });
    return await makeBackup({ ...place, dataDirectory, databaseUrl, to, version: "1", now: systemClock.now() });
  };
  await backup("nothing encrypted");
  const key = join(directory, "key of the servers");
  const secrets = new Secrets(key, randomBytes);
  const sealed = secrets.seal("fleet authority f", { privateKey: "key" }).toString("hex");
  await query(databaseUrl, `INSERT INTO fleet_authorities VALUES ('f', '', '\\x${sealed}', now())`);
  await assert.rejects(backup("no key"), /has not the file secrets\.key with which/);
  await mkdir(join(directory, "other key"));
  new Secrets(join(directory, "other key", "secrets.key"), randomBytes).seal("m", {});
  await assert.rejects(backup("other key"), /has not the file secrets\.key with which/);
  assert.deepEqual(await readdir(join(directory, "other key")), ["secrets.key"]);
  await copyFile(key, join(directory, "other key", "secrets.key"));
  assert.equal((await backup("other key")).sealedOtherwise, 0);
  // A server that lacked the file has made one for a new secret.
  await mkdir(join(directory, "made later"));
  const later = new Secrets(join(directory, "made later", "secrets.key"), randomBytes);
  const authority = later.seal("fleet authority g", {}).toString("hex");
  await query(databaseUrl, `INSERT INTO fleet_authorities VALUES ('g', '', '\\x${authority}', now(), now())`);
  assert.equal((await backup("made later")).sealedOtherwise, 1);
});

test("a backup to a directory that is missing names the file, and says what to do", async () => {
  const to = join(directory, "missing", "backup.tar.gz");
  const dataDirectory = join(directory, "source");
  const backup = makeBackup({ ...place, dataDirectory, databaseUrl: source, to, version: "1", now: systemClock.now() });
  await assert.rejects(backup, /missing\/backup\.tar\.gz cannot be written: .*; name another file with --to$/);
});

test("a backup to standard output fails when the end of it finds no room", {
  skip: process.getuid?.() === 0 ? false : "mounting a file system needs root",
}, (t) => {
  const program = join(import.meta.dirname, "../src/backup/main.ts");
  // The socket's path goes through a descriptor of this process.
  const databaseUrl = source.replace("self", String(process.pid));
  const env = { ...process.env, DATABASE_URL: databaseUrl, FLOTILLA_DATA_DIR: join(directory, "source") };
  const backupTo = (path: string) => {
    const fd = openSync(path, "w", 0o600);
    try {
      return spawnSync(process.execPath, [program, "backup", "--to=-"], { env, stdio: ["ignore", fd, "pipe"] });
    } finally {
      closeSync(fd);
    }
  };
  const whole = join(directory, "whole.tar.gz");
  assert.equal(backupTo(whole).status, 0);
  const disk = makeDisk(t, `${Math.floor((statSync(whole).size - 64) / 4096) * 4}k`);
  const { status, stderr } = backupTo(join(disk, "cut-off"));
  assert.deepEqual([status, /no space left/.test(String(stderr))], [1, true], String(stderr));
});

test("a bad setting is named in one line, and so is a directory of another user with what to do", {
  skip: process.getuid?.() === 0 ? false : "making a directory of another user needs root",
}, async () => {
  const program = join(import.meta.dirname, "../src/backup/main.ts");
  // Root as an ordinary user, who may not read what others have kept to themselves.
  const reduced = ["--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search"];
  const run = (env: NodeJS.ProcessEnv) => {
    const all = { ...process.env, FLOTILLA_DATA_DIR: join(directory, "private"), ...env };
    const argv = [...reduced, process.execPath, program, "backup", "--to=/dev/null"];
    const { status, stderr } = spawnSync("setpriv", argv, { env: all, encoding: "utf8" });
    return [status, stderr];
  };
  const expected = "flotilla backup: DATABASE_URL is (hidden): expected postgres://user@host:port/database\n";
  assert.deepEqual(run({ DATABASE_URL: "mysql://db" }), [2, expected]);
  await mkdir(join(directory, "private"), { mode: 0o700 });
  await chown(join(directory, "private"), 65_534, 65_534);
  const [status, text] = run({ DATABASE_URL: "" });
  assert.equal(status, 1);
  assert.match(String(text), /^flotilla backup: EACCES: .*; run it as the user that runs the server\n$/);
});
