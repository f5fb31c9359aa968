/**
 * A real node agent for tests, as a separate process with the fake driver: the same program as in a fleet,
 * without VMs. It registers at a test server with its join token.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import type { Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { registrationProof } from "@flotilla/contract/link/fleet";
import type { TestServer } from "./server.ts";
import { until } from "../../../test/support/until.ts";

const NODE_MAIN = new URL("../../../node/src/main.ts", import.meta.url).pathname;

/** What a node that a test plays itself says it has. */
export const RESOURCES = {
  totalCpus: 8,
  totalMemoryMb: 16_384,
  availableMemoryMb: 8_000,
  totalDiskGb: 100,
  availableDiskGb: 50,
  usedCpus: 1.5,
  usedMemoryMb: 100,
  usedDiskGb: 1,
  pressure: null,
};

/** Pass it to startTestServer, so that its nodes may register. */
export const TEST_JOIN_TOKEN = "join-token-of-the-tests";

export interface TestNode {
  readonly id: string;
  /** Its data, which a killed agent leaves. */
  readonly directory: string;
  /** The agent's process. */
  pid(): number;
  /** Kills the agent, like a crash. Its fake VMs keep running. */
  kill(): Promise<void>;
  /** Starts the agent again on the same directory. Resolves when the server has received its report. */
  restart(): Promise<void>;
}

/** Makes a key. Returns what a node of another host sends to register with it and a token or credential. */
export function keyedNode(id: string): (bearer: string) => object {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  return (bearer) => {
    const proved = registrationProof(id, createHash("sha256").update(bearer).digest("hex"));
    return {
      ...{ id, address: `parked:${id}`, totalCpus: 1, totalMemoryMb: 1, totalDiskGb: 1 },
      publicKey: publicKey.export({ type: "spki", format: "pem" }),
      proof: sign("sha256", Buffer.from(proved), privateKey).toString("base64"),
    };
  };
}

/** Has a node that a test plays listen at a socket, which ends after its tests. Returns its address. */
export async function listenAtSocket(node: Server): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-played-node-"));
  const path = join(directory, "link.sock");
  node.listen(path);
  await once(node, "listening");
  after(async () => {
    node.closeAllConnections();
    node.close();
    await rm(directory, { recursive: true, force: true });
  });
  return `unix:${path}`;
}

/**
 * Starts a node agent and waits until it has reported. Stopped after the tests of the file. `parent`: where
 * its directory is made.
 */
export async function startTestNode(server: TestServer, id = "node-a", parent = tmpdir()): Promise<TestNode> {
  const directory = await mkdtemp(join(parent, "flotilla-test-node-"));
  let agent: ChildProcess | undefined;
  const kill = async (): Promise<void> => {
    const ending = agent;
    agent = undefined;
    if (ending === undefined || ending.exitCode !== null || ending.signalCode !== null) return;
    const ended = once(ending, "exit");
    ending.kill("SIGKILL");
    await ended;
  };
  const start = async (): Promise<void> => {
    const before = await heartbeatOf(server, id);
    agent = spawn(process.execPath, [NODE_MAIN], {
      env: {
        ...process.env,
        FLOTILLA_DRIVER: "fake",
        FLOTILLA_DATA_DIR: directory,
        FLOTILLA_URL: server.url,
        FLOTILLA_NODE_SOCKET: server.client.nodeSocket ?? "",
        FLOTILLA_JOIN_TOKEN: TEST_JOIN_TOKEN,
        FLOTILLA_NODE_ID: id,
        FLOTILLA_LOG_LEVEL: "error",
      },
      stdio: ["ignore", "ignore", "inherit"],
    });
    const hasReported = async (): Promise<boolean> => {
      const now = await heartbeatOf(server, id);
      return now !== undefined && now !== before;
    };
    await until(hasReported, { deadlineMs: 15_000, what: `the first report of node ${id}` });
  };
  after(async () => {
    await kill();
    await rm(directory, { recursive: true, force: true });
  });
  await start();
  return { id, directory, pid: () => agent?.pid ?? 0, kill, restart: start };
}

async function heartbeatOf(server: TestServer, id: string): Promise<string | undefined> {
  const nodes = (await server.client.get("/v1/nodes")).json as { id: string; lastHeartbeatAt: string | null }[];
  return nodes.find((node) => node.id === id)?.lastHeartbeatAt ?? undefined;
}
