/**
 * Nodes that join from another host, at two servers: over TLS, with a join token, by connections that they
 * open themselves. The nodes reach the second server through a proxy of the test.
 */
import assert from "node:assert/strict";
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { sharedDatabaseUrl } from "../support/database.ts";
import { portToReturnTo, Program, startFlotilla } from "../support/flotilla.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";

const DEADLINE_MS = 60_000;

const ports = [await portToReturnTo(), await portToReturnTo()] as const;
const urls = ports.map((port) => `https://127.0.0.1:${port}`);
const proxy = await startTcpProxy(() => ports[1]);
const nodes: Program[] = [];
// Before the database's hook, which is made with it.
after(async () => {
  await Promise.all(nodes.map((node) => node.stop().catch(() => node.kill())));
  await flotilla[Symbol.asyncDispose]();
  await proxy[Symbol.asyncDispose]();
});
const listening = new Map<number, Readonly<Record<string, string>>>();
const flotilla = await startFlotilla({
  servers: 2,
  nodes: 0,
  databaseUrl: await sharedDatabaseUrl(),
  serverEnvironment: (port) => {
    const own = listening.get(port) ?? {
      FLOTILLA_NODE_LISTEN: `127.0.0.1:${ports[listening.size === 0 ? 0 : 1]}`,
      ...(listening.size === 0 ? {} : { FLOTILLA_NODE_ADDRESSES: `127.0.0.1:${proxy.port}` }),
      FLOTILLA_JOIN_TOKEN: "",
    };
    listening.set(port, own);
    return own;
  },
});
interface Joining {
  readonly token?: string;
  readonly url?: string;
  readonly environment?: Readonly<Record<string, string>>;
}

function nodeProgram(name: string, { token = "", url = urls[0] ?? "", environment = {} }: Joining): Program {
  const directory = join(flotilla.directory, name);
  const node = new Program(name, "node/src/main.ts", directory, {
    FLOTILLA_DATA_DIR: directory,
    FLOTILLA_NODE_ID: name,
    FLOTILLA_DRIVER: "fake",
    FLOTILLA_LOG_LEVEL: "debug",
    FLOTILLA_URL: url,
    FLOTILLA_JOIN_TOKEN: token,
    ...environment,
  });
  nodes.push(node);
  return node;
}

async function startNode(name: string, joining: Joining): Promise<Program> {
  const node = nodeProgram(name, joining);
  await node.start();
  return node;
}

async function makeToken(body: object = {}): Promise<{ readonly token: string; readonly prefix: string }> {
  const made = await flotilla.client().post("/v1/tokens", body);
  assert.equal(made.status, 200, made.text);
  return made.json;
}

interface NodeView {
  readonly id: string;
  readonly status: string;
  readonly address: string;
  readonly lastHeartbeatAt: string | null;
}

const viewOf = async (id: string): Promise<NodeView | undefined> =>
  ((await flotilla.client().get("/v1/nodes")).json as NodeView[]).find((node) => node.id === id);

/** Whether it has reported since `before`. */
const untilReported = (id: string, before: string | null = null) =>
  until(
    async () => {
      const node = await viewOf(id);
      return node?.status === "ready" && node.lastHeartbeatAt !== null && node.lastHeartbeatAt !== before && node;
    },
    { what: `a report of ${id}`, deadlineMs: DEADLINE_MS },
  );

/** Starts a new machine and returns its id. The only node that is ready gets it. */
async function startMachine(env: Readonly<Record<string, string>> = {}): Promise<string> {
  const { id } = await flotilla.create({ env });
  assert.equal((await flotilla.start(id)).state, "started");
  return id;
}

/** Both servers can call the node of a machine. */
async function bothServersReach(id: string): Promise<void> {
  for (const server of [0, 1]) {
    const answers = () => flotilla.exec(id, "echo reached", server).then((output) => output === "reached\n");
    await until(answers, { what: `server ${server} to reach the node`, deadlineMs: DEADLINE_MS });
  }
}

/** A command that never ends, through a server. */
async function openStream(id: string, server: number) {
  const { url, key } = flotilla.client(server);
  const response = await fetch(`${url}/v1/machines/${id}/exec/stream`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ command: "sleep 1000" }),
  });
  assert.equal(response.status, 200);
  return {
    ended: response.text().then(
      () => performance.now(),
      () => performance.now(),
    ),
  };
}

test("an address and a join token are enough to join, and both servers reach the node", async () => {
  const { token } = await makeToken({ labels: { rack: "7" } });
  const node = await startNode("far", { token });
  const { address } = await untilReported("far");
  assert.equal(address, "parked:far");
  const id = await startMachine();
  await bothServersReach(id);
  for (const name of ["node.key", "membership.json", "credential"])
    assert.equal((await stat(join(node.directory, "node", name))).mode & 0o777, 0o600, name);
  assert.equal(
    (await readFile(join(node.directory, "node", "membership.json"), "utf8")).includes("PRIVATE KEY"),
    false,
  );
  await flotilla.remove(id);
});

test("a node that has joined needs no token when it starts again, and its machines are there", async () => {
  const [node] = nodes;
  assert.ok(node !== undefined);
  const id = await startMachine();
  const { lastHeartbeatAt } = (await viewOf("far")) as NodeView;
  await node.kill();
  const again = nodeProgram("far", {});
  await again.start();
  await untilReported("far", lastHeartbeatAt);
  await bothServersReach(id);
  await flotilla.remove(id);
});

test("lost connections cost no call: those that were cut, and those of a server that was killed", async () => {
  const id = await startMachine();
  await bothServersReach(id);
  proxy.cut();
  assert.equal(await flotilla.exec(id, "echo cut", 1), "cut\n");
  await until(() => proxy.open >= 4, { what: "parked connections after the cut", deadlineMs: DEADLINE_MS });
  await flotilla.servers[1]?.kill();
  await flotilla.startServer(1);
  await bothServersReach(id);
  await flotilla.remove(id);
});

test("two nodes of one host share the machines, and one may be reachable instead of dialling out", async () => {
  const linkPort = await portToReturnTo();
  const { token } = await makeToken();
  const environment = { FLOTILLA_LINK_LISTEN: `127.0.0.1:${linkPort}` };
  await startNode("direct", { token, url: flotilla.urls[0] ?? "", environment });
  const { address } = await untilReported("direct");
  assert.equal(address, `https://127.0.0.1:${linkPort}`);
  const ids = [await startMachine(), await startMachine(), await startMachine()];
  const used = await Promise.all(ids.map(async (id) => (await flotilla.get(id)).nodeId));
  assert.deepEqual([...new Set(used)].toSorted(), ["direct", "far"]);
  for (const id of ids) await bothServersReach(id);
  assert.equal((await flotilla.client().post("/v1/nodes/far/cordon")).status, 200);
  ids.push(await startMachine(), await startMachine());
  const later = await Promise.all(ids.slice(3).map(async (id) => (await flotilla.get(id)).nodeId));
  assert.deepEqual(later, ["direct", "direct"]);
  const [moved = ""] = ids.filter((_, index) => used[index] === "far");
  await flotilla.stop(moved);
  assert.equal((await flotilla.start(moved)).nodeId, "far");
  assert.equal((await flotilla.client(1).post("/v1/nodes/far/uncordon")).json.cordonedAt, null);
  for (const id of ids) await flotilla.remove(id);
});

test("a revoked node loses its open streams through every server, and cannot be called any more", async (t) => {
  for (const id of ["far", "direct"]) {
    const machine = await until(
      async () => {
        const made = await startMachine();
        if ((await flotilla.get(made)).nodeId === id) return made;
        await flotilla.remove(made);
        return undefined;
      },
      { what: `a machine on ${id}`, deadlineMs: DEADLINE_MS },
    );
    const streams = [await openStream(machine, 0), await openStream(machine, 1)];
    const revokedAt = performance.now();
    assert.equal((await flotilla.client().delete(`/v1/nodes/${id}/credential`)).status, 204);
    const ends = await Promise.all(streams.map(({ ended }) => ended));
    t.diagnostic(`streams of ${id} ended after ${ends.map((end) => Math.round(end - revokedAt)).join(" and ")} ms`);
    const answer = await flotilla.client(1).post(`/v1/machines/${machine}/exec`, { command: "true" });
    assert.equal(answer.status >= 400 && answer.status < 504, true, answer.text);
  }
});
