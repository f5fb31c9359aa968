/**
 * A whole Flotilla for tests: server and node agents as separate processes, in temporary directories.
 *
 *     await using flotilla = await startFlotilla({ nodes: 2 });
 *     const machine = await flotilla.create({ env: { FAKE_BOOT_MS: "50" } });
 *
 * Every program can be killed, like a crash, and started again on its directory. At the end all programs are
 * stopped, also the VMMs that agents leave behind, and the directory is deleted; when a test has failed,
 * FLOTILLA_KEEP=1 keeps it with all logs in it.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdir, mkdtemp, open, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createLog } from "../../server/src/log.ts";
import { type Answer, Client } from "../../server/test/support/client.ts";
import { putCluster } from "../../server/test/support/cluster.ts";
import { keepTemplates, putTemplates } from "./kept-templates.ts";
import { vmmsOf } from "./node-on-host.ts";
import { until } from "./until.ts";

const ROOT = join(import.meta.dirname, "../..");
export const JOIN_TOKEN = "join-token-of-the-tests";
const START_DEADLINE_MS = 60_000;
const STOP_DEADLINE_MS = 30_000;
/** An overloaded program may accept a connection and not answer; then it is asked again. */
const ANSWER_DEADLINE_MS = 5_000;
const PORT_MIN = 12_000;
const PORT_MAX = 30_000;

export interface FlotillaOptions {
  readonly servers?: number;
  readonly nodes?: number;
  readonly driver?: "fake" | "qemu";
  /** Without it the first server runs its own; several servers need it. */
  readonly databaseUrl?: string;
  /** Additional settings of a server, by the port it listens on. */
  readonly serverEnvironment?: (port: number) => Readonly<Record<string, string>>;
  /** The program of the nodes; default: of this checkout. */
  readonly nodeMain?: string;
  /** Additional settings of the nodes. */
  readonly nodeEnvironment?: Readonly<Record<string, string>>;
}

export interface MachineView {
  readonly id: string;
  readonly state: string;
  readonly ready: boolean;
  readonly error: string | null;
  readonly readyAt: string | null;
  readonly nodeId: string | null;
  readonly suspendedAt: string | null;
}

/** A program that can die and come back. */
export class Program {
  readonly name: string;
  readonly directory: string;
  readonly #main: string;
  readonly #environment: Readonly<Record<string, string>>;
  readonly logPath: string;
  readonly #launcher: readonly string[];
  #process: ChildProcess | null = null;
  /** The end of the latest process. */
  #ended: Promise<unknown> = Promise.resolve();

  /** `launcher`: a program that becomes the one that it is given, as `ip netns exec NAME` does. */
  constructor(
    name: string,
    main: string,
    directory: string,
    environment: Readonly<Record<string, string>>,
    launcher: readonly string[] = [],
  ) {
    this.#launcher = launcher;
    this.name = name;
    this.directory = directory;
    this.#main = main;
    this.#environment = environment;
    this.logPath = join(directory, `${name}.log`);
  }

  get pid(): number | null {
    return this.#process?.pid ?? null;
  }

  get isRunning(): boolean {
    return this.#process !== null && this.#process.exitCode === null && this.#process.signalCode === null;
  }

  /** Starts it without waiting for anything. */
  async start(): Promise<void> {
    if (this.isRunning) throw new Error(`${this.name} runs already`);
    await mkdir(this.directory, { recursive: true });
    const [program, ...argv] = [...this.#launcher, process.execPath, resolve(ROOT, this.#main)];
    // Its own file, not a pipe to this process: what it has written is in its log when it has ended, also
    // when it was killed.
    await using log = await open(this.logPath, "a");
    const child = spawn(program, argv, {
      env: { ...process.env, ...this.#environment },
      stdio: ["ignore", log.fd, log.fd],
    });
    this.#ended = once(child, "exit");
    this.#process = child;
  }

  /** Sends a signal, such as SIGSTOP. */
  signal(name: NodeJS.Signals): void {
    this.#process?.kill(name);
  }

  /** Like a crash: it gets no chance to do anything. */
  async kill(): Promise<void> {
    if (this.isRunning) this.#process?.kill("SIGKILL");
    await this.#ended;
  }

  /** As an operator stops it. Throws when it does not end in time. */
  async stop(): Promise<void> {
    if (this.isRunning) this.#process?.kill("SIGTERM");
    await until(() => !this.isRunning, { what: `${this.name} to stop`, deadlineMs: STOP_DEADLINE_MS });
    await this.#ended;
  }

  /** Throws with the end of its log when it has ended, so that waiting for it ends. */
  async mustRun(): Promise<void> {
    if (!this.isRunning) throw new Error(`${this.name} ended: ${(await this.log()).slice(-2000)}`);
  }

  async log(): Promise<string> {
    return await readFile(this.logPath, "utf8").catch(() => "");
  }
}

export class Flotilla implements AsyncDisposable {
  readonly directory: string;
  readonly servers: readonly Program[];
  readonly urls: readonly string[];
  readonly nodes: readonly Program[];
  #key = "";

  constructor(parts: Pick<Flotilla, "directory" | "servers" | "urls" | "nodes">) {
    this.directory = parts.directory;
    this.servers = parts.servers;
    this.urls = parts.urls;
    this.nodes = parts.nodes;
  }

  /** A client of one of the servers, with the first admin key. */
  client(server = 0): Client {
    return new Client(this.urls[server] ?? "", this.#key);
  }

  nodeDirectory(index = 0): string {
    return join(this.nodes[index]?.directory ?? "", "node");
  }

  async startServer(index = 0): Promise<void> {
    const server = this.servers[index];
    await server?.start();
    const isServing = async (): Promise<boolean> => {
      if (server?.isRunning !== true) return true;
      return (await fetch(`${this.urls[index]}/readyz`, { signal: AbortSignal.timeout(ANSWER_DEADLINE_MS) })).ok;
    };
    await until(isServing, { what: `server ${index} to serve`, deadlineMs: START_DEADLINE_MS, everyMs: 50 });
    await server?.mustRun();
    if (this.#key === "") this.#key = (await readFile(join(server?.directory ?? "", "admin.key"), "utf8")).trim();
  }

  /** Starts the agent and waits until the server has received a report of this process. */
  async startNode(index = 0): Promise<void> {
    const node = this.nodes[index];
    await node?.start();
    const isReady = async (): Promise<boolean> => {
      if (node?.isRunning !== true) return true;
      const lines = (await node.log()).split("\n").filter((line) => line.includes(`"pid":${node.pid}`));
      if (!lines.some((line) => line.includes("the node agent is ready"))) return false;
      const nodes = (await this.client().get("/v1/nodes")).json as { id: string; status: string }[];
      return nodes.some(({ id, status }) => id === node.name && status === "ready");
    };
    await until(isReady, { what: `${node?.name} to be ready`, deadlineMs: START_DEADLINE_MS, everyMs: 50 });
    await node?.mustRun();
  }

  /** Creates a machine; it is stopped. */
  async create(body: object = {}): Promise<MachineView> {
    const answer = await this.client().post("/v1/machines", {
      source: { type: "image", reference: "local/busybox" },
      resources: { cpus: 1, memoryMb: 128, diskGb: 1 },
      ...body,
    });
    return view(answer, 201);
  }

  async get(id: string, server = 0): Promise<MachineView> {
    return view(await this.client(server).get(`/v1/machines/${id}`), 200);
  }

  async start(id: string, server = 0): Promise<MachineView> {
    return view(await this.client(server).post(`/v1/machines/${id}/start`), 200);
  }

  async stop(id: string, server = 0): Promise<MachineView> {
    return view(await this.client(server).post(`/v1/machines/${id}/stop`), 200);
  }

  async remove(id: string, server = 0): Promise<void> {
    const answer = await this.client(server).delete(`/v1/machines/${id}`);
    if (answer.status !== 204) throw new Error(`DELETE was answered with ${answer.status}: ${answer.text}`);
  }

  /** The output of a command. Throws when it could not be run or did not exit with 0. */
  async exec(id: string, command: string | readonly string[], server = 0): Promise<string> {
    const answer = await this.client(server).post(`/v1/machines/${id}/exec`, { command, timeoutSeconds: 20 });
    const result = answer.json as { exitCode: number; stdout: string } | undefined;
    if (answer.status !== 200 || result?.exitCode !== 0) {
      throw new Error(`exec was answered with ${answer.status}: ${answer.text.slice(0, 500)}`);
    }
    return result.stdout;
  }

  async events(id: string): Promise<readonly string[]> {
    const answer = await this.client().get(`/v1/machines/${id}/events`);
    return (answer.json as { message: string }[]).map(({ message }) => message);
  }

  async untilState(id: string, state: string, deadlineMs = 30_000): Promise<MachineView> {
    const ask = async (): Promise<MachineView> => {
      const machine = await this.get(id);
      if (machine.state !== state) throw new Error(`it is ${machine.state} (${machine.error})`);
      return machine;
    };
    return await until(ask, { what: `machine ${id} to be ${state}`, deadlineMs, everyMs: 50 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.stop().catch(() => node.kill())));
    const directories = this.nodes.map((_node, index) => this.nodeDirectory(index));
    for (const { pid } of directories.flatMap((directory) => vmmsOf(directory))) endVmm(pid);
    // A killed server leaves its PostgreSQL running; the next one adopts it, and stops it with itself.
    const [first] = this.servers;
    if (first !== undefined && !first.isRunning) await this.startServer(0);
    await Promise.all(this.servers.map((server) => server.stop().catch(() => server.kill())));
    // Last, so that a full disk leaves no program.
    for (const [index, directory] of directories.entries()) await keepTemplates(directory, index);
    if (process.env["FLOTILLA_KEEP"] === undefined) {
      await rm(this.directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    }
  }
}

/** Kills a VMM. false: it has just ended, as its node or a user may end it at any moment. */
export function endVmm(pid: number): boolean {
  try {
    return process.kill(pid, "SIGKILL");
  } catch {
    return false;
  }
}

function view(answer: Answer, status: number): MachineView {
  if (answer.status === status) return answer.json as MachineView;
  throw new Error(`expected ${status}, got ${answer.status}: ${answer.text.slice(0, 500)}`);
}

/** Starts everything; when a part does not start, its log is in the error. */
export async function startFlotilla(options: FlotillaOptions = {}): Promise<Flotilla> {
  const { servers = 1, nodes = 1, driver = "fake", databaseUrl, nodeEnvironment = {} } = options;
  const { nodeMain = "node/src/main.ts" } = options;
  const { serverEnvironment = () => ({}) } = options;
  if (servers > 1 && databaseUrl === undefined) throw new Error("several servers need a databaseUrl");
  const directory = await mkdtemp(join(tmpdir(), "flotilla-cluster-"));
  const ports = await Promise.all(Array.from({ length: servers }, portToReturnTo));
  const urls = ports.map((port) => `http://127.0.0.1:${port}`);
  const common = { FLOTILLA_JOIN_TOKEN: JOIN_TOKEN, FLOTILLA_LOG_LEVEL: "debug" };
  const flotilla = new Flotilla({
    directory,
    urls,
    servers: ports.map((port, index) => {
      const own = join(directory, `server-${index}`);
      const database = databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl };
      const place = { FLOTILLA_DATA_DIR: own, FLOTILLA_LISTEN: `127.0.0.1:${port}` };
      const environment = { ...common, ...database, ...place, ...serverEnvironment(port) };
      return new Program(`server-${index}`, "server/src/main.ts", own, environment);
    }),
    nodes: Array.from({ length: nodes }, (_, index) => {
      const own = join(directory, `node-${index}`);
      return new Program(`node-${index}`, nodeMain, own, {
        ...common,
        FLOTILLA_DATA_DIR: own,
        FLOTILLA_NODE_ID: `node-${index}`,
        FLOTILLA_DRIVER: driver,
        // An emulated host of test/kvm knows that KVM works.
        FLOTILLA_ACCELERATOR: process.env["FLOTILLA_ACCELERATOR"] ?? "tcg",
        FLOTILLA_URL: urls[index % urls.length] ?? "",
        FLOTILLA_NODE_SOCKET: join(directory, `server-${index % urls.length}`, "nodes.sock"),
        ...nodeEnvironment,
      });
    }),
  });
  try {
    // Servers of one database have the same key.
    const secretsKey = randomBytes(32).toString("hex");
    for (const server of flotilla.servers) {
      await mkdir(server.directory, { recursive: true });
      await writeFile(join(server.directory, "secrets.key"), secretsKey, { mode: 0o600 });
    }
    if (databaseUrl === undefined) await putCluster(flotilla.servers[0]?.directory ?? "", createLog("error"));
    for (const index of ports.keys()) await flotilla.startServer(index);
    await permitAnyRate(flotilla.client());
    if (driver === "qemu")
      for (const index of flotilla.nodes.keys()) await putTemplates(flotilla.nodeDirectory(index), index);
    await Promise.all(flotilla.nodes.map((_, index) => flotilla.startNode(index)));
  } catch (error) {
    await flotilla[Symbol.asyncDispose]().catch(() => undefined);
    throw error;
  }
  return flotilla;
}

/** A quick host reaches the rate of the plan as it ships. Tests of rates make their own plans. */
async function permitAnyRate(client: Client): Promise<void> {
  const plans = (await client.get("/v1/plans")).json as { id: string; isDefault: boolean }[];
  const id = plans.find(({ isDefault }) => isDefault)?.id ?? "";
  const rate = { rateRequestsPerSecond: 1_000_000, rateBurst: 1_000_000 };
  const { status, text } = await client.patch(`/v1/plans/${id}`, rate);
  if (status !== 200) throw new Error(`the plan's rate could not be changed: ${status} ${text}`);
}

/**
 * A free port for a server that is killed and comes back on it. Not one chosen by the system: while the
 * server is down, the system may give such a port to any other program that listens or connects, and the
 * server could not come back. These ports are below the range from which Linux chooses (ip_local_port_range).
 * No two test files get the same one: this process holds the UDP port of that number until it ends.
 */
export async function portToReturnTo(): Promise<number> {
  for (;;) {
    const port = randomInt(PORT_MIN, PORT_MAX);
    const held = createSocket("udp4").unref();
    held.bind({ port, address: "127.0.0.1", exclusive: true });
    const probe = createServer();
    const isFree = await once(held, "listening")
      .then(() => once(probe.listen(port, "127.0.0.1"), "listening"))
      .then(
        () => true,
        () => false,
      );
    probe.close();
    if (isFree) return port;
    held.close();
  }
}

/** Running boots by machine, according to the fake driver's files. */
export async function runningBoots(flotilla: Flotilla, node = 0): Promise<ReadonlyMap<string, number>> {
  const machines = join(flotilla.nodeDirectory(node), "machines");
  const found = new Map<string, number>();
  for (const machineId of await readdir(machines)) {
    const files = await readdir(join(machines, machineId), { recursive: true });
    found.set(machineId, files.filter((file) => file.endsWith("vm.json")).length);
  }
  return found;
}
