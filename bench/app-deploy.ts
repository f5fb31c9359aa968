/**
 * The deploy of an app with five replicas of a small web server from a cached image, from its call until all
 * instances serve; and its rolling redeployment.
 *
 * Each sample is another app, which is destroyed before the next. One client asks meanwhile, and its answers
 * are counted.
 */
import { monotonic, timed } from "./support/clock.ts";
import { untilServing } from "./support/apps.ts";
import { BenchFlotilla } from "./support/flotilla.ts";
import { get } from "./support/get.ts";
import { importGuestImage } from "./support/guest-http.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";

const REPLICAS = 5;
const SIZE = { cpus: 1, memoryMb: 256 } as const;

/** Takes n samples. */
export async function appDeploy(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  flotilla.requireOwn();
  await flotilla.liftLimits();
  const { client } = flotilla;
  const image = await importGuestImage(flotilla);
  const [deploys, redeploys]: [number[], number[]] = [[], []];
  let [answered, failed] = [0, 0];
  for (let sample = 0; sample <= n; sample++) {
    const name = `deployed-${sample}`;
    const startedAt = monotonic();
    await client.deployApp({ name, image, port: 80, replicas: REPLICAS, ...SIZE });
    const app = await untilServing(flotilla, name);
    const deployMs = monotonic() - startedAt;
    const { host } = new URL(app.url);
    let isOver = false;
    const asking = (async () => {
      while (!isOver) {
        if ((await get(flotilla.access.url, { host }))?.text === "ok") answered += 1;
        else failed += 1;
      }
    })();
    const redeployMs = await timed(async () => {
      await client.redeployApp(name);
      await untilServing(flotilla, name);
    });
    isOver = true;
    await asking;
    // The first one makes the template of its image.
    if (sample > 0) {
      deploys.push(deployMs);
      redeploys.push(redeployMs);
    }
    await client.destroyApp(name);
  }
  const ours = summarize(deploys);
  return {
    name: "app-deploy",
    series: [
      { what: `deploy of ${REPLICAS} replicas until all serve`, summary: ours },
      { what: "rolling redeployment, one after the other", summary: summarize(redeploys) },
    ],
    reaches: [atMost("p50", ours.p50Ms, 3_000), atMost("requests that failed meanwhile", failed, 0, "")],
    setting: { image, size: `${SIZE.cpus} processor, ${SIZE.memoryMb} MB`, replicas: REPLICAS },
    notes: [`${answered} requests were answered during the redeployments`],
  };
}
