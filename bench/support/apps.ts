/**
 * Waits for apps of a benchmark.
 */
import type { AppInfo } from "@flotilla/sdk/client";
import { monotonic, sleep } from "./clock.ts";
import type { BenchFlotilla } from "./flotilla.ts";

const DEADLINE_MS = 180_000;
const POLL_MS = 20;

/** Waits until as many instances serve as are asked, all of one release, and nothing is under way. */
export async function untilServing({ client }: BenchFlotilla, name: string): Promise<AppInfo> {
  const deadline = monotonic() + DEADLINE_MS;
  for (;;) {
    const app = await client.getApp(name);
    const { instances, release, replicas, rollout, status } = app;
    const serving = instances.filter(({ isServing, generation }) => isServing && generation === release);
    if (status === "running" && rollout === null && serving.length === replicas) return app;
    if (monotonic() > deadline) throw new Error(`app ${name} does not serve: ${JSON.stringify(app)}`);
    await sleep(POLL_MS);
  }
}
