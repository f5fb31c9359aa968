/**
 * Changes of the table of hosts and targets, one after the other: an app gets a new host name each time, and
 * is asked by it as soon as the call has answered, while other clients ask it by its first name.
 */
import { untilServing } from "./support/apps.ts";
import { monotonic, timed } from "./support/clock.ts";
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import { get } from "./support/get.ts";
import { askFor } from "./support/load.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";

const NAME = "routed";
const CONNECTIONS = 4;
const LOAD_MS = 1_000;

/** Makes n changes. */
export async function appRoutes(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({
    driver: "fake",
    environment: { FLOTILLA_PUBLIC_URL: "http://fleet.example.net:8080" },
  });
  await flotilla.liftLimits();
  const { client, access } = flotilla;
  const env = [{ key: "FAKE_LISTEN", value: "8080=200" }];
  const request = { name: NAME, image: IMAGE, env, replicas: 2 };
  await client.deployApp(request);
  const app = await untilServing(flotilla, NAME);
  const { host } = new URL(app.url);
  let isOver = false;
  let [answered, failed] = [0, 0];
  const asking = (async () => {
    const question = { url: access.url, method: "GET", path: "/", headers: { host }, body: "" } as const;
    while (!isOver) {
      const load = await askFor(question, { connections: CONNECTIONS, forMs: LOAD_MS });
      answered += load.latenciesMs.length;
      failed += load.failed;
    }
  })();
  const changes: number[] = [];
  let unserved = 0;
  const startedAt = monotonic();
  for (let change = 0; change < n; change++) {
    const domain = `host-${change}.example.com`;
    changes.push(await timed(() => client.deployApp({ ...request, domain })));
    if ((await get(access.url, { host: domain }))?.status !== 200) unserved += 1;
  }
  const tookMs = monotonic() - startedAt;
  isOver = true;
  await asking;
  await client.destroyApp(NAME);
  return {
    name: "app-routes",
    series: [{ what: "a call that gives an app another host name", summary: summarize(changes) }],
    reaches: [
      atMost("requests that failed meanwhile", failed, 0, ""),
      atMost("new hosts that did not serve when the call had answered", unserved, 0, ""),
    ],
    setting: { driver: "fake", changes: n, connections: CONNECTIONS },
    notes: [`${answered} requests were answered in ${(tookMs / 1000).toFixed(1)} s`],
  };
}
