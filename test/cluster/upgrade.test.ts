/**
 * Nodes that are upgraded in place: their program is a copy whose files are replaced by another release, as
 * an operator would.
 */
import assert from "node:assert/strict";
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { sharedDatabaseUrl } from "../support/database.ts";
import { DrawnTests } from "../support/drawn.ts";
import { type Flotilla, runningBoots, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";

const ROOT = join(import.meta.dirname, "../..");
const PATIENT = { deadlineMs: 120_000, everyMs: 50 };
/** How many of four a run plays. */
const TESTS_PER_RUN = 2;

interface Installation {
  readonly main: string;
  /** Replaces the installed release by another one. */
  install(release: string): Promise<void>;
  /** Leaves an installation that cannot run. */
  spoil(): Promise<void>;
}

/** A separate copy of the node's program. */
async function installation(): Promise<Installation> {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-release-"));
  after(() => rm(directory, { recursive: true, force: true }));
  for (const name of ["base", "contract", "node", "package.json"])
    await cp(join(ROOT, name), join(directory, name), { recursive: true });
  await mkdir(join(directory, "node_modules/@flotilla"), { recursive: true });
  for (const name of ["base", "contract"])
    await symlink(join(directory, name), join(directory, "node_modules/@flotilla", name));
  const file = join(directory, "contract/src/release.ts");
  const text = await readFile(file, "utf8");
  return {
    main: join(directory, "node/src/main.ts"),
    install: (release) => writeFile(file, text.replace(/"[^"]*"/, JSON.stringify(release))),
    spoil: () => writeFile(file, "export const RELEASE = ;"),
  };
}

interface Upgrade {
  readonly id: string;
  readonly status: string;
  readonly error: string | null;
  readonly steps: readonly { readonly status: string; readonly message: string | null }[];
}

async function upgrade(flotilla: Flotilla, body?: object): Promise<string> {
  const answer = await flotilla.client().post("/v1/nodes/upgrade", body);
  assert.equal(answer.status, 202, answer.text);
  return answer.json.id;
}

const read = async (flotilla: Flotilla, id: string): Promise<Upgrade> =>
  (await flotilla.client().get(`/v1/operations/${id}`)).json;

const ended = (flotilla: Flotilla, id: string): Promise<Upgrade> =>
  until(
    async () => {
      const operation = await read(flotilla, id);
      if (operation.status === "running") throw new Error(JSON.stringify(operation.steps));
      return operation;
    },
    { ...PATIENT, what: "the end of the upgrade" },
  );

async function releases(flotilla: Flotilla): Promise<readonly (string | null)[]> {
  const nodes = (await flotilla.client().get("/v1/nodes")).json as { id: string; release: string | null }[];
  return nodes.toSorted((a, b) => a.id.localeCompare(b.id)).map(({ release }) => release);
}

/** Running machines: three, wherever they are placed. */
async function machines(flotilla: Flotilla): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let count = 0; count < 3; count += 1) {
    const { id } = await flotilla.create();
    await flotilla.start(id);
    ids.push(id);
  }
  return ids;
}

async function bootsOf(flotilla: Flotilla): Promise<ReadonlyMap<string, number>> {
  const maps = await Promise.all(flotilla.nodes.map((_, index) => runningBoots(flotilla, index)));
  return new Map(maps.flatMap((map) => [...map]));
}

const some = new DrawnTests();

some.test(
  "nodes are upgraded one after the other; their machines run on, and their processes keep their ids",
  async () => {
    const installed = await installation();
    await using flotilla = await startFlotilla({
      nodes: 2,
      nodeMain: installed.main,
      databaseUrl: await sharedDatabaseUrl(),
    });
    const ids = await machines(flotilla);
    const pids = flotilla.nodes.map(({ pid }) => pid);
    await installed.install("9.8.7");
    const id = await upgrade(flotilla);
    const second = await flotilla.client().post("/v1/nodes/upgrade");
    assert.deepEqual([second.status, second.text.includes(id)], [409, true], "one works at a time");
    const done = await ended(flotilla, id);
    assert.deepEqual([done.status, done.error], ["succeeded", null]);
    const messages = done.steps.map(({ message }) => message ?? "");
    for (const message of messages) assert.match(message, /^release 0\.\d+\.\d+ → 9\.8\.7; \d machines? runs? on$/);
    const kept = messages.map((message) => Number(/(\d) machines?/.exec(message)?.[1]));
    assert.equal(
      kept.reduce((sum, count) => sum + count, 0),
      ids.length,
    );
    assert.deepEqual(await releases(flotilla), ["9.8.7", "9.8.7"]);
    for (const [index, node] of flotilla.nodes.entries()) {
      await node.mustRun();
      assert.equal(node.pid, pids[index]);
    }
    assert.deepEqual(await bootsOf(flotilla), new Map(ids.map((machine) => [machine, 1])));
    for (const machine of ids) assert.equal(await flotilla.exec(machine, "echo on"), "on\n");
  },
);

some.test("an installation that cannot run ends no agent, and the operation stops there", async () => {
  const installed = await installation();
  await using flotilla = await startFlotilla({
    nodes: 2,
    nodeMain: installed.main,
    databaseUrl: await sharedDatabaseUrl(),
  });
  const ids = await machines(flotilla);
  await installed.spoil();
  const failed = await ended(flotilla, await upgrade(flotilla));
  assert.equal(failed.status, "failed");
  assert.match(
    failed.error ?? "",
    /^node node-0 was not upgraded: the program that is installed there does not run: SyntaxError\b[^\n]*$/,
  );
  assert.doesNotMatch(failed.error ?? "", /Command failed/, "the output of the program, which is the reason, again");
  assert.deepEqual(
    failed.steps.map(({ status }) => status),
    ["failed", "pending"],
  );
  for (const machine of ids) assert.equal(await flotilla.exec(machine, "echo still"), "still\n");
  await installed.install("9.9.9");
  assert.equal((await ended(flotilla, await upgrade(flotilla, { nodeIds: ["node-1"] }))).status, "succeeded");
  const [first, other] = await releases(flotilla);
  assert.deepEqual([first === "9.9.9", other], [false, "9.9.9"]);
});

some.test("a server that dies during an upgrade continues it", async () => {
  const installed = await installation();
  await using flotilla = await startFlotilla({
    nodes: 2,
    nodeMain: installed.main,
    databaseUrl: await sharedDatabaseUrl(),
  });
  const ids = await machines(flotilla);
  await installed.install("9.8.7");
  const id = await upgrade(flotilla);
  // It says so briefly, and then what the first node has.
  const hasBegun = async (): Promise<boolean> =>
    /^its agent restarts$|→/.test((await read(flotilla, id)).steps[0]?.message ?? "");
  await until(hasBegun, { ...PATIENT, what: "the first restart" });
  await flotilla.servers[0]?.kill();
  await flotilla.startServer();
  assert.equal((await ended(flotilla, id)).status, "succeeded");
  assert.deepEqual(await releases(flotilla), ["9.8.7", "9.8.7"]);
  for (const machine of ids) assert.equal(await flotilla.exec(machine, "echo on"), "on\n");
});

some.test("nodes that cannot be upgraded from here are refused, with what to do", async () => {
  const installed = await installation();
  await using flotilla = await startFlotilla({
    nodes: 1,
    nodeMain: installed.main,
    databaseUrl: await sharedDatabaseUrl(),
  });
  const post = (body?: object) => flotilla.client().post("/v1/nodes/upgrade", body);
  assert.equal((await post({ nodeIds: ["nowhere"] })).status, 404);
  assert.equal((await post({ nodeIds: [] })).status, 422);
  await flotilla.client().post("/v1/nodes/node-0/drain", { deadlineSeconds: 0 });
  const isDrained = async (): Promise<boolean> =>
    (await flotilla.client().get("/v1/nodes")).json[0].status === "drained";
  await until(isDrained, { ...PATIENT, what: "the drain" });
  const drained = await post({ nodeIds: ["node-0"] });
  assert.deepEqual([drained.status, /node-0 is drained, and a restart/.test(drained.text)], [409, true]);
  assert.equal((await post()).status, 503, "no node is ready");
});

some.run(TESTS_PER_RUN);
