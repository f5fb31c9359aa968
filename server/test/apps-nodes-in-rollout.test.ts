/**
 * A node that is lost, drained or cut off for a moment in the middle of each strategy: the rollout ends with
 * the release that was asked for, on what nodes are left, and nothing stays on the node that went.
 *
 * Nodes of the fake driver, whose agent is killed. How long a node is silent is written into its row.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { AppInfo } from "@flotilla/contract/apps";
import { until } from "../../test/support/until.ts";
import { sql } from "../src/db/database.ts";
import { nodeReconciler } from "../src/nodes/nodes-loop.ts";
import { startMachineServer } from "./support/machine-server.ts";
import { startTestNode } from "./support/node.ts";

const { client, server, context, node } = await startMachineServer();
await startTestNode(server, "node-b");
await startTestNode(server, "node-c");
const { db } = context;

const STRATEGIES = {
  rolling: { type: "rolling" },
  canary: { type: "canary" },
  promoted: { type: "canary", autoPromote: false },
  blueGreen: { type: "blueGreen" },
};
const REPLICAS = 3;

const deploy = async (name: string, version: number, fields: object = {}): Promise<void> => {
  const env = Object.entries({ FAKE_LISTEN: "8080=200", FAKE_LISTEN_AFTER_MS: "300", VERSION: String(version) });
  const size = { replicas: REPLICAS, stopGraceSecs: 1, env: env.map(([key, value]) => ({ key, value })) };
  const answer = await client.post("/v1/apps", { name, image: "local/busybox", ...size, ...fields });
  assert.equal(answer.status, 200, answer.text);
};
const becomes = (name: string, what: string, holds: (app: AppInfo) => boolean): Promise<AppInfo> =>
  until(
    async () => {
      const app: AppInfo = (await client.get(`/v1/apps/${name}`)).json;
      if (holds(app)) return app;
      throw new Error((await client.get(`/v1/apps/${name}/explain`)).text);
    },
    { what: `${name} to be ${what}`, deadlineMs: 60_000 },
  );
/** The release serves with as many as are asked, and nothing else is there but what a lost node has. */
const settled = (name: string, release: number): Promise<AppInfo> =>
  becomes(name, `settled with release ${release}`, ({ instances, rollout }) => {
    const present = instances.filter(({ status }) => status !== "lost");
    const serves = present.every((each) => each.isServing && each.status === "healthy" && each.generation === release);
    return rollout === null && present.length === REPLICAS && serves;
  });

const statusOfNode = async (): Promise<string | undefined> =>
  ((await client.get("/v1/nodes")).json as { id: string; status: string }[]).find(({ id }) => id === node.id)?.status;

/** As if the node had been silent for so long, while the server that decides listened. */
async function beSilent(seconds: number): Promise<void> {
  await node.kill();
  // A report that the agent had sent may still be written.
  await until(async () => {
    await db.execute(sql`
      UPDATE nodes SET last_heartbeat_at = now() - ${seconds} * interval '1 s', registered_at = now() - interval '1 hour'
      WHERE id = ${node.id}`);
    await nodeReconciler(context, 30_000, context.clock.monotonic() - 60_000).activate(AbortSignal.timeout(10_000));
    return (await statusOfNode()) === "unreachable";
  });
}

interface Event {
  readonly go: () => Promise<void>;
  /** The node is as before. */
  readonly back: () => Promise<void>;
  /** Whether instances may be on the node at the end of the rollout. */
  readonly isNodeLeft: boolean;
}

const EVENTS: Readonly<Record<string, Event>> = {
  "cut off": {
    isNodeLeft: true,
    go: async () => {
      await db.execute(sql`UPDATE nodes SET maintenance_at = now() WHERE id = ${node.id}`);
      await beSilent(31);
      await db.execute(sql`UPDATE nodes SET maintenance_at = NULL, last_heartbeat_at = now() WHERE id = ${node.id}`);
      await node.restart();
    },
    back: async () => undefined,
  },
  lost: { isNodeLeft: false, go: () => beSilent(31), back: () => node.restart() },
  drained: {
    isNodeLeft: false,
    go: async () => {
      const { status, text } = await client.post(`/v1/nodes/${node.id}/drain`);
      assert.equal(status, 200, text);
    },
    back: async () => {
      await until(async () => (await statusOfNode()) === "drained", { what: "the drain to end" });
      const { status, text } = await client.delete(`/v1/nodes/${node.id}/drain`);
      assert.equal(status, 200, text);
    },
  },
};

for (const [strategyName, strategy] of Object.entries(STRATEGIES))
  for (const [event, { go, back, isNodeLeft }] of Object.entries(EVENTS))
    test(`a node that is ${event} in the middle of ${strategyName} does not keep the rollout from its end`, async () => {
      const name = `${strategyName}-${event}`.toLowerCase().replace(" ", "-");
      await deploy(name, 1);
      await settled(name, 1);
      await deploy(name, 2, { strategy });
      await becomes(name, "under way", ({ instances }) => instances.some(({ generation }) => generation === 2));
      await go();
      if (strategyName === "promoted") {
        await becomes(name, "waiting for a promotion", ({ status, instances }) => {
          const present = instances.filter((each) => each.status !== "lost");
          const isComplete = present.length === REPLICAS + 1 && present.every(({ isServing }) => isServing);
          const stay = isNodeLeft || present.every(({ nodeId }) => nodeId !== node.id);
          return status === "awaitingPromotion" && isComplete && stay;
        });
        const { status, text } = await client.post(`/v1/apps/${name}/promote`);
        assert.equal(status, 200, text);
      }
      const app = await settled(name, 2);
      if (!isNodeLeft) assert.ok(app.instances.every((each) => each.nodeId !== node.id || each.status === "lost"));
      await back();
      await becomes(name, "without lost instances", ({ instances }) => instances.length === REPLICAS);
      assert.equal((await client.delete(`/v1/apps/${name}`)).status, 204);
      const left = sql`SELECT id FROM machines WHERE observed_state <> 'absent'`;
      await until(async () => (await db.query(left)).length === 0, { what: "nothing to be left" });
    });
