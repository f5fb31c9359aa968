/**
 * A simulated host: its files, its VMs, and the node agent that runs on it. The agent is the shipped one with
 * the fake driver; it may die, and another one finds what it left.
 */
import { runAgent } from "../../node/src/agent.ts";
import type { NodeConfig } from "../../node/src/config.ts";
import { fakeDisks } from "../../node/src/driver/fake/disks.ts";
import { FakeImages } from "../../node/src/driver/fake/images.ts";
import { FakeDriver } from "../../node/src/driver/fake/index.ts";
import { LastError } from "../../node/src/link/last-error.ts";
import type { NodeBackends, NodeBackendsOptions } from "../../node/src/node-backends.ts";
import { type Files, ROOT } from "./files.ts";
import { JOIN_TOKEN } from "./server.ts";
import { Program, type World } from "./world.ts";

export interface Resources {
  readonly cpus: number;
  readonly memoryMb: number;
}

export class SimulatedNode {
  readonly name: string;
  readonly directory: string;
  readonly resources: Resources;
  agent: Program | null = null;
  /** How far its clock is ahead. */
  aheadMs = 0;
  /** Rate of its kernel's timers: how much of a second passes in one. */
  rate = 1;
  readonly bootedMsBefore: number;
  readonly #world: World;
  readonly #files: Files;
  readonly #onLog: NonNullable<Program["onLog"]>;
  readonly #config: NodeConfig;

  constructor(
    world: World,
    files: Files,
    { name, resources, onLog }: { name: string; resources: Resources; onLog: NonNullable<Program["onLog"]> },
  ) {
    this.#world = world;
    this.#files = files;
    this.#onLog = onLog;
    this.name = name;
    this.resources = resources;
    // A host has run for longer than a server, or for less.
    this.bootedMsBefore = Number(name.slice(-1)) * 1_000_000;
    const dataDirectory = `${ROOT}/${name}`;
    this.directory = `${dataDirectory}/node`;
    files.makeDirectories(`${this.directory}/temporary`);
    files.sync(dataDirectory);
    this.#config = {
      dataDirectory,
      cacheDirectory: `${dataDirectory}/cache`,
      nodeDirectory: this.directory,
      machinesDirectory: `${this.directory}/machines`,
      preparedDirectory: `${this.directory}/prepared`,
      imagesDirectory: `${this.directory}/images`,
      temporaryDirectory: `${this.directory}/temporary`,
      logLevel: "info",
      allowedRegistries: null,
      registryMirrors: new Map(),
      insecureRegistries: [],
      registryCredentials: null,
      imageCacheGb: 1,
      publishOnLoopback: false,
      blockedNetworks: [],
      driver: "fake",
      accelerator: "none",
      nodeId: name,
      serverUrl: `http://${name}.simulated`,
      nodeSocket: null,
      joinToken: JOIN_TOKEN,
      linkListen: null,
      serverUid: null,
    } as unknown as NodeConfig;
  }

  get isRunning(): boolean {
    return this.agent?.isAlive === true;
  }

  /** VMs are prepared, each in this time; null: none is. */
  preparingMsMax: number | null = null;

  /** Starts an agent on what the last one left. */
  start(): void {
    if (this.isRunning) return;
    const world = this.#world;
    const program = new Program(world, "node", this.name, {
      aheadMs: this.aheadMs,
      rate: this.rate,
      bootedMsBefore: this.bootedMsBefore,
    });
    program.onLog = this.#onLog;
    this.agent = program;
    world.note(`${this.name} starts`);
    const clock = world.clockOf(program);
    const log = program.log();
    void world.as(program, () =>
      runAgent({
        config: this.#config,
        clock,
        log,
        errors: new LastError(clock),
        stop: new AbortController().signal,
        openBackends: (options) => Promise.resolve(this.#backends(options)),
      }).catch((error: unknown) => {
        if (program.isAlive) world.violate(`the agent of ${this.name} cannot run: ${String((error as Error).stack)}`);
      }),
    );
  }

  /** The host loses its power: its agent, its VMs and what was not synced are gone. */
  losePower(): void {
    this.agent?.kill();
    const machines = `${this.directory}/machines`;
    for (const machine of this.#files.names(machines))
      for (const boot of this.#files.names(`${machines}/${machine}/boots`))
        this.#files.remove(`${machines}/${machine}/boots/${boot}/vm.json`);
    this.#files.losePower(this.directory);
  }

  #backends({ config, clock, log, environmentOf }: NodeBackendsOptions): NodeBackends {
    const { cpus, memoryMb } = this.resources;
    const { preparingMsMax } = this;
    const work = async (_request: unknown, signal: AbortSignal): Promise<void> => {
      await clock.sleep(this.#world.random.between(0, preparingMsMax ?? 0), signal);
      signal.throwIfAborted();
    };
    return {
      driver: new FakeDriver({
        ...{ machinesDirectory: config.machinesDirectory, environmentOf, clock, log },
        ...(preparingMsMax === null ? {} : { preparing: { directory: config.preparedDirectory, work } }),
      }),
      images: new FakeImages(clock, "amd64"),
      disks: fakeDisks,
      observeResources: () =>
        Promise.resolve({
          totalCpus: cpus,
          totalMemoryMb: memoryMb,
          availableMemoryMb: memoryMb,
          totalDiskGb: 1_000,
          availableDiskGb: 1_000,
          usedCpus: 0,
          usedMemoryMb: 0,
          usedDiskGb: 0,
          pressure: null,
        }),
      closeToGuests: () => Promise.resolve(),
      prepareImages: () => Promise.resolve(),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
  }
}
