/**
 * What the ingress of apps adds: requests to a small web server by the host name of its app, against the same
 * requests to the port of the instance on its node, in the same run.
 *
 * The node publishes the port on loopback for the second half, so both go through the node agent. The two
 * alternate.
 */
import { BenchFlotilla } from "./support/flotilla.ts";
import { CONNECTIONS, importGuestImage, Side, TURN_MS } from "./support/guest-http.ts";
import type { Finding } from "./support/report.ts";
import { atLeast, atMost, summarize } from "./support/statistics.ts";
import { untilServing } from "./support/apps.ts";

const NAME = "asked";

/** Takes n turns of each. */
export async function appRequests(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({
    driver: "qemu",
    environment: { FLOTILLA_PUBLISH_ON_LOOPBACK: "yes" },
  });
  flotilla.requireOwn();
  await flotilla.liftLimits();
  const image = await importGuestImage(flotilla);
  await flotilla.client.deployApp({ name: NAME, image, port: 80, memoryMb: 512 });
  const app = await untilServing(flotilla, NAME);
  const hostPort = app.instances[0]?.hostPort ?? null;
  if (hostPort === null) throw new Error("the node does not publish the port of the instance on loopback");
  const common = { method: "GET", path: "/", body: "" } as const;
  const pids = [await flotilla.pidOf("server"), await flotilla.pidOf("node")];
  const { host } = new URL(app.url);
  const ours = new Side({ ...common, url: flotilla.access.url, headers: { host } }, pids);
  const direct = new Side({ ...common, url: `http://127.0.0.1:${hostPort}`, headers: {} }, pids);
  for (const side of [ours, direct]) await side.warmUp();
  for (let turn = 0; turn < n; turn++) for (const side of [ours, direct]) await side.take();
  await flotilla.client.destroyApp(NAME);
  const [alone, bare] = [summarize(ours.aloneMs), summarize(direct.aloneMs)];
  return {
    name: "app-requests",
    series: [
      { what: "GET by the host of the app, one by one", summary: alone },
      { what: "GET on the node, one by one", summary: bare, isBaseline: true },
      { what: `GET by the host of the app, ${CONNECTIONS} at once`, summary: summarize(ours.loadedMs) },
      { what: `GET on the node, ${CONNECTIONS} at once`, summary: summarize(direct.loadedMs) },
    ],
    reaches: [
      atMost("added, one by one, p50", alone.p50Ms - bare.p50Ms, 1),
      atLeast(`requests per second, ${CONNECTIONS} at once, of those on the node`, ours.rate / direct.rate, 0.5),
    ],
    setting: { connections: CONNECTIONS, turns: n, "seconds a turn": TURN_MS / 1000 },
    notes: [
      `by the host ${Math.round(ours.rate)} per second, on the node ${Math.round(direct.rate)} per second`,
      `processor time for each, server and node agent: by the host ${ours.processorTime}, on the node ${direct.processorTime}`,
    ],
  };
}
