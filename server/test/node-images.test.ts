/**
 * Nodes report their images, and a machine that depends on one is started on a node that has it without a
 * question to any. A list asks the nodes, a few at a time.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { absentMachine } from "@flotilla/contract/link/absent";
import { OWN_LINK_VERSIONS } from "@flotilla/contract/link/version";
import pg from "pg";
import { type Statement, sql } from "../src/db/database.ts";
import { NodeDirectory } from "../src/placement/directory.ts";
import { NO_CEILINGS } from "../src/placement/place.ts";
import { listenAtSocket, startTestNode, TEST_JOIN_TOKEN } from "./support/node.ts";
import { startTestServer } from "./support/server.ts";
import { until } from "../../test/support/until.ts";

const server = await startTestServer({ joinToken: TEST_JOIN_TOKEN });
const { client } = server;
const database = new pg.Client(server.databaseUrl);
// The server of the test may end first, and its database with it.
database.on("error", () => undefined);
await database.connect();
after(() => database.end().catch(() => undefined));
const RESOURCES = {
  totalCpus: 8,
  totalMemoryMb: 16_384,
  availableMemoryMb: 8_000,
  totalDiskGb: 100,
  availableDiskGb: 50,
  usedCpus: 0,
  usedMemoryMb: 100,
  usedDiskGb: 1,
};

const image = (reference: string, tenantId: string | null = null) => ({ reference, architecture: "amd64", tenantId });

/** A played node, which counts how often it is asked for its images. */
class PlayedNode {
  readonly id: string;
  asked = 0;
  /** What it answers when it is asked. */
  images: readonly object[] = [];
  /** Its answer when it is to remove an image. */
  removal: { readonly status: number; readonly body?: object } = { status: 204 };
  /** It answers when this has settled. */
  answering: () => Promise<void> = () => Promise.resolve();
  #credential = "";
  #address = "";

  constructor(id: string) {
    this.id = id;
  }

  async enter(): Promise<void> {
    const listener = createServer(async ({ method, url = "" }, response) => {
      if (method === "DELETE")
        return void response.writeHead(this.removal.status).end(JSON.stringify(this.removal.body));
      if (method === "GET") {
        this.asked += 1;
        await this.answering();
        return void response.end(JSON.stringify(this.images));
      }
      const machineId = /mach-[0-9a-f]{32}/.exec(url)?.[0] ?? "";
      response.end(JSON.stringify({ ...absentMachine(machineId, 2), state: "preparing" }));
    });
    this.#address = await listenAtSocket(listener);
    const entered = await this.#register(TEST_JOIN_TOKEN);
    this.#credential = entered.credential as string;
  }

  async report(images: object | null, bootId = "agent-1"): Promise<void> {
    const body = {
      bootId,
      link: OWN_LINK_VERSIONS,
      isComplete: false,
      resources: RESOURCES,
      machines: [],
      events: [],
      images,
    };
    const answer = await client.withKey(this.#credential).post(`/v1/nodes/${this.id}/heartbeat`, body);
    assert.equal(answer.status, 200, answer.text);
  }

  async #register(token: string) {
    const body = { id: this.id, address: this.#address, labels: { arch: "amd64" }, totalMemoryMb: 16_384 };
    const answer = await client.withKey(token).post("/v1/nodes/register", body);
    assert.equal(answer.status, 200, answer.text);
    return answer.json;
  }
}

/** The node on which a new machine of the image is started. */
async function startedOn(reference: string, network: object = { mode: "open" }): Promise<string> {
  const created = await client.post("/v1/machines", { source: { type: "image", reference }, network });
  const started = await client.post(`/v1/machines/${created.json.id}/start?detach=true`);
  assert.equal(started.status, 202, started.text);
  await client.delete(`/v1/machines/${created.json.id}`);
  return started.json.nodeId as string;
}

const a = new PlayedNode("node-a");
const b = new PlayedNode("node-b");
for (const node of [a, b]) await node.enter();

test("a machine of a local image is started where a node reports it, and no node is asked", async () => {
  await a.report({ sequence: 1, isComplete: true, held: [], removed: [] });
  await b.report({ sequence: 1, isComplete: true, held: [image("local/only"), image("local/old")], removed: [] });
  for (let round = 0; round < 3; round += 1) assert.equal(await startedOn("local/only"), "node-b");
  await a.report({ sequence: 2, isComplete: false, held: [image("local/only")], removed: [] });
  await b.report({ sequence: 2, isComplete: false, held: [], removed: [image("local/only")] });
  for (let round = 0; round < 3; round += 1) assert.equal(await startedOn("local/only:latest"), "node-a");
  await b.report(null);
  assert.equal(await startedOn("local/old"), "node-b", "a report without images changes none");
  assert.deepEqual([a.asked, b.asked], [0, 0]);
});

test("a node that does not remove a local image still counts as having it, and is named", async () => {
  await a.report({ sequence: 3, isComplete: false, held: [image("local/both")], removed: [] });
  await b.report({ sequence: 3, isComplete: false, held: [image("local/both")], removed: [] });
  b.removal = { status: 500, body: { code: "internal", message: "its disk does not answer" } };
  const remove = () => client.delete("/v1/images?reference=local/both");
  const refused = await remove();
  assert.equal(refused.status, 503);
  assert.match(refused.text, /was not removed: node node-b: its disk does not answer/);
  for (let round = 0; round < 3; round += 1) assert.equal(await startedOn("local/both"), "node-b");
  b.removal = { status: 204 };
  assert.equal((await remove()).status, 204);
  assert.equal((await remove()).status, 404);
});

test("a report that comes late changes nothing, and one of a new incarnation replaces everything", async () => {
  await b.report({ sequence: 1, isComplete: true, held: [image("local/only")], removed: [] });
  assert.equal(await startedOn("local/only"), "node-a");
  await b.report({ sequence: 1, isComplete: true, held: [image("local/only")], removed: [] }, "agent-2");
  await a.report({ sequence: 4, isComplete: true, held: [image("local/old")], removed: [] });
  assert.deepEqual([await startedOn("local/only"), await startedOn("local/old")], ["node-b", "node-a"]);
});

test("a machine without a network goes where its own tenant has the image, not where another has", async () => {
  const { tenantId } = (await client.get("/v1/me")).json as { tenantId: string };
  await a.report({ sequence: 4, isComplete: true, held: [image("alpine", "tenant-of-others")], removed: [] });
  const mine = image("docker.io/library/alpine:latest", tenantId);
  await b.report({ sequence: 2, isComplete: true, held: [mine], removed: [] }, "agent-2");
  for (let round = 0; round < 3; round += 1) assert.equal(await startedOn("alpine", { mode: "blocked" }), "node-b");
});

test("those who look for an image at the same time share a read, and one who comes later finds an image that came meanwhile", async () => {
  const { context } = server;
  const directory = new NodeDirectory(context, NO_CEILINGS);
  const query = { reference: "docker.io/library/shared:latest", architecture: null, tenantId: "tenant-shared" };
  const { query: real } = context.db;
  const release = Promise.withResolvers<void>();
  let reads = 0;
  Object.assign(context.db, {
    query: async (statement: Statement) => {
      const isRead = statement.text.includes("node_images") && statement.values.includes(query.reference);
      if (!isRead) return await real(statement);
      const rows = await real(statement);
      reads += 1;
      if (reads === 1) await release.promise;
      return rows;
    },
  });
  try {
    const first = directory.withImage(query);
    await until(() => reads === 1);
    const [node] = await context.db.query<{ id: string }>(sql`SELECT id FROM nodes WHERE status = 'ready' LIMIT 1`);
    assert.ok(node !== undefined);
    await context.db.execute(sql`
      INSERT INTO node_images (node_id, reference, architecture, tenant_id)
      VALUES (${node.id}, ${query.reference}, 'amd64', ${query.tenantId})`);
    const later = Array.from({ length: 5 }, () => directory.withImage(query));
    release.resolve();
    assert.equal((await first).size, 0);
    for (const ids of await Promise.all(later)) assert.deepEqual([...ids], [node.id]);
    assert.equal(reads, 2);
    await directory.withImage(query);
    assert.equal(reads, 2);
  } finally {
    Object.assign(context.db, { query: real });
    directory.close();
    await context.db.execute(sql`DELETE FROM node_images WHERE reference = ${query.reference}`);
  }
});

test("a real agent reports an image that it has got, and all of them after it was killed", async () => {
  const node = await startTestNode(server, "node-c");
  const heldBy = async (reference: string): Promise<readonly string[]> =>
    (
      await database.query<{ id: string }>(`SELECT node_id AS id FROM node_images WHERE reference = $1`, [reference])
    ).rows.map(({ id }) => id);
  const deadline = { deadlineMs: 10_000, what: "a report of images" };
  await until(async () => (await heldBy("local/busybox:latest")).includes("node-c"), deadline);
  const imported = await client.call("POST", "/v1/images/import?reference=local/fresh&nodeId=node-c", {
    raw: "archive",
    headers: { "content-type": "application/octet-stream" },
  });
  assert.equal(imported.status, 200, imported.text);
  assert.deepEqual(await heldBy("local/fresh:latest"), ["node-c"], "known at once, before the node reports it");
  await node.kill();
  await node.restart();
  await until(async () => (await heldBy("local/fresh:latest")).length === 0, deadline);
  assert.deepEqual(await heldBy("local/busybox:latest"), ["node-c"]);
});

test("a list asks a few nodes at a time, and no node that is known to be unreachable", async () => {
  const { context } = server;
  const nodes = Array.from({ length: 40 }, (_, at) => new PlayedNode(`listed-${at}`));
  let underWay = 0;
  let mostUnderWay = 0;
  let endRound = Promise.withResolvers<void>();
  for (const node of nodes) {
    await node.enter();
    node.images = [
      {
        ...image(`local/of-${node.id}`),
        digest: "sha256:1",
        sizeBytes: 1,
        os: "linux",
        layerCount: 1,
        lastUsedAt: null,
      },
    ];
    node.answering = async () => {
      underWay += 1;
      mostUnderWay = Math.max(mostUnderWay, underWay);
      await endRound.promise;
      underWay -= 1;
    };
  }
  const [silent, ...others] = nodes;
  await context.db.execute(sql`UPDATE nodes SET status = 'unreachable' WHERE id = ${silent?.id ?? ""}`);
  const listed = client.get("/v1/images");
  let isListed = false;
  void listed.finally(() => {
    isListed = true;
  });
  await until(() => underWay >= 8);
  while (!isListed) {
    const round = endRound;
    endRound = Promise.withResolvers();
    round.resolve();
    await until(() => isListed || underWay > 0);
  }
  const references = new Set((await listed).json.map(({ reference }: { reference: string }) => reference));
  for (const { id } of others) assert.ok(references.has(`local/of-${id}`), id);
  assert.equal(silent?.asked, 0);
  assert.ok(mostUnderWay <= 16, `${mostUnderWay} nodes were asked at the same time`);
});
