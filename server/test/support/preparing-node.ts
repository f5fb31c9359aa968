/**
 * A node agent that prepares VMs, with the fake driver, in the process of the test. Its timers fire sooner, so it reports
 * several times a second.
 */
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { runAgent } from "../../../node/src/agent.ts";
import type { NodeConfig } from "../../../node/src/config.ts";
import { fakeDisks } from "../../../node/src/driver/fake/disks.ts";
import { FakeImages } from "../../../node/src/driver/fake/images.ts";
import { FakeDriver } from "../../../node/src/driver/fake/index.ts";
import { LastError } from "../../../node/src/link/last-error.ts";
import { makeLog } from "../../../node/src/log.ts";
import { hurriedClock } from "../../../node/test/support/in-process.ts";
import { until } from "../../../test/support/until.ts";
import { RESOURCES, TEST_JOIN_TOKEN } from "./node.ts";
import type { TestServer } from "./server.ts";

export interface PreparingNode {
  readonly id: string;
  readonly images: FakeImages;
  /** How many prepared VMs wait. */
  waiting(): Promise<number>;
  /** Ends the agent, and waits for that. */
  stop(): Promise<void>;
}

interface PreparingOptions {
  readonly id: string;
  readonly totalMemoryMb?: number;
  /** Called for each VM that is prepared; it fails if this throws. */
  readonly prepare?: (memoryMb: number) => void;
}

const HURRY = 25;

/** Starts an agent, and waits for its first report. Stopped after the tests of the file. */
export async function startPreparingNode(server: TestServer, options: PreparingOptions): Promise<PreparingNode> {
  const { id, totalMemoryMb = 64_000, prepare = () => undefined } = options;
  const dataDirectory = await mkdtemp(join(tmpdir(), "flotilla-test-node-"));
  const nodeDirectory = join(dataDirectory, "node");
  const [machinesDirectory, preparedDirectory] = [join(nodeDirectory, "machines"), join(nodeDirectory, "prepared")];
  await mkdir(join(nodeDirectory, "temporary"), { recursive: true });
  const clock = hurriedClock(HURRY);
  const stop = new AbortController();
  const images = new FakeImages(clock, "amd64");
  const drivers: FakeDriver[] = [];
  const config = {
    ...{ dataDirectory, nodeDirectory, machinesDirectory, preparedDirectory, nodeId: id, serverUrl: server.url },
    ...{ joinToken: TEST_JOIN_TOKEN, nodeSocket: null, linkListen: null, serverUid: null, driver: "fake" },
  } as unknown as NodeConfig;
  const log = makeLog({ level: "error", clock });
  const ended = runAgent({
    ...{ config, clock, log, errors: new LastError(clock), stop: stop.signal },
    openBackends: async ({ environmentOf }) => {
      const work = async ({ memoryMb }: { readonly memoryMb: number }): Promise<void> => prepare(memoryMb);
      const preparing = { directory: preparedDirectory, work };
      const driver = new FakeDriver({ machinesDirectory, environmentOf, clock, log, preparing });
      drivers.push(driver);
      return {
        ...{ driver, images, disks: fakeDisks },
        observeResources: async () => ({ ...RESOURCES, totalMemoryMb, availableMemoryMb: totalMemoryMb }),
        prepareImages: async () => undefined,
        [Symbol.asyncDispose]: async () => undefined,
      };
    },
  });
  const end = async (): Promise<void> => {
    stop.abort(new Error("the test ends it"));
    await ended;
  };
  after(async () => {
    await end();
    await rm(dataDirectory, { recursive: true, force: true });
  });
  await until(
    async () => {
      const nodes = (await server.client.get("/v1/nodes")).json as { id: string; lastHeartbeatAt: string | null }[];
      return nodes.some((node) => node.id === id && node.lastHeartbeatAt !== null);
    },
    { what: `the first report of node ${id}` },
  );
  return {
    id,
    images,
    stop: end,
    waiting: async () =>
      ((await drivers[0]?.find()) ?? []).filter(({ startedFor }) => startedFor === "prepared").length,
  };
}
