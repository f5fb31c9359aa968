/**
 * Everything that may happen to an app on purpose, one after the other: the rows of the test's table.
 *
 * Always: a change is over when the app is as the request asked, and nothing of it is left.
 */
import assert from "node:assert/strict";
import type { AppInfo } from "@flotilla/contract/apps";
import type { Client } from "../../server/test/support/client.ts";
import { until } from "../support/until.ts";
import { type Fleet, restart, type Serving } from "./fleet.ts";

const APP = "/v1/apps/shop";
const REPLICAS = 3;
const SURGE = 2;
const DEADLINE_MS = 180_000;
/** Deadline of the canary whose instances never become healthy. */
const HEALTH_DEADLINE_SECS = 6;
const HEALTHY = { FAKE_LISTEN: "8080=200", FAKE_LISTEN_AFTER_MS: "150" };
const ILL = { FAKE_LISTEN: "8080=500" };

export class Shop {
  readonly fleet: Fleet;
  readonly #graceSecs: number;
  #version = 0;

  /** `graceSecs`: how long requests of an instance that leaves may continue. */
  constructor(fleet: Fleet, graceSecs: number) {
    this.fleet = fleet;
    this.#graceSecs = graceSecs;
  }

  get client(): Client {
    return this.fleet.flotilla.client();
  }

  /** A new version; resolves when its rollout has begun. */
  async deploy(fields: object = {}, listening: Readonly<Record<string, string>> = HEALTHY): Promise<void> {
    this.#version += 1;
    const env = Object.entries({ ...listening, VERSION: String(this.#version) });
    const body = {
      ...{ name: "shop", image: "local/busybox", cpus: 1, memoryMb: 128, stopGraceSecs: this.#graceSecs },
      ...{ env: env.map(([key, value]) => ({ key, value })) },
      health: { type: "http", path: "/healthz", intervalSecs: 1, timeoutSecs: 5, retries: 3 },
    };
    const { status, text } = await this.client.post("/v1/apps", { ...body, ...fields });
    assert.equal(status, 200, text);
  }

  async post(path: string, body: object = {}): Promise<void> {
    const { status, text } = await this.client.post(`${APP}/${path}`, body);
    assert.ok(status < 300, `${path}: ${status} ${text}`);
  }

  async read(): Promise<AppInfo> {
    return (await this.client.get(APP)).json as AppInfo;
  }

  until(what: string, holds: (app: AppInfo) => boolean): Promise<AppInfo> {
    const ask = async (): Promise<AppInfo> => {
      const app = await this.read();
      if (holds(app)) return app;
      throw new Error(JSON.stringify(app));
    };
    return until(ask, { what: `the app to be ${what}`, deadlineMs: DEADLINE_MS });
  }

  /** All instances are of one release and serve, and nothing of another is left. */
  settled(): Promise<AppInfo> {
    return this.until("settled", ({ rollout, instances, replicas, release }) => {
      const isOver = rollout === null || rollout.phase === "failed";
      const serve = instances.filter(({ isServing, status }) => isServing && status === "healthy");
      const isSame = instances.every(({ generation }) => generation === release);
      return isOver && isSame && serve.length === replicas && instances.length === replicas;
    });
  }
}

export interface Change {
  readonly name: string;
  readonly run: (shop: Shop) => Promise<unknown>;
}

const isRolledBack = ({ rollout }: AppInfo): boolean => rollout?.phase === "failed";

const OF_THE_APP: readonly Change[] = [
  { name: "rolling", run: (shop) => shop.deploy({ strategy: { type: "rolling", batchSize: SURGE } }) },
  {
    name: "canary, promoted",
    async run(shop) {
      await shop.deploy({ strategy: { type: "canary", canaryCount: 1, autoPromote: false } });
      await shop.until("waiting for a promotion", ({ status }) => status === "awaitingPromotion");
      await shop.post("promote");
    },
  },
  {
    name: "canary that fails",
    async run(shop) {
      const fields = { strategy: { type: "canary" }, healthDeadlineSecs: HEALTH_DEADLINE_SECS };
      await shop.deploy(fields, ILL);
      const { rollout } = await shop.until("rolled back", isRolledBack);
      assert.match(rollout?.message ?? "", /^release \d+ was rolled back: its instances did not become healthy/);
    },
  },
  { name: "blue-green", run: (shop) => shop.deploy({ strategy: { type: "blueGreen" } }) },
  { name: "redeploy", run: (shop) => shop.post("redeploy") },
  { name: "rollback", run: (shop) => shop.post("rollback") },
  { name: "scale up", run: (shop) => shop.post("scale", { count: REPLICAS + SURGE }) },
  { name: "scale down", run: (shop) => shop.post("scale", { count: REPLICAS }) },
];

const restartOf = (of: (fleet: Fleet) => readonly Serving[], index: number, name: string): Change => ({
  name: `restart of ${name} ${index + 1}`,
  async run({ fleet }) {
    const serving = of(fleet)[index];
    assert.ok(serving !== undefined);
    await restart(serving);
  },
});

const DRAIN: Change = {
  name: "drain of a node",
  async run(shop) {
    const [id, other] = shop.fleet.nodeIds;
    const { status, text } = await shop.client.post(`/v1/nodes/${id}/drain`);
    assert.ok(status < 300, text);
    await shop.until("on the other node", ({ instances }) => instances.every(({ nodeId }) => nodeId === other));
  },
};

/** In their order: each begins with what the one before has left, so the node leaves last. */
export const CHANGES: readonly Change[] = [
  ...OF_THE_APP,
  ...[0, 1].flatMap((index) => [
    restartOf(({ servers }) => servers, index, "server"),
    restartOf(({ ingresses }) => ingresses, index, "ingress"),
  ]),
  DRAIN,
];

/** Deploys the app on both nodes; the result is its host name. */
export async function firstDeploy(shop: Shop): Promise<string> {
  await shop.deploy({ replicas: REPLICAS });
  const { url, instances } = await shop.settled();
  assert.deepEqual(new Set(instances.map(({ nodeId }) => nodeId)), new Set(shop.fleet.nodeIds));
  return new URL(url).hostname;
}
