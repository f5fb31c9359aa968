/**
 * Packages: what an export asks of a node and records, machines that are made from packages, lists, deletes,
 * retention and the meter. A played node says that it has pushed.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ExportFault } from "@flotilla/contract/link/packages";
import { until } from "../../test/support/until.ts";
import { sql } from "../src/db/database.ts";
import { awaitExport, EXPORT_STEPS, type ExportInput } from "../src/packages/export.ts";
import { ExportFigures } from "../src/packages/figures.ts";
import { claimUnused } from "../src/registry/store.ts";
import { exportWorker } from "../src/packages/worker.ts";
import type { MachineServices } from "../src/machines/services.ts";
import type { Client } from "./support/client.ts";
import { claimedOperation, endOf, letLeaseRunOut, workUntil } from "./support/dying-server.ts";
import { createMachine } from "./support/machine-server.ts";
import { TEST_JOIN_TOKEN } from "./support/node.ts";
import { digestOf, doneLine, FACTS, GB, observedAs, playNode, pushes, putPackage } from "./support/packages.ts";
import { startRegistryServer } from "./support/oci.ts";
import { startTestServer } from "./support/server.ts";
import { openTestServices } from "./support/services.ts";

const server = await startRegistryServer({ joinToken: TEST_JOIN_TOKEN });
const { client, context } = server;
const { db } = context;
const node = await playNode(server);
const { tenantId, registryNamespace } = (await client.get("/v1/me")).json;
const MB = 1024 ** 2;

async function tenant(name: string): Promise<{ readonly id: string; readonly client: Client }> {
  const { id } = (await client.post("/v1/tenants", { name })).json;
  const key = await client.post("/v1/apikeys", { tenantId: id });
  return { id, client: client.withKey(key.json.key) };
}
const other = await tenant("other");

/** A machine that has run and is stopped. */
async function stopped(fields: object = {}, owner = client): Promise<string> {
  const id = await createMachine(owner, fields);
  assert.equal((await owner.post(`/v1/machines/${id}/start`)).status, 200);
  assert.equal((await owner.post(`/v1/machines/${id}/stop`)).status, 200);
  return id;
}

const exported = (id: string, body: object = {}, owner = client) => owner.post(`/v1/machines/${id}/export`, body);
const leases = async (): Promise<number> => (await db.query(sql`SELECT FROM registry_leases`)).length;
const eventsOf = async (type: string, owner = client): Promise<readonly { readonly data: object }[]> =>
  (await owner.get(`/v1/events?type=${type}`)).json;

test("an export answers with the package, which is listed with its lineage, and an unchanged disk has the same digest", async () => {
  const id = await stopped({ name: "Web.App_1" });
  const first = await exported(id);
  assert.equal(first.status, 200, first.text);
  const reference = `${registryNamespace}/web-app-1:latest`;
  const digest = digestOf(`manifest of ${id}`);
  assert.deepEqual(first.json, { reference, digest, sizeBytes: 5 * MB, platforms: ["linux/amd64"] });
  assert.deepEqual((await exported(id)).json, first.json);
  const listed = (await client.get("/v1/packages")).json.find((each: { digest: string }) => each.digest === digest);
  assert.deepEqual(
    { ...listed, createdAt: 0, updatedAt: 0 },
    {
      ...{ reference, digest, tags: ["latest"], sizeBytes: MB + 1000, diskGb: 3, architecture: "amd64" },
      ...{ image: FACTS.imageReference, imageDigest: FACTS.imageDigest, machineId: "mach-gone" },
      ...{ createdAt: 0, updatedAt: 0 },
    },
  );
  const [event] = await eventsOf("package.exported");
  assert.deepEqual(event?.data, { reference, digest, machineId: id, sizeBytes: 5 * MB, sentBytes: 2 * MB });
  const operations = (await client.get("/v1/operations")).json;
  const [operation] = operations.filter(({ resource }: { resource: { id: string } }) => resource.id === id);
  assert.equal(operation.kind, "machine export");
  assert.deepEqual(
    operation.steps.map((step: { name: string; digest?: string; sentBytes?: number }) => [
      ...[step.name, step.digest, step.sentBytes],
    ]),
    [
      [EXPORT_STEPS.wait, undefined, undefined],
      [EXPORT_STEPS.export, digest, 2 * MB],
      [EXPORT_STEPS.record, undefined, undefined],
    ],
  );
  assert.equal(await leases(), 0);
  const { text } = await client.get("/metrics");
  assert.match(text, /^flotilla_exports_total 2$/m);
});

test("a package has the machine's command, ports and labels, its environment only if asked for, and never secrets", async () => {
  const id = await stopped({
    ...{ command: ["serve", "--all"], ports: [{ port: 80 }], labels: { team: "red" }, workdir: "/srv" },
    ...{ env: { MODE: "x" }, secretEnv: { TOKEN: "hidden" } },
  });
  node.exports.length = 0;
  await exported(id, { tag: "one", name: "tools/serve" });
  await exported(id, { tag: "two", name: "tools/serve", includeEnv: true });
  const [without, withEnv] = node.exports;
  const configuration = { entrypoint: [], command: ["serve", "--all"], env: null, workdir: "/srv", user: null };
  assert.deepEqual(without, {
    ...{ operationId: without?.operationId, repository: `${registryNamespace}/tools/serve`, tag: "one" },
    ...{ image: { reference: "local/busybox", digest: null }, configuration, ports: [80], labels: { team: "red" } },
    architecture: null,
  });
  assert.deepEqual(withEnv?.configuration.env, { MODE: "x" });
  assert.ok(!JSON.stringify(node.exports).includes("hidden"));
});

test("what cannot be exported is refused before an operation begins", async () => {
  const fresh = await createMachine(client);
  const running = await createMachine(client);
  await client.post(`/v1/machines/${running}/start`);
  const id = await stopped();
  const before = (await client.get("/v1/operations")).json.length;
  const refusals: readonly (readonly [string, object, number, RegExp])[] = [
    [fresh, {}, 409, /was never started/],
    [running, {}, 409, /is not stopped/],
    ["mach-none", {}, 404, /was not found/],
    [id, { tag: "a b" }, 400, /tag "a b"/],
    [id, { name: "Upper" }, 400, /package reference "Upper"/],
    [id, { name: "web:1" }, 400, /a name alone/],
    [id, { name: "docker.io/web" }, 400, /names another registry/],
    [id, { name: `tenants/${other.id}/web` }, 404, /was not found/],
  ];
  for (const [machine, body, status, text] of refusals) {
    const answer = await exported(machine, body);
    assert.deepEqual([answer.status, text.test(answer.text)], [status, true], answer.text);
  }
  const theirs = await stopped({}, other.client);
  assert.equal((await exported(theirs)).status, 404);
  assert.equal((await exported(theirs, { name: "library/web" }, other.client)).status, 403);
  assert.equal((await client.get("/v1/operations")).json.length, before);
  const generation = (await db.queryOne<{ generation: number }>(sql`SELECT generation FROM machines WHERE id = ${id}`))
    ?.generation;
  await node.report([observedAs(id, generation ?? 0, "stopped", { suspendedAt: Date.now() })]);
  const suspended = await exported(id);
  assert.deepEqual([suspended.status, /is suspended/.test(suspended.text)], [409, true], suspended.text);
});

test("an equal request finds the export that runs, another one waits for it, and a detached one answers at once", async () => {
  const id = await stopped();
  const ends = Promise.withResolvers<void>();
  node.exports.length = 0;
  node.onExport = async (played) => {
    await ends.promise;
    await pushes(db)(played);
  };
  try {
    const detached = await client.post(`/v1/machines/${id}/export?detach=true`, { name: "twice" });
    assert.equal(detached.status, 202, detached.text);
    assert.deepEqual([detached.json.kind, detached.json.status], ["machine export", "running"]);
    const equal = await client.post(`/v1/machines/${id}/export?detach=true`, { name: "twice" });
    assert.equal(equal.json.id, detached.json.id);
    const later = await client.post(`/v1/machines/${id}/export?detach=true`, { name: "twice", tag: "later" });
    assert.notEqual(later.json.id, detached.json.id);
    await until(async () => {
      const { steps } = (await client.get(`/v1/operations/${later.json.id}`)).json;
      return node.exports.length === 1 && steps[0].status === "running";
    });
    const services = openTestServices(server);
    const { signal } = new AbortController();
    const record = { ...detached.json, tenantId };
    const awaited = await awaitExport(services, record, { maxMs: 0, signal });
    assert.equal(awaited.made, null, "an answer does not wait for longer");
    await services.stop();
    ends.resolve();
    for (const each of [detached, later]) assert.equal(await endOf(client, each.json.id), "succeeded");
    assert.deepEqual(
      node.exports.map(({ tag }) => tag),
      ["latest", "later"],
    );
  } finally {
    ends.resolve();
    node.onExport = pushes(db);
  }
  assert.equal(await leases(), 0);
});

test("what a node says refuses the export, with nothing left; what may be temporary is tried again", async () => {
  const id = await stopped();
  const faults: readonly (readonly [ExportFault, number])[] = [
    ...([["started", 409] as const, ["suspended", 409] as const, ["no_space", 507] as const] as const),
    ...([["refused", 422] as const, ["unreadable", 409] as const] as const),
  ];
  try {
    for (const [code, status] of faults) {
      node.onExport = ({ say }) => say({ kind: "failed", message: `because of ${code}`, code });
      const answer = await exported(id);
      assert.deepEqual([answer.status, /because of/.test(answer.text)], [status, true], answer.text);
    }
    assert.equal(await leases(), 0);
    let tries = 0;
    node.onExport = async (played) => {
      tries += 1;
      if (tries === 1) return void played.response.destroy();
      if (tries === 2) return played.say({ kind: "failed", message: "the registry does not answer", code: null });
      await pushes(db)(played);
    };
    const answer = await exported(id);
    assert.deepEqual([answer.status, tries], [200, 3], answer.text);
    node.onExport = ({ say }) => say(doneLine(digestOf("of nothing")));
    const gone = await exported(id);
    assert.deepEqual([gone.status, /was deleted while/.test(gone.text)], [503, true], gone.text);
  } finally {
    node.onExport = pushes(db);
  }
});

test("a canceled export ends on its node, and its lease with it", async () => {
  const id = await stopped();
  const begun = Promise.withResolvers<void>();
  const cut = Promise.withResolvers<void>();
  node.onExport = async ({ response }) => {
    response.on("close", () => cut.resolve());
    begun.resolve();
    await cut.promise;
  };
  try {
    const { json } = await client.post(`/v1/machines/${id}/export?detach=true`);
    await begun.promise;
    assert.equal(await leases(), 1);
    await client.post(`/v1/operations/${json.id}/cancel`);
    await cut.promise;
    assert.equal(await endOf(client, json.id), "canceled");
    assert.equal(await leases(), 0);
  } finally {
    node.onExport = pushes(db);
  }
});

for (const [at, last] of Object.entries(EXPORT_STEPS))
  test(`a server that dies after "${last}" leaves an export that another one completes, or ends`, async () => {
    const machineId = await stopped();
    const workerOf = (services: MachineServices) => exportWorker(services, services.registry, new ExportFigures());
    const claimed = (tag: string) => {
      const input: ExportInput = { machineId, repository: `${registryNamespace}/dies-${at}`, tag, includesEnv: false };
      return claimedOperation(context, {
        ...{ id: context.ids.make("operation"), tenantId, kind: "machine export", input },
        ...{ resource: { kind: "machine", id: machineId, name: null }, steps: Object.values(EXPORT_STEPS) },
      });
    };
    const completed = await claimed("one");
    await workUntil(server, workerOf, { operation: completed, last });
    await letLeaseRunOut(context, completed.id);
    assert.equal(await endOf(client, completed.id), "succeeded");
    const canceled = await claimed("two");
    await workUntil(server, workerOf, { operation: canceled, last });
    await letLeaseRunOut(context, canceled.id, { isCanceled: true });
    assert.equal(await endOf(client, canceled.id), "canceled");
    assert.equal(await leases(), 0);
  });

test("a machine from a package has the digest of its create, and the package's disk and processors", async () => {
  const repository = `${registryNamespace}/base`;
  const digest = await putPackage(db, { repository, tag: "latest", content: "base 1" });
  const source = { type: "smolmachine", reference: "base" };
  const created = await client.post("/v1/machines", { source });
  assert.equal(created.status, 201, created.text);
  assert.deepEqual(created.json.source, { ...source, arch: "amd64" });
  assert.equal(created.json.resources.diskGb, 3);
  await putPackage(db, { repository, tag: "latest", content: "base 2" });
  const { id } = created.json;
  assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  assert.deepEqual(node.specs.get(id)?.image, {
    ...{ reference: `flotilla.internal/${repository}@${digest}`, arch: "amd64", isPackage: true },
  });
  const larger = await client.post("/v1/machines", { source, resources: { diskGb: 9 } });
  assert.equal(larger.json.resources.diskGb, 9);
  const explained = (await client.post("/v1/nodes/placement", { source })).json;
  assert.equal(explained.nodeId, "played");
  assert.equal((await client.post("/v1/nodes/placement", { source: { ...source, reference: "none" } })).status, 404);
  const byDigest = { type: "smolmachine", reference: `${repository}@${digest}` };
  assert.equal((await client.post("/v1/machines", { source: byDigest })).status, 201);
  const foreign = { type: "smolmachine", reference: "ghcr.io/team/base:1" };
  assert.equal((await client.post("/v1/machines", { source: foreign })).status, 201);
});

test("a machine that can never start from its package is refused, with nothing left", async () => {
  const own = `${registryNamespace}/odd`;
  await putPackage(db, { repository: own, tag: "arm", content: "arm", facts: { ...FACTS, architecture: "arm64" } });
  await putPackage(db, {
    repository: own,
    tag: "riscv",
    content: "riscv",
    facts: { ...FACTS, architecture: "riscv64" },
  });
  await putPackage(db, { repository: own, tag: "disk", content: "disk", facts: { ...FACTS, diskBytes: 5 * GB + 1 } });
  await putPackage(db, { repository: own, tag: "image", content: "image", facts: null, artifactType: null });
  const packed = "application/vnd.smolmachines.smolmachine.v1";
  await putPackage(db, { repository: own, tag: "packed", content: "packed", facts: null, artifactType: packed });
  const secret = await putPackage(db, { repository: `tenants/${other.id}/theirs`, tag: "latest", content: "theirs" });
  const before = (await client.get("/v1/machines")).json.length;
  const refusals: readonly (readonly [string, object, number, RegExp])[] = [
    ["odd:arm", {}, 422, /is for arm64, and the nodes here run amd64/],
    ["odd:riscv", {}, 422, /is for riscv64/],
    ["odd:disk", { resources: { diskGb: 5 } }, 400, /has a disk of 6 GB, and 5 GB were asked for/],
    ["odd:image", {}, 400, /it is an image; use a source of type image/],
    ["odd:packed", {}, 400, /packed machine of smolvm/],
    ["odd:none", {}, 404, /package odd:none was not found/],
    [`tenants/${other.id}/theirs`, {}, 404, /was not found/],
    [`tenants/${other.id}/theirs@${secret}`, {}, 404, /was not found/],
    [`odd@${secret}`, {}, 404, /was not found/],
    [`library/theirs@${secret}`, {}, 404, /was not found/],
    ["odd:a b", {}, 400, /package reference/],
  ];
  for (const [reference, more, status, text] of refusals) {
    const answer = await client.post("/v1/machines", { source: { type: "smolmachine", reference }, ...more });
    assert.deepEqual([answer.status, text.test(answer.text)], [status, true], `${reference}: ${answer.text}`);
  }
  const wrong = { type: "smolmachine", reference: "odd:disk", arch: "arm64" };
  assert.equal((await client.post("/v1/machines", { source: wrong })).status, 400);
  assert.equal((await client.get("/v1/machines")).json.length, before);
  assert.equal(
    (await other.client.post("/v1/machines", { source: { ...wrong, arch: null, reference: "theirs" } })).status,
    201,
  );
});

test("what a machine was made from that has never run is not swept, and what nothing needs is", async () => {
  const repository = `${registryNamespace}/swept`;
  const needed = await putPackage(db, { repository, tag: "latest", content: "needed" });
  const source = { type: "smolmachine", reference: "swept" };
  const { id } = (await client.post("/v1/machines", { source })).json;
  const unneeded = await putPackage(db, { repository, tag: "latest", content: "unneeded" });
  await putPackage(db, { repository, tag: "latest", content: "newest" });
  const later = Date.now() + 60_000;
  const claim = async (): Promise<readonly string[]> =>
    (await claimUnused(db, { now: later, until: later, idleBefore: later, max: 1000 }))
      .filter((name) => name.repository === repository)
      .map(({ digest }) => digest);
  assert.deepEqual(await claim(), [unneeded]);
  assert.equal((await client.post(`/v1/machines/${id}/start`)).status, 200);
  assert.ok((await claim()).includes(needed));
});

test("a server without a registry refuses exports, and says what its operator can do", async () => {
  const plain = await startTestServer({ databaseUrl: server.databaseUrl });
  const id = await stopped();
  const refused = await plain.client.withKey(client.key).post(`/v1/machines/${id}/export`);
  assert.deepEqual([refused.status, /FLOTILLA_REGISTRY/.test(refused.text)], [503, true], refused.text);
});

test("tenants see their own packages and the library, which operators alone change", async () => {
  const digest = await putPackage(db, { repository: "library/tools", tag: "1", content: "tools" });
  const references = async (owner: Client): Promise<readonly string[]> =>
    (await owner.get("/v1/packages")).json.map(({ reference }: { reference: string }) => reference);
  const theirs = await references(other.client);
  assert.deepEqual(theirs, ["library/tools:1", `tenants/${other.id}/theirs:latest`]);
  assert.ok(!(await references(client)).some((reference) => reference.includes(other.id)));
  const source = { type: "smolmachine", reference: "library/tools:1" };
  assert.equal((await other.client.post("/v1/machines", { source })).status, 201);
  const remove = (reference: string, owner = client) =>
    owner.delete(`/v1/packages?reference=${encodeURIComponent(reference)}`);
  assert.equal((await remove("library/tools:1", other.client)).status, 403);
  assert.equal((await remove(`tenants/${other.id}/theirs`)).status, 404);
  assert.equal((await remove(`library/tools@${digest}`)).status, 204);
  assert.equal((await remove("library/tools:1")).status, 404);
});

test("a deleted tag leaves the package's other tags, and a deleted digest none", async () => {
  const repository = `${registryNamespace}/gone`;
  const digest = await putPackage(db, { repository, tag: "1", content: "gone" });
  await putPackage(db, { repository, tag: "2", content: "gone" });
  const tags = async (): Promise<readonly string[] | undefined> =>
    (await client.get("/v1/packages")).json.find((each: { digest: string }) => each.digest === digest)?.tags;
  assert.deepEqual(await tags(), ["2", "1"]);
  const remove = (reference: string) => client.delete(`/v1/packages?reference=${encodeURIComponent(reference)}`);
  assert.equal((await remove("gone:1")).status, 204);
  assert.equal((await remove("gone:1")).status, 404);
  assert.deepEqual(await tags(), ["2"]);
  await putPackage(db, { repository, tag: "3", content: "gone" });
  assert.equal((await remove(`gone@${digest}`)).status, 204);
  assert.equal(await tags(), undefined);
  const deleted = (await eventsOf("package.deleted")).map(({ data }) => data);
  assert.deepEqual(deleted.slice(-2), [
    { reference: `${repository}:1`, digest, cause: "requested" },
    { reference: `${repository}@${digest}`, digest, cause: "requested" },
  ]);
});

test("of a package with a retention the newest tags are kept", async () => {
  const repository = `${registryNamespace}/nightly`;
  const set = (body: object, owner = client) => owner.call("PUT", "/v1/packages/retention", { body });
  assert.deepEqual((await set({ name: "nightly", keepLast: 2 })).json, { name: "nightly", keepLast: 2 });
  assert.equal((await set({ name: "library/x", keepLast: 2 }, other.client)).status, 403);
  assert.equal((await set({ name: "nightly:1", keepLast: 2 })).status, 400);
  assert.equal((await set({ name: "nightly", keepLast: 0 })).status, 422);
  assert.deepEqual((await client.get("/v1/packages/retention")).json, [{ name: "nightly", keepLast: 2 }]);
  assert.deepEqual((await other.client.get("/v1/packages/retention")).json, []);
  for (const tag of ["1", "2", "3", "4"]) await putPackage(db, { repository, tag, content: `night ${tag}` });
  const tags = async () =>
    (
      await db.query<{ tag: string }>(sql`SELECT tag FROM registry_tags WHERE repository = ${repository} ORDER BY tag`)
    ).map(({ tag }) => tag);
  await until(async () => (await tags()).length === 2, { deadlineMs: 60_000, what: "older tags to be deleted" });
  assert.deepEqual(await tags(), ["3", "4"]);
  await until(async () =>
    (await eventsOf("package.deleted")).some(({ data }) => "cause" in data && data.cause === "retention"),
  );
  await set({ name: "nightly", keepLast: null });
  assert.deepEqual((await client.get("/v1/packages/retention")).json, []);
});

test("a client that has pushed a package learns whether it is there", async () => {
  const repo = `${registryNamespace}/pushed`;
  const digest = await putPackage(db, { repository: repo, tag: "1", content: "pushed" });
  const body = { repo, tag: "1", digest, sizeBytes: 1, platforms: ["linux/amd64"], manifest: "{}" };
  const registered = await client.post("/v1/registry/machines", body);
  assert.deepEqual([registered.status, registered.json], [200, { repo, tag: "1", digest, count: 1 }], registered.text);
  assert.equal((await client.post("/v1/registry/machines", { ...body, digest: digestOf("x") })).status, 409);
  assert.equal((await client.post("/v1/registry/machines", { ...body, tag: "2" })).status, 404);
  assert.equal((await other.client.post("/v1/registry/machines", body)).status, 404);
});

test("each change of a tenant's packages ends one interval and begins another; shared layers count once", async () => {
  const { id, client: owner } = await tenant("metered");
  const repository = `tenants/${id}/web`;
  const recorded = async (): Promise<readonly (readonly [number, boolean])[]> =>
    (
      await db.query<{ quantity: number; isOpen: boolean }>(sql`
        SELECT quantity, ended_at IS NULL AS "isOpen" FROM usage_intervals
        WHERE tenant_id = ${id} AND meter = 'registry' ORDER BY id`)
    ).map(({ quantity, isOpen }) => [quantity, isOpen]);
  await putPackage(db, { repository, tag: "1", content: "m1", layers: { base: 10, one: 3 } });
  assert.deepEqual(await recorded(), [[14, true]]);
  await putPackage(db, { repository, tag: "again", content: "m1", layers: { base: 10, one: 3 } });
  assert.deepEqual(await recorded(), [[14, true]], "a tag takes no room");
  const second = await putPackage(db, { repository, tag: "2", content: "m2", layers: { base: 10, two: 5 } });
  await putPackage(db, { repository: `tenants/${id}/other`, tag: "2", content: "m3", layers: { base: 10 } });
  const both = await Promise.all(
    ["a", "b", "c", "d"].map((name) =>
      putPackage(db, { repository: `tenants/${id}/${name}`, tag: "1", content: name, layers: { [`of ${name}`]: 1 } }),
    ),
  );
  assert.equal(both.length, 4);
  const remove = (reference: string) => owner.delete(`/v1/packages?reference=${encodeURIComponent(reference)}`);
  const held = async (): Promise<number> => (await recorded()).at(-1)?.[0] ?? 0;
  assert.equal(await held(), 23);
  assert.equal((await remove(`web@${second}`)).status, 204);
  assert.deepEqual((await recorded()).at(-1), [18, true]);
  const open = (await recorded()).filter(([, isOpen]) => isOpen);
  assert.equal(open.length, 1);
  const usage = (await owner.get("/v1/usage")).json;
  assert.ok(usage.registryGbHours > 0);
  const invoice = (await owner.get(`/v1/billing/invoices/${new Date().toISOString().slice(0, 7)}`)).json;
  assert.ok(invoice.lines.some(({ meter }: { meter: string }) => meter === "registry"));
});
