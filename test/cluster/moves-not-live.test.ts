/**
 * Machines whose memory cannot be sent while they run, by themselves or because one of the two nodes has an
 * older release: their moves suspend them, and their processes continue.
 */
import assert from "node:assert/strict";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { sharedDatabaseUrl } from "../support/database.ts";
import { type Flotilla, runningBoots, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

const ROOT = join(import.meta.dirname, "../..");
const PATIENT = { deadlineMs: 120_000, everyMs: 20 };
const warm = (why: string): string =>
  `its memory is saved, and nothing of it runs; it was not handed over while it ran: ${why}`;
const LIVE = "it was paused, and its memory is on the other node";

/** A copy of the node's program; node-1 says nothing of moves of running machines, like an older release. */
async function olderNeighbour(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-older-"));
  after(() => rm(directory, { recursive: true, force: true }));
  for (const name of ["base", "contract", "node", "package.json"])
    await cp(join(ROOT, name), join(directory, name), { recursive: true });
  await mkdir(join(directory, "node_modules/@flotilla"), { recursive: true });
  for (const name of ["base", "contract"])
    await symlink(join(directory, name), join(directory, "node_modules/@flotilla", name));
  for (const [file, flag, rest] of [
    ["incoming.ts", "takesLive: this.#live !== null", ", point: null"],
    ["outgoing.ts", "canMoveLive", ", memoryBase, points"],
  ] as const) {
    const path = join(directory, "node/src/moves", file);
    const parts = (await readFile(path, "utf8")).split(flag + rest);
    assert.equal(parts.length, 2, `${file} says it once`);
    await writeFile(path, parts.join(`...(process.env["FLOTILLA_NODE_ID"] === "node-1" ? {} : { ${flag} })${rest}`));
  }
  return join(directory, "node/src/main.ts");
}

/** Moves it to the other node. Resolves with how it was stopped. */
async function moved(flotilla: Flotilla, id: string): Promise<string> {
  const from = (await flotilla.get(id)).nodeId;
  const to = from === "node-0" ? 1 : 0;
  const asked = await flotilla.client().post(`/v1/machines/${id}/move`, { nodeId: `node-${to}` });
  assert.equal(asked.status, 202, asked.text);
  const done = await until(async () => {
    const { json } = await flotilla.client().get(`/v1/operations/${asked.json.id}`);
    return json.status !== "running" && json;
  }, PATIENT);
  assert.equal(done.status, "succeeded", `${done.error} ${JSON.stringify(done.steps)}`);
  assert.match(done.steps[4].message, /its processes continued after a pause of \d+ ms$/);
  assert.equal((await flotilla.get(id)).nodeId, `node-${to}`);
  const isAlone = async () =>
    (await runningBoots(flotilla, to)).get(id) === 1 && !(await runningBoots(flotilla, 1 - to)).has(id);
  await until(isAlone, { ...PATIENT, what: "one VM of the machine" });
  return done.steps[1].message;
}

test("a machine whose memory cannot be watched is suspended for its move", async () => {
  await using flotilla = await startFlotilla({ nodes: 2, databaseUrl: await sharedDatabaseUrl() });
  const { id } = await flotilla.create({ env: { FAKE_NOT_LIVE: "1" } });
  await flotilla.start(id);
  assert.equal(await moved(flotilla, id), warm("its node cannot watch its memory"));
  const other = await flotilla.create();
  await flotilla.start(other.id);
  assert.equal(await moved(flotilla, other.id), LIVE);
});

test("a machine is suspended for its move to an older neighbour, and from it", async () => {
  await using flotilla = await startFlotilla({
    nodes: 2,
    nodeMain: await olderNeighbour(),
    databaseUrl: await sharedDatabaseUrl(),
  });
  const { id } = await flotilla.create();
  const { nodeId } = await flotilla.start(id);
  const reasons = [warm("node node-1 takes no machine that runs"), warm("its node cannot watch its memory")];
  assert.deepEqual(
    [await moved(flotilla, id), await moved(flotilla, id)],
    nodeId === "node-0" ? reasons : reasons.reverse(),
  );
});
