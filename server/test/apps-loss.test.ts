/**
 * Apps whose node is cut off: its instances get no requests while it is silent, are replaced once it is lost,
 * and end when it is back.
 *
 * A node of the fake driver, whose agent is killed. That 30 s have passed is written into its row.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { AppInfo, InstanceInfo } from "@flotilla/contract/apps";
import { until } from "../../test/support/until.ts";
import { sql } from "../src/db/database.ts";
import { nodeReconciler } from "../src/nodes/nodes-loop.ts";
import { startMachineServer } from "./support/machine-server.ts";
import { startTestNode } from "./support/node.ts";

const { client, server, context, node } = await startMachineServer();
const other = await startTestNode(server, "node-b");
const { db } = context;

const read = async (): Promise<AppInfo> => (await client.get("/v1/apps/kept")).json;
const becomes = (what: string, holds: (app: AppInfo) => boolean): Promise<AppInfo> =>
  until(
    async () => {
      const app = await read();
      if (holds(app)) return app;
      throw new Error((await client.get("/v1/apps/kept/explain")).text);
    },
    { what: `the app to be ${what}`, deadlineMs: 30_000 },
  );
const of = ({ instances }: AppInfo, nodeId: string): readonly InstanceInfo[] =>
  instances.filter((instance) => instance.nodeId === nodeId);

/** As if the node had been silent for 31 s, while the server that decides listened. */
async function decide(): Promise<void> {
  await db.execute(sql`
    UPDATE nodes SET last_heartbeat_at = now() - interval '31 s', registered_at = now() - interval '1 hour' WHERE id = ${node.id}`);
  await nodeReconciler(context, 30_000, context.clock.monotonic() - 60_000).activate(AbortSignal.timeout(10_000));
}

test("an instance of a silent node gets no requests, and one of a lost node is replaced once and does not return", async () => {
  const env = [{ key: "FAKE_LISTEN", value: "8080=200" }];
  const deployed = await client.post("/v1/apps", { name: "kept", image: "local/busybox", replicas: 2, env });
  assert.equal(deployed.status, 200, deployed.text);
  const before = await becomes(
    "spread over the nodes",
    ({ status, instances }) =>
      status === "running" && instances.length === 2 && instances.every(({ isServing }) => isServing),
  );
  const [cut] = of(before, node.id);
  const [stays] = of(before, other.id);
  assert.ok(cut !== undefined && stays !== undefined, JSON.stringify(before.instances));

  await db.execute(sql`UPDATE nodes SET maintenance_at = now() WHERE id = ${node.id}`);
  await node.kill();
  // A report that the agent had sent may still be written.
  await until(async () => {
    await decide();
    const nodes = (await client.get("/v1/nodes")).json as { id: string; status: string }[];
    return nodes.some(({ id, status }) => id === node.id && status === "unreachable");
  });
  const silent = await becomes("served by the other node alone", (app) => app.status === "degraded");
  assert.deepEqual(
    silent.instances.map(({ id, isServing, status }) => ({ id, isServing, status })).toSorted(byId),
    [
      { id: cut.id, isServing: false, status: "unhealthy" },
      { id: stays.id, isServing: true, status: "healthy" },
    ].toSorted(byId),
    "nothing is replaced for a node that is expected back",
  );
  assert.match(of(silent, node.id)[0]?.reason ?? "", /does not report/);

  await db.execute(sql`UPDATE nodes SET maintenance_at = NULL WHERE id = ${node.id}`);
  await decide();
  const replaced = await becomes("whole again on the other node", (app) => {
    return of(app, other.id).filter(({ isServing }) => isServing).length === 2;
  });
  assert.equal(replaced.status, "running");
  assert.deepEqual(
    of(replaced, node.id).map(({ id, status, isServing }) => [id, status, isServing]),
    [[cut.id, "lost", false]],
  );

  await node.restart();
  const after = await becomes("without the lost instance", (app) => {
    assert.ok(!app.instances.some(({ id, isServing }) => id === cut.id && isServing), "it is not served again");
    return of(app, node.id).length === 0;
  });
  assert.deepEqual([...after.instances].toSorted(byId), [...of(replaced, other.id)].toSorted(byId));
  assert.equal((await client.get(`/v1/machines/${cut.machineId}`)).status, 404);
  const left = sql`SELECT observed_state AS state FROM machines WHERE id = ${cut.machineId}`;
  await until(async () => (await db.query<{ state: string }>(left)).every(({ state }) => state === "absent"), {
    what: "what the lost node still ran to end",
  });
});

const byId = (one: { readonly id: string }, other: { readonly id: string }): number => (one.id < other.id ? -1 : 1);
