/**
 * A branch that takes the place of its source: what it takes, what becomes of the source, where requests go,
 * and what is refused.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type IncomingMessage, request as httpRequest } from "node:http";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { lockForAdoption } from "../src/branches/adopt-store.ts";
import { adoptionRefusal } from "../src/branches/adoption.ts";
import { type Statement, sql } from "../src/db/database.ts";
import { branchSource } from "./support/branches.ts";
import { startTestIngress } from "./support/ingress.ts";
import { startMachineServer } from "./support/machine-server.ts";
import { startTestServer } from "./support/server.ts";

const machinesUrl = "https://machines.example.com";
const { server, client, context } = await startMachineServer({ machinesUrl });
const { databaseUrl, dataDirectory } = server;
const replica = await startTestServer({ databaseUrl, dataDirectory, machinesUrl });
const ingress = await startTestIngress(server, { machinesUrl });
const PATIENT = { deadlineMs: 20_000 };
/** A change through another server is seen within milliseconds; a loaded host needs more. */
const SOON = { deadlineMs: 2_000 };

/** Each machine answers with its own host name at port 80. */
const WEB = { ports: [{ port: 80 }], public: true, env: { FAKE_LISTEN: "80=200,81=200" } };

interface Pair {
  readonly source: string;
  readonly branch: string;
}

/** A machine that serves its name, and its branch `NAME-try`. */
async function pair(name: string, fields: object = {}, branchFields: object = {}): Promise<Pair> {
  const { id: source } = await branchSource(client, { ...WEB, name, ...fields });
  const branch = await branchOf(source, `${name}-try`, branchFields);
  for (const id of [source, branch])
    await until(async () => (await client.get(`/v1/machines/${id}`)).json.ready === true, PATIENT);
  return { source, branch };
}

async function branchOf(source: string, name: string, fields: object = {}): Promise<string> {
  const made = await client.post(`/v1/machines/${source}/branches`, { name, ...fields });
  assert.equal(made.status, 201, made.text);
  return made.json.id;
}

const adopt = (id: string, body?: object, as = client) => as.post(`/v1/machines/${id}/adopt`, body);

async function open(url: string, label: string, path: string): Promise<IncomingMessage> {
  const { hostname, port } = new URL(url);
  const headers = { host: `${label}.machines.example.com` };
  const request = httpRequest({ hostname, port, path, headers, agent: false });
  request.end();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return response;
}

/** The machine that answers at the address, by the name that its guest has; else the status. */
async function whoAnswers(url: string, label: string, path = "/"): Promise<string> {
  const response = await open(url, label, path);
  const body = await text(response);
  return response.statusCode === 200 ? (body.split(" ")[0] ?? "") : String(response.statusCode);
}

const observedState = async (id: string): Promise<string | undefined> =>
  (await context.db.queryOne<{ state: string }>(sql`SELECT observed_state AS state FROM machines WHERE id = ${id}`))
    ?.state;

const nameOf = async (id: string): Promise<string> => (await client.get(`/v1/machines/${id}`)).json.name;

test("a branch has the name, url and ports of its source, which is gone, and requests reach it everywhere", async () => {
  const { source, branch } = await pair("shop");
  const urls = [server.url, replica.url, ingress.url];
  for (const url of urls)
    assert.deepEqual([await whoAnswers(url, "shop"), await whoAnswers(url, "shop-try")], ["shop", "shop-try"]);
  const adopted = await adopt(branch);
  assert.equal(adopted.status, 200, adopted.text);
  const { machine, source: kept } = adopted.json;
  assert.deepEqual([machine.id, machine.name, machine.public, kept], [branch, "shop", true, null]);
  assert.equal(machine.url, "https://shop.machines.example.com/");
  assert.equal(await whoAnswers(server.url, "shop"), "shop-try", "immediately on the server that answered");
  for (const url of urls) {
    await until(async () => (await whoAnswers(url, "shop")) === "shop-try", { what: `the branch at ${url}`, ...SOON });
    await until(async () => (await whoAnswers(url, "shop-try")) === "401", { what: `no machine at ${url}`, ...SOON });
  }
  assert.equal((await client.get(`/v1/machines/${source}`)).status, 404);
  assert.equal(await nameOf(branch), "shop");
  const again = await adopt(branch, { source: "keep" });
  assert.deepEqual([again.status, again.json.machine.name, again.json.source], [200, "shop", null], "what was done");
  const event = { from: source, by: branch, name: "shop" };
  assert.deepEqual(
    (await client.get(`/v1/machines/${branch}/events?type=machine.adopted`)).json.map(
      ({ data }: { data: object }) => data,
    ),
    [event],
  );
  const all = (await client.get("/v1/events?type=machine.adopted&limit=100")).json;
  assert.equal(all.filter(({ data }: { data: { from: string } }) => data.from === source).length, 2, "of both");
  await until(async () => (await observedState(source)) === "absent", { what: "its node to remove it", ...PATIENT });
  await client.post(`/v1/machines/${branch}/stop`);
  assert.equal((await client.post(`/v1/machines/${branch}/start`)).status, 200);
  await until(async () => (await whoAnswers(server.url, "shop")) === "shop", { what: "its host name", ...PATIENT });
});

test("a source that is kept has another name and url, and continues with its connections", async () => {
  const { source, branch } = await pair("kept");
  const stream = await open(server.url, "kept", "/events");
  await once(stream, "data");
  const adopted = await adopt(branch, { source: "keep" });
  assert.equal(adopted.status, 200, adopted.text);
  assert.deepEqual([adopted.json.machine.name, adopted.json.source.name], ["kept", "kept-was"]);
  assert.deepEqual([adopted.json.source.id, adopted.json.source.state], [source, "started"]);
  assert.equal(adopted.json.source.url, "https://kept-was.machines.example.com/");
  assert.equal(await whoAnswers(server.url, "kept"), "kept-try");
  assert.equal(await whoAnswers(server.url, "kept-was"), "kept");
  for (const url of [replica.url, ingress.url]) {
    await until(async () => (await whoAnswers(url, "kept")) === "kept-try", { what: `the branch at ${url}`, ...SOON });
    assert.equal(await whoAnswers(url, "kept-was"), "kept");
  }
  for (let events = 0; events < 2; events += 1) await once(stream, "data");
  const again = await adopt(branch, { source: "delete" });
  assert.deepEqual([again.status, again.json.source?.name], [200, "kept-was"], "what was done");
  const closed = new Promise<void>((resolve) => stream.once("close", () => resolve()));
  stream.on("error", () => undefined).resume();
  assert.equal((await client.delete(`/v1/machines/${source}`)).status, 204);
  await closed;
  assert.equal((await adopt(branch)).json.source, null);
});

test("the name of a source that is kept is generated when it is taken, and fits", async () => {
  await client.post("/v1/machines", { source: { type: "image", reference: "local/busybox" }, name: "busy-was" });
  const { branch } = await pair("busy");
  const { name } = (await adopt(branch, { source: "keep" })).json.source;
  assert.match(name, /^[a-z]+-[a-z]+-[0-9a-f]{6}$/);
  const long = "l".repeat(63);
  const { id } = await branchSource(client, { ...WEB, name: long });
  const kept = await adopt(await branchOf(id, "short"), { source: "keep" });
  assert.equal(kept.json.source.name, `${"l".repeat(59)}-was`, kept.text);
});

test("a share link leads to the branch, one of the branch itself has ended, and its ports are its source's", async () => {
  const { source, branch } = await pair("link", { public: false }, { ports: [{ port: 81 }] });
  const tokenOf = async (id: string): Promise<string> => (await client.post(`/v1/machines/${id}/share`)).json.token;
  const [ofSource, ofBranch] = [await tokenOf(source), await tokenOf(branch)];
  const opens = async (label: string, token: string): Promise<number> =>
    (await open(server.url, label, `/?t=${token}`)).resume().statusCode ?? 0;
  assert.deepEqual([await opens("link", ofSource), await opens("link-try", ofBranch)], [302, 302]);
  const adopted = await adopt(branch, { source: "keep" });
  assert.deepEqual(
    adopted.json.machine.ports.map(({ port }: { port: number }) => port),
    [80],
    adopted.text,
  );
  assert.deepEqual(
    [await opens("link", ofSource), await opens("link", ofBranch), await opens("link-was", ofSource)],
    [302, 401, 401],
  );
  assert.match((await client.get(`/v1/machines/${branch}/connect/80/`)).text, /^link-try GET \/\n/);
  assert.equal((await client.get(`/v1/machines/${branch}/connect/81/`)).status, 404);
});

test("of two branches of one source that adopt concurrently one does, and the other is refused", async () => {
  for (const body of [{ source: "delete" }, { source: "keep" }]) {
    const name = `race-${body.source}`;
    const { source, branch } = await pair(name);
    const second = await branchOf(source, `${name}-second`);
    const answers = await Promise.all([adopt(branch, body), adopt(second, body)]);
    assert.deepEqual(answers.map(({ status }) => status).toSorted(), [200, 409]);
    const [winner, loser] = answers[0]?.status === 200 ? [branch, second] : [second, branch];
    assert.deepEqual([await nameOf(winner), (await nameOf(loser)).startsWith(`${name}-`)], [name, true]);
    const refused = answers.find(({ status }) => status === 409)?.text ?? "";
    assert.match(refused, body.source === "keep" ? /has taken the place of machine/ : /was deleted; there is no place/);
  }
});

test("the same adoption that is requested twice at the same time is done once", async () => {
  const { branch } = await pair("twice");
  const answers = await Promise.all([adopt(branch, { source: "keep" }), adopt(branch, { source: "keep" })]);
  for (const { status, json, text: body } of answers)
    assert.deepEqual([status, json.machine?.name, json.source?.name], [200, "twice", "twice-was"], body);
  const events = (await client.get(`/v1/machines/${branch}/events?type=machine.adopted`)).json;
  assert.equal(events.length, 1);
});

class RolledBack extends Error {}

/** Why the branch may not take its source's place after a statement, which is rolled back. */
async function refusalAfter(branch: string, statement: Statement): Promise<string | null> {
  const { tenantId } = (await client.get("/v1/me")).json;
  let refusal: string | null = null;
  const work = context.db.transaction(async (db) => {
    await db.execute(statement);
    const facts = await lockForAdoption(db, { tenantId, id: branch });
    refusal = facts === undefined ? "not found" : adoptionRefusal(facts);
    throw new RolledBack();
  });
  await assert.rejects(work, RolledBack);
  return refusal;
}

test("what decides about each of the two, or works on it, is found in the database", async () => {
  const { source, branch } = await pair("tied");
  assert.equal(await refusalAfter(branch, sql`SELECT`), null);
  for (const id of [source, branch]) {
    const owned = (kind: string) => sql`
      INSERT INTO machine_owners (machine_id, kind, id, created_at) VALUES (${id}, ${kind}, 'owner', now())`;
    const operation = (status: string) => sql`
      INSERT INTO operations (id, tenant_id, kind, status, resource_kind, resource_id, input, steps, attempt,
        leased_until, deadline_at, created_at, updated_at)
      SELECT 'op-eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee', tenant_id, 'machine export', ${status}, 'machine', id, '{}', '[]', 1,
        CASE WHEN ${status} = 'running' THEN now() END, now(), now(), now() FROM machines WHERE id = ${id}`;
    const leased = sql`
      INSERT INTO leases (tenant_id, id, operation_id, machine_id, state, owner_hash)
      SELECT tenant_id, 'job', 'op-x', id, 'ready', '' FROM machines WHERE id = ${id}`;
    const moving = sql`UPDATE machines SET move_id = 'op-x', move_node_id = node_id WHERE id = ${id}`;
    const cases: readonly (readonly [Statement, string])[] = [
      [owned("pool"), "waits in pool owner"],
      [owned("app"), "is an instance of app owner"],
      [operation("running"), "is used by operation op-eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee (machine export)"],
      [leased, "is the branch of lease job"],
      [moving, "is being moved by operation op-x"],
    ];
    for (const [statement, sentence] of cases)
      assert.ok((await refusalAfter(branch, statement))?.startsWith(`machine ${id} ${sentence}`), sentence);
    assert.equal(await refusalAfter(branch, operation("succeeded")), null);
  }
});

test("what may not adopt is refused with a sentence, and nothing has changed", async () => {
  const { source, branch } = await pair("refused");
  const refused = async (id: string, sentence: RegExp, status = 409): Promise<void> => {
    const answer = await adopt(id);
    assert.deepEqual([answer.status, sentence.test(answer.text)], [status, true], answer.text);
    assert.deepEqual([await nameOf(source), await nameOf(branch)], ["refused", "refused-try"]);
  };
  await refused(source, /is not a branch of another machine/);
  await refused(`mach-${"0".repeat(32)}`, /was not found/, 404);
  const lease = await client.post(`/v1/machines/${source}/assign`, { leaseId: "job" });
  assert.equal(lease.status, 201, lease.text);
  await refused(lease.json.machineId, /is the branch of lease job/);
  await client.post(`/v1/machines/${branch}/stop`);
  await refused(branch, /does not run, it is in state stopped; start it first/);
  await client.post(`/v1/machines/${branch}/start`);
  assert.equal((await client.delete(`/v1/machines/${source}`)).status, 204);
  const gone = await adopt(branch);
  assert.deepEqual([gone.status, /was deleted; there is no place to take/.test(gone.text)], [409, true], gone.text);
  assert.equal(await nameOf(branch), "refused-try");
  const wrong = await client.post(`/v1/machines/${branch}/adopt`, { source: "destroy" });
  assert.equal(wrong.status, 422, wrong.text);
});

test("a branch of a branch takes the place of its direct source only", async () => {
  const { source, branch } = await pair("old");
  const young = await branchOf(branch, "old-young");
  assert.equal((await adopt(young)).json.machine.name, "old-try");
  const again = await adopt(young);
  assert.deepEqual([again.status, again.json.machine.name, await nameOf(source)], [200, "old-try", "old"]);
});

test("another tenant's machine is not found, and a key that may not delete is refused", async () => {
  const { branch } = await pair("theirs");
  const tenant = await client.post("/v1/tenants", { name: "other" });
  const key = await client.post("/v1/apikeys", { tenantId: tenant.json.id });
  assert.equal((await adopt(branch, {}, client.withKey(key.json.key))).status, 404);
  const creator = await client.post("/v1/apikeys", { scopes: ["machine:create"] });
  assert.equal((await adopt(branch, {}, client.withKey(creator.json.key))).status, 403);
  assert.equal(await nameOf(branch), "theirs-try");
});
