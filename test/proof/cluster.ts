/**
 * A cluster of a fleet on one host: two servers, a primary PostgreSQL with a standby, and three nodes with
 * real machines, each in its own network namespace, with a cable to one bridge.
 *
 * Every process is started by a supervisor, as a host's init does: the one who kills a program here starts it
 * again. The cluster itself repairs nothing else, except for `failOver`, which promotes the standby of a lost
 * primary.
 *
 * Always: everything that it started ends with its `close`, and in any case with the namespaces of the test.
 */
import { randomBytes } from "node:crypto";
import { realpathSync } from "node:fs";
import { mkdir, mkdtemp, writeFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import type { Client } from "../../server/test/support/client.ts";
import { Flotilla, Program } from "../support/flotilla.ts";
import { FarHost, openLan } from "../support/namespaces.ts";
import { type VmmProcess, vmmsOf } from "../support/node-on-host.ts";
import { type ReplicatedPostgres, startReplicatedPostgres } from "../support/replicated-postgres.ts";

export const SERVERS = ["server-a", "server-b"] as const;
export const DATABASES = ["database-a", "database-b"] as const;
export const NODES = ["node-1", "node-2", "node-3"] as const;

const API_PORT = 8080;
const NODE_PORT = 8443;
/** Virtual processors of running machines for each processor of a node. */
const CPU_OVERCOMMIT = 1;
/** How many machines of one processor a node may run. */
export const MACHINES_OF_NODE_MAX = Math.floor(availableParallelism() * CPU_OVERCOMMIT);

export interface SeenVmm extends VmmProcess {
  readonly node: string;
}

export class Cluster {
  readonly hosts: ReadonlyMap<string, FarHost>;
  readonly flotilla: Flotilla;
  readonly postgres: ReplicatedPostgres;

  constructor(parts: Pick<Cluster, "hosts" | "flotilla" | "postgres">) {
    this.hosts = parts.hosts;
    this.flotilla = parts.flotilla;
    this.postgres = parts.postgres;
  }

  host(name: string): FarHost {
    const host = this.hosts.get(name);
    if (host === undefined) throw new Error(`there is no host ${name}`);
    return host;
  }

  /** The server or the node agent on a host. */
  program(name: string): Program {
    const program = [...this.flotilla.servers, ...this.flotilla.nodes].find((each) => each.name === name);
    if (program === undefined) throw new Error(`no program is called ${name}`);
    return program;
  }

  /** With the first admin key. */
  clients(): readonly Client[] {
    return SERVERS.map((_, index) => this.flotilla.client(index));
  }

  /** As in command lines of VMMs. */
  nodeDirectory(node: string): string {
    return realpathSync(join(this.program(node).directory, "node"));
  }

  /** All VMMs of all nodes, without asking any program. */
  vmms(): readonly SeenVmm[] {
    return NODES.flatMap((node) => vmmsOf(this.nodeDirectory(node)).map((vmm) => ({ ...vmm, node })));
  }

  async close(): Promise<void> {
    for (const program of [...this.flotilla.servers, ...this.flotilla.nodes]) program.signal("SIGCONT");
    for (const host of this.hosts.values()) host.plugIn();
    const running = this.flotilla.nodes.length === NODES.length ? this.vmms() : [];
    for (const { pid } of running) process.kill(pid, "SIGKILL");
    await this.flotilla[Symbol.asyncDispose]();
  }
}

/**
 * Everything runs, and every node is ready, when this resolves. Call it once, in the test's own namespaces.
 */
export async function startCluster(context: Pick<TestContext, "after">): Promise<Cluster> {
  openLan();
  const openHost = (name: string, number: number): FarHost => new FarHost(name, number, { isOpen: true });
  const servers = SERVERS.map((name, index) => openHost(name, 11 + index));
  const databases = DATABASES.map((name, index) => openHost(name, 21 + index));
  const nodes = NODES.map((name, index) => new FarHost(name, 31 + index));
  const postgres = await startReplicatedPostgres(context, databases);
  const directory = await mkdtemp(join(tmpdir(), "flotilla-proof-"));
  const nodePrograms: Program[] = [];
  const secretsKey = randomBytes(32).toString("hex");
  const flotilla = new Flotilla({
    directory,
    urls: servers.map(({ address }) => `http://${address}:${API_PORT}`),
    servers: await Promise.all(
      servers.map(async (host) => {
        const own = join(directory, host.name);
        await mkdir(own, { recursive: true });
        await writeFile(join(own, "secrets.key"), secretsKey, { mode: 0o600 });
        const environment = {
          DATABASE_URL: postgres.url,
          FLOTILLA_DATA_DIR: own,
          FLOTILLA_LISTEN: `${host.address}:${API_PORT}`,
          FLOTILLA_NODE_LISTEN: `0.0.0.0:${NODE_PORT}`,
          FLOTILLA_NODE_ADDRESSES: `${host.address}:${NODE_PORT}`,
          FLOTILLA_CPU_OVERCOMMIT: String(CPU_OVERCOMMIT),
          FLOTILLA_INVOICE_GRACE_HOURS: "1",
          FLOTILLA_LOG_LEVEL: "debug",
        };
        return new Program(host.name, "server/src/main.ts", own, environment, host.launcher);
      }),
    ),
    nodes: nodePrograms,
  });
  const cluster = new Cluster({ hosts: byName([...servers, ...databases, ...nodes]), flotilla, postgres });
  context.after(() => cluster.close());
  for (const index of servers.keys()) await flotilla.startServer(index);
  const { token } = (await flotilla.client().post("/v1/tokens", { maxUses: NODES.length })).json;
  for (const [index, host] of nodes.entries()) {
    const own = join(directory, host.name);
    const environment = {
      FLOTILLA_DATA_DIR: own,
      FLOTILLA_NODE_ID: host.name,
      FLOTILLA_DRIVER: "qemu",
      FLOTILLA_ACCELERATOR: "tcg",
      FLOTILLA_LOG_LEVEL: "debug",
      FLOTILLA_URL: `https://${servers[index % servers.length]?.address}:${NODE_PORT}`,
      FLOTILLA_JOIN_TOKEN: token,
    };
    nodePrograms.push(new Program(host.name, "node/src/main.ts", own, environment, host.launcher));
  }
  await Promise.all(nodes.map((_, index) => flotilla.startNode(index)));
  return cluster;
}

const byName = (hosts: readonly FarHost[]): ReadonlyMap<string, FarHost> =>
  new Map(hosts.map((host) => [host.name, host]));
