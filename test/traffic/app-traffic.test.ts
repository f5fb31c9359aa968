/**
 * One app of two servers, two ingresses and two nodes, in everything that may happen to it on purpose, under
 * full traffic. The node agents run the scripted driver: nothing in their machines is slower than the fleet.
 *
 * Always: no request fails, counted by the clients, which are another process. The table of all changes is
 * printed, also when nothing failed.
 */
import assert from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../support/until.ts";
import { CHANGES, firstDeploy, Shop } from "./changes.ts";
import type { Settings, Told } from "./clients.ts";
import { startFleet } from "./fleet.ts";
import { failedOf, type Report, sumOf, tableOf } from "./tally.ts";

const REQUESTS = Number(process.env["FLOTILLA_TRAFFIC_REQUESTS"] ?? 10_000);
const SLOW_SECONDS = Number(process.env["FLOTILLA_TRAFFIC_SLOW_SECONDS"] ?? 2);
const PER_SECOND = 300;
/** An instance that leaves has this much longer than a slow request needs. */
const GRACE_SECONDS = 2;
const DEADLINE_MS = 900_000;

async function tell(clients: ChildProcess, told: Told): Promise<Report> {
  const report = once(clients, "message");
  clients.send(told);
  return ((await report) as [Report])[0];
}

test("no request fails in any rollout, scaling, drain or restart, with slow requests, WebSockets and streams open", async (t) => {
  await using fleet = await startFleet();
  const shop = new Shop(fleet, SLOW_SECONDS + GRACE_SECONDS);
  const host = await firstDeploy(shop);
  const urls = [...fleet.servers, ...fleet.ingresses].map(({ url }) => url);
  const settings: Settings = { urls, host, slowMs: SLOW_SECONDS * 1000, perSecond: PER_SECOND };
  const clients = fork(join(import.meta.dirname, "clients.ts"), [JSON.stringify(settings)]);
  t.after(() => clients.kill());
  await tell(clients, { during: "nothing" });
  const requests = async (): Promise<number> => sumOf((await tell(clients, {})).rows, (row) => row.requests);
  await until(async () => (await requests()) > PER_SECOND, { what: "the clients to ask" });
  for (const { name, run } of CHANGES) {
    await tell(clients, { during: name });
    await run(shop);
    await shop.settled();
    // Each way serves again, or still, before the next change begins.
    const before = (await tell(clients, {})).answered;
    const areUsed = async (): Promise<boolean> => {
      const { answered } = await tell(clients, {});
      return urls.every((url) => (answered[url] ?? 0) > (before[url] ?? 0));
    };
    await until(areUsed, { what: "requests by every server and ingress", everyMs: 100 });
  }
  await tell(clients, { during: "nothing more" });
  const enough = async (): Promise<boolean> => (await requests()) >= REQUESTS;
  await until(enough, { what: `${REQUESTS} requests`, deadlineMs: DEADLINE_MS });
  const { rows, failures } = await tell(clients, { stop: true });
  process.stdout.write(`${tableOf(rows)}\n`);
  assert.deepEqual(failures, []);
  assert.equal(sumOf(rows, failedOf), 0);
  for (const { during, closed } of rows)
    assert.ok(closed === 0 || during.startsWith("restart"), `${closed} WebSockets ended with ${during}`);
  assert.ok(sumOf(rows, ({ messages }) => messages) > 0 && sumOf(rows, ({ events }) => events) > 0);
});
