/**
 * A simulated cluster: servers, hosts, their network and database, and the watcher of what really runs.
 */
import { bootDirectoryName } from "../../node/src/machines/paths.ts";
import { readSettings, type ServerSettings } from "../../server/src/config.ts";
import { Databases, type RealDatabase } from "./database.ts";
import { type FencedVm, Fences } from "./fences.ts";
import { Files, ROOT } from "./files.ts";
import { setHost } from "./host.ts";
import { Network } from "./network.ts";
import { SimulatedNode } from "./node.ts";
import { Replacing } from "./replacing.ts";
import { JOIN_TOKEN, SimulatedServer } from "./server.ts";
import { type Program, World } from "./world.ts";

/** A VM that runs or ran. Times are virtual. */
export interface Vm {
  readonly bootId: string;
  readonly machineId: string;
  readonly node: string;
  readonly from: number;
  to: number | null;
  /** It was configured, so it is a run that is billed. */
  isConfigured: boolean;
  /** Paused for a move: then another may exist, which is paused too or runs. */
  isPaused: boolean;
}

/** What a fake VM's file has of it. */
interface VmFile {
  readonly bootId: string;
  readonly configuration: unknown;
  readonly isPaused?: boolean;
  readonly fencedUntil?: number | null;
}

export const SERVERS = ["server-1", "server-2"] as const;
const NODE_CPUS = 4;
const NODE_MEMORY_MB = 4_096;

export class Cluster {
  readonly world: World;
  readonly files: Files;
  readonly network: Network;
  readonly databases: Databases;
  readonly nodes: readonly SimulatedNode[];
  readonly servers = new Map<string, SimulatedServer>();
  /** By boot id. */
  readonly vms = new Map<string, Vm>();
  /** By machine: how often a disk was made for it. */
  readonly disksMade = new Map<string, number>();
  /** Boots that a journal says have run, with the node's time of it. */
  readonly ran = new Map<string, { readonly machineId: string; readonly node: string; readonly since: number }>();
  /**
   * Boots whose end was not seen, and of which no more than the begin is known: their runs have no length,
   * and are not recorded.
   */
  readonly unseen = new Set<string>();
  readonly fences: Fences;
  readonly replacing: Replacing;
  /**
   * Servers that an operator has called to replace what is lost, and how many of these calls have no answer.
   */
  readonly operators = new Map<Program, number>();
  readonly #settings: ServerSettings;
  readonly #making = new Set<string>();
  readonly #serversAheadMs = new Map<string, number>();
  /** The right time is 0. */
  #aheadMsMost = 0;
  #aheadMsLeast = 0;

  constructor(seed: number, real: RealDatabase, { nodes }: { readonly nodes: number }) {
    const world = new World(seed);
    this.world = world;
    this.files = new Files(world);
    this.network = new Network(world);
    this.databases = new Databases(world, real);
    setHost(this);
    this.files.watcher = {
      appeared: (path, content, isLink) => this.#appeared(path, content, isLink),
      vanished: (path) => this.#vanished(path),
    };
    this.#settings = {
      ...readSettings([]),
      dataDirectory: `${ROOT}/server`,
      // Its process would be a real one, in real time.
      registry: "none",
      joinToken: JOIN_TOKEN,
      cpuOvercommit: 1,
      memoryOvercommit: null,
    };
    const resources = { cpus: NODE_CPUS, memoryMb: NODE_MEMORY_MB };
    this.nodes = Array.from({ length: nodes }, (_, at) => {
      const name = `node-${at + 1}`;
      const onLog = (level: string, message: string): void => {
        if (level === "error" && message === "refused to run a machine twice") world.violate(`${name}: ${message}`);
      };
      return new SimulatedNode(world, this.files, { name, resources, onLog });
    });
    this.fences = new Fences(world, this.nodes, (vm) => this.#fenced(vm));
    this.network.onAcknowledged = (node, sentAt) => this.fences.acknowledged(node, sentAt);
    this.replacing = new Replacing({
      world,
      runsOn: (machineId) => this.running.flatMap((vm) => (vm.machineId === machineId ? [vm.node] : [])),
      serversApartMs: () => this.serversApartMs,
      isOperator: (server) => (this.operators.get(server) ?? 0) > 0,
    });
    this.databases.onNotice = (notice, server) => this.replacing.notice(notice, server);
  }

  get liveServers(): readonly SimulatedServer[] {
    return [...this.servers.values()].filter(({ program }) => program.isAlive);
  }

  /** How far two clocks of servers have been apart at most, also one from itself before it was set. */
  get serversApartMs(): number {
    return this.#aheadMsMost - this.#aheadMsLeast;
  }

  /** The clock of a server's host is set, whether the server runs or not. */
  setServerClock(name: string, aheadMs: number): void {
    this.#serversAheadMs.set(name, aheadMs);
    const program = this.servers.get(name)?.program;
    if (program !== undefined) program.clockAheadMs = aheadMs;
    this.#aheadMsMost = Math.max(this.#aheadMsMost, aheadMs);
    this.#aheadMsLeast = Math.min(this.#aheadMsLeast, aheadMs);
  }

  startServer(name: string): void {
    if (this.servers.get(name)?.program.isAlive === true) return;
    const { world, databases, network } = this;
    this.servers.set(
      name,
      new SimulatedServer({
        ...{ world, databases, network, name },
        settings: this.#settings,
        clock: { aheadMs: this.#serversAheadMs.get(name) ?? 0, rate: 1 },
        onFault: (text) => world.violate(text),
      }),
    );
  }

  close(): void {
    for (const program of [...this.world.programs]) program.kill();
    this.network.close();
    this.world.close();
    setHost(null);
  }

  /** The VMs that exist now. */
  get running(): readonly Vm[] {
    return [...this.vms.values()].filter(({ to }) => to === null);
  }

  #appeared(path: string, content: Buffer, isLink = false): void {
    const [, , node = "", , kind, machineId = "", ...rest] = path.split("/");
    if (kind !== "machines") return;
    const name = rest.join("/");
    if (name === "disk.new" && !isLink) this.#making.add(`${node} ${machineId}`);
    // One that arrives from another node is renamed with its directory.
    if (name === "disk" && this.#making.delete(`${node} ${machineId}`))
      this.disksMade.set(machineId, (this.disksMade.get(machineId) ?? 0) + 1);
    if (name === "journal.json") return this.#journaled(node, machineId, content);
    if (!name.endsWith("/vm.json")) return;
    const file = parsed(content) as VmFile;
    const { bootId, configuration, isPaused = false, fencedUntil = null } = file;
    // What an agent writes that was stopped, or whose files did not answer, when the kernel has ended the VM.
    if (this.fences.ended.has(bootId)) return this.files.remove(path);
    const known = this.vms.get(bootId);
    if (known !== undefined && known.machineId !== machineId)
      this.world.violate(`VM ${bootId} was given to ${known.machineId} and to ${machineId}`);
    const others = this.running.filter((vm) => vm.machineId === machineId && vm.bootId !== bootId && !vm.isPaused);
    if (!isPaused && others.length > 0)
      this.world.violate(
        `machine ${machineId} runs twice: as ${bootId} on ${node}, and as ${others[0]?.bootId} on ${others[0]?.node}`,
      );
    if (known?.to === null) {
      if (configuration !== null) known.isConfigured = true;
      known.isPaused = isPaused;
      this.fences.set(known, fencedUntil);
      return;
    }
    this.world.note(`VM ${bootId.slice(0, 11)} of ${machineId.slice(0, 11)} begins on ${node}`);
    const [from, isConfigured] = [this.world.now, configuration !== null];
    const vm: Vm = { bootId, machineId, node, from, to: null, isConfigured, isPaused };
    this.vms.set(bootId, vm);
    this.replacing.begins(machineId, node);
    this.fences.set(vm, fencedUntil);
  }

  /** The kernel has ended a VM. */
  #fenced({ bootId, machineId, node }: FencedVm): void {
    this.world.note(`the fence ends VM ${bootId.slice(0, 11)} of ${machineId.slice(0, 11)} on ${node}`);
    const name = bootDirectoryName(bootId);
    const { directory } = this.nodes.find((each) => each.name === node) as SimulatedNode;
    this.files.remove(`${directory}/machines/${machineId}/boots/${name}/vm.json`);
    const vm = this.vms.get(bootId);
    if (vm !== undefined) vm.to ??= this.world.now;
  }

  #vanished(path: string): void {
    const [, , node, , kind, , , boot, file] = path.split("/");
    if (kind !== "machines" || file !== "vm.json") return;
    const vm = this.running.find((each) => each.node === node && bootDirectoryName(each.bootId) === boot);
    if (vm === undefined) return;
    vm.to = this.world.now;
    this.world.note(`VM ${vm.bootId.slice(0, 11)} of ${vm.machineId.slice(0, 11)} ends on ${vm.node}`);
  }

  #journaled(node: string, machineId: string, content: Buffer): void {
    const { boot, lastRun } = parsed(content) as {
      boot?: { bootId: string; runningSince: number | null } | null;
      lastRun?: { bootId: string; startedAt: number; endedAt: number; cause: string } | null;
    };
    if (lastRun?.cause === "unseen" && lastRun.startedAt === lastRun.endedAt) this.unseen.add(lastRun.bootId);
    if (typeof boot?.runningSince === "number")
      this.ran.set(boot.bootId, { machineId, node, since: boot.runningSince });
  }
}

function parsed(content: Buffer): unknown {
  try {
    return JSON.parse(content.toString());
  } catch {
    return {};
  }
}
