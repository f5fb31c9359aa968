/**
 * One seed: a cluster, requests of users and operators, and faults; then quiet, in which the observed state must reach the desired
 * state, and stay.
 */
import type { EndpointName } from "@flotilla/contract/endpoints";
import { phaseOf } from "../../server/src/machines/state.ts";
import { Cluster } from "./cluster.ts";
import type { RealDatabase } from "./database.ts";
import { checkRuns, checkStep, whatIsOpen } from "./invariants.ts";
import { readRows, readRuns, type Rows } from "./rows.ts";
import type { Reply, SimulatedServer } from "./server.ts";
import { TENANT } from "./tenant.ts";
import { Violation } from "./world.ts";

const CALLER = {
  kind: "key",
  keyId: "key-00000000000000000000000000000051",
  tenantId: TENANT,
  scopes: ["admin"],
  isAdmin: true,
  expiresAt: null,
} as const;

/** Every fault, as it is counted. */
export const FAULTS = [
  "message lost",
  "message late",
  "message repeated",
  "message cut",
  "server killed",
  "server killed in a write",
  "agent killed",
  "agent killed in a write",
  "one direction cut",
  "node cut off",
  "notifications missed",
  "statements lost",
  "clock set",
] as const;

const STEP_MS_MAX = 1_500;
/** How long the observed state may take to reach the desired one, in virtual time. Leases, retries and deadlines are below it. */
const REACHES_WITHIN_MS = 40 * 60_000;
/** How long it must stay, in virtual time: longer than a server waits before it sends a desired state again, which is 5 s. */
const STAYS_FOR_MS: readonly number[] = [6_000, 6_000, 6_000, 12_000];
const MACHINES_MAX = 7;

export interface Outcome {
  readonly seed: number;
  readonly fingerprint: string;
  readonly violation: string | null;
  readonly lines: readonly string[];
  /** How often each fault met a machine of each phase, as `fault/phase`. */
  readonly met: ReadonlyMap<string, number>;
  readonly calls: ReadonlyMap<string, number>;
  readonly virtualMs: number;
  readonly statements: number;
  readonly events: number;
}

export async function simulate(real: RealDatabase, seed: number): Promise<Outcome> {
  await real.reset();
  const run = new Run(seed, real);
  let violation: string | null = null;
  try {
    await run.play();
  } catch (error) {
    violation = error instanceof Violation ? error.message : `seed ${seed}: ${(error as Error).stack}`;
  } finally {
    run.cluster.close();
  }
  const { world, databases } = run.cluster;
  return {
    ...{ seed, violation, met: run.met, calls: run.calls },
    fingerprint: world.fingerprint(),
    lines: world.lines,
    virtualMs: world.now,
    statements: databases.statements,
    events: world.eventCount,
  };
}

interface Machine {
  readonly id: string;
}

class Run {
  readonly cluster: Cluster;
  readonly met = new Map<string, number>();
  readonly calls = new Map<string, number>();
  readonly #machines: Machine[] = [];
  readonly #pools: string[] = [];
  readonly #created = new Set<string>();
  readonly #deletions = new Set<string>();
  /** Machines whose guests end by themselves. */
  readonly #restless = new Set<string>();
  #open = 0;
  #isHealed = false;
  #rows: Rows | null = null;

  constructor(seed: number, real: RealDatabase) {
    this.cluster = new Cluster(seed, real, { nodes: 2 + (seed % 2) });
    this.cluster.network.onFault = (kind) => this.#meet(`message ${kind}`);
  }

  async play(): Promise<void> {
    const { cluster } = this;
    const { world } = cluster;
    const { random } = world;
    this.#setTempers();
    for (const name of ["server-1", "server-2"]) cluster.startServer(name);
    for (const node of cluster.nodes) node.start();
    await world.until(3_000, () => this.#rows !== null);
    const steps = 12 + random.below(24);
    for (let step = 0; step < steps; step += 1) {
      if (random.happens(0.3)) this.#fault();
      else this.#request();
      await world.until(random.happens(0.3) ? random.between(0, 20) : random.between(0, STEP_MS_MAX));
      await this.#check();
    }
    this.#heal();
    await this.#reach();
  }

  /** How unkind network, database and clocks are all the time. */
  #setTempers(): void {
    const { network, databases, nodes, world } = this.cluster;
    const { random } = world;
    if (random.happens(0.3)) network.losing = random.between(0, 0.1);
    if (random.happens(0.3)) network.delaying = random.between(0, 0.2);
    if (random.happens(0.4)) network.repeating = random.between(0, 0.4);
    if (random.happens(0.2)) databases.losing = random.between(0, 0.02);
    if (random.happens(0.3)) databases.deaf = random.between(0, 0.6);
    if (random.happens(0.3)) databases.latencyMs = random.between(1, 30);
    if (random.happens(0.2)) for (const node of nodes) node.aheadMs = Math.round(random.between(-60_000, 60_000));
  }

  async #check(): Promise<Rows> {
    const rows = await readRows(this.cluster.databases);
    this.#rows = rows;
    checkStep(this.cluster, rows, { created: this.#created, deletions: this.#deletions });
    const { violation } = this.cluster.world;
    if (violation !== null) throw violation;
    return rows;
  }

  /** A fault has happened: which states did it meet? */
  #meet(fault: string): void {
    for (const machine of this.#rows?.machines ?? []) {
      const key = `${fault}/${phaseOf(machine)}`;
      this.met.set(key, (this.met.get(key) ?? 0) + 1);
    }
  }

  // Requests.

  #request(): void {
    const { random } = this.cluster.world;
    const machine = this.#machines.length === 0 ? undefined : random.pick(this.#machines);
    if (machine === undefined || (this.#machines.length < MACHINES_MAX && random.happens(0.2))) return this.#create();
    const { id } = machine;
    const node = random.pick(this.cluster.nodes).name;
    const requests: readonly (readonly [number, () => void])[] = [
      [6, () => this.#send("startMachine", { params: { id }, query: random.happens(0.3) ? { detach: true } : {} })],
      [3, () => this.#send("stopMachine", { params: { id }, query: random.happens(0.4) ? { keepMemory: true } : {} })],
      [1.5, () => this.#delete(id)],
      [3, () => this.#send("moveMachine", { params: { id }, body: random.happens(0.5) ? { nodeId: node } : {} })],
      [1, () => this.#send("drainNode", { params: { id: node }, body: { deadlineSeconds: random.pick([0, 5, 30]) } })],
      [0.7, () => this.#send("cancelDrain", { params: { id: node } })],
      [0.5, () => this.#send("cordonNode", { params: { id: node } })],
      [0.5, () => this.#send("uncordonNode", { params: { id: node } })],
      [
        0.5,
        () =>
          this.#send("updateMachine", {
            params: { id },
            body: { disruption: random.pick(["migrate", "restart", "stop"]) },
          }),
      ],
      [1, () => this.#get(id)],
      [0.7, () => this.#pool()],
      [1, () => this.#claim()],
      [0.3, () => this.#deletePool()],
    ];
    let left = random.between(
      0,
      requests.reduce((sum, [weight]) => sum + weight, 0),
    );
    for (const [weight, request] of requests) {
      left -= weight;
      if (left <= 0) return request();
    }
  }

  #create(): void {
    const { random } = this.cluster.world;
    const env: Record<string, string> = { FAKE_BOOT_MS: String(random.below(random.pick([10, 10, 3_000]))) };
    if (random.happens(0.1)) env["FAKE_CRASH_AFTER_MS"] = String(random.below(10_000));
    if (random.happens(0.1)) env["FAKE_POWEROFF_AFTER_MS"] = String(random.below(10_000));
    if (random.happens(0.05)) env["FAKE_BOOT_FAIL"] = "1";
    if (random.happens(0.05)) env["FAKE_CONFIGURE_FAIL"] = "1";
    if (random.happens(0.1)) env["FAKE_SUSPEND_FAIL"] = random.pick(["no_space", "conflict"]);
    if (random.happens(0.1)) env["FAKE_RESUME_FAIL"] = "1";
    if (random.happens(0.2)) env["FAKE_SUSPEND_MS"] = String(random.below(3_000));
    if (random.happens(0.1)) env["FAKE_IGNORE_SHUTDOWN"] = "1";
    const reference = random.happens(0.2) ? `example/slow-${random.below(4_000)}` : "local/busybox";
    const body = {
      source: { type: "image", reference },
      resources: { cpus: random.pick([1, 1, 2, 3]), memoryMb: 256, diskGb: 1 },
      env,
      restart: random.pick(["always", "never"]),
      disruption: random.pick(["migrate", "restart", "stop"]),
      ephemeral: random.happens(0.1),
    };
    const isEphemeral = body.ephemeral;
    this.#send("createMachine", { body }, (reply) => {
      if (reply.kind !== "answer") return;
      const { id } = reply.body as { id: string };
      this.#machines.push({ id });
      this.#created.add(id);
      if (env["FAKE_CRASH_AFTER_MS"] !== undefined || env["FAKE_POWEROFF_AFTER_MS"] !== undefined)
        this.#restless.add(id);
      if (isEphemeral) this.#deletions.add(id);
      if (random.happens(0.6)) this.#send("startMachine", { params: { id }, query: {} });
    });
  }

  #delete(id: string): void {
    this.#deletions.add(id);
    const at = this.#machines.findIndex((machine) => machine.id === id);
    if (this.cluster.world.random.happens(0.7)) this.#machines.splice(at, 1);
    this.#send("deleteMachine", { params: { id }, query: {} });
  }

  #get(id: string): void {
    this.#send("getMachine", { params: { id } }, (reply) => {
      if (reply.kind === "refused" && reply.status === 404 && !this.#deletions.has(id))
        this.cluster.world.violate(`machine ${id} was not found, and no caller deleted it`);
    });
  }

  #pool(): void {
    if (this.#pools.length >= 2) return;
    const { random } = this.cluster.world;
    const body = { image: "local/busybox", cpus: 1, memoryMb: 256, targetSize: 1 + random.below(2) };
    this.#send("createPool", { body }, (reply) => {
      if (reply.kind === "answer") this.#pools.push((reply.body as { id: string }).id);
    });
  }

  #claim(): void {
    const { random } = this.cluster.world;
    if (this.#pools.length === 0) return;
    this.#send("claimMachine", { params: { id: random.pick(this.#pools) } }, (reply) => {
      if (reply.kind !== "answer") return;
      const { id } = reply.body as { id: string };
      if (this.#created.has(id)) this.cluster.world.violate(`machine ${id} was claimed twice`);
      this.#created.add(id);
      this.#machines.push({ id });
    });
  }

  #deletePool(): void {
    if (this.#pools.length === 0) return;
    const [id] = this.#pools.splice(this.cluster.world.random.below(this.#pools.length), 1);
    this.#send("deletePool", { params: { id: id as string } });
  }

  /** Sends a call to a server that lives. Its answer arrives by itself. */
  #send(
    name: EndpointName,
    call: { params?: object; query?: object; body?: unknown },
    onReply?: (reply: Reply) => void,
  ): void {
    const { world, liveServers } = this.cluster;
    if (liveServers.length === 0) return;
    const server: SimulatedServer = world.random.pick(liveServers);
    this.calls.set(name, (this.calls.get(name) ?? 0) + 1);
    world.note(`${name} ${JSON.stringify(call)} at ${server.program.name}`);
    this.#open += 1;
    void server.call(name, { ...call, caller: CALLER }).then((reply) => {
      this.#open -= 1;
      const text = reply.kind === "refused" ? ` ${reply.status} ${reply.text}` : "";
      world.note(`${name} ${JSON.stringify(call.params ?? {})} → ${reply.kind}${text}`);
      onReply?.(reply);
    });
  }

  // Faults.

  #fault(): void {
    const { cluster } = this;
    const { world, network, databases, nodes } = cluster;
    const { random } = world;
    const server = random.pick([...cluster.servers.values()]);
    const node = random.pick(nodes);
    const faults: Readonly<Record<string, () => void>> = {
      "server killed": () => this.#restartServer(server, () => server.program.kill()),
      "server killed in a write": () =>
        this.#restartServer(server, () => {
          server.program.diesAfter = { statements: random.below(12) };
        }),
      "agent killed": () => this.#restartAgent(() => node.agent?.kill(), node),
      "agent killed in a write": () =>
        this.#restartAgent(() => {
          if (node.agent !== null) node.agent.diesAfter = { files: random.below(30) };
        }, node),
      "one direction cut": () => {
        const [from, to] = random.happens(0.5) ? [server.program.name, node.name] : [node.name, server.program.name];
        network.cut(from, to);
        this.#later(random.between(500, 20_000), () => network.heal());
      },
      "node cut off": () => {
        for (const name of cluster.servers.keys()) {
          network.cut(name, node.name);
          network.cut(node.name, name);
        }
        this.#later(random.happens(0.25) ? random.between(35_000, 60_000) : random.between(500, 20_000), () =>
          network.heal(),
        );
      },
      "notifications missed": () => {
        server.connection.setListening(false);
        this.#later(random.between(100, 5_000), () => {
          if (server.program.isAlive) server.connection.setListening(true);
        });
      },
      "statements lost": () => {
        const { losing } = databases;
        databases.losing = 0.3;
        this.#later(random.between(50, 2_000), () => {
          databases.losing = losing;
        });
      },
      "clock set": () => {
        node.aheadMs += Math.round(random.between(-30_000, 30_000));
        if (node.agent !== null) node.agent.clockAheadMs = node.aheadMs;
      },
    };
    const kind = random.pick(Object.keys(faults));
    world.note(`FAULT ${kind}: ${server.program.name}, ${node.name}`);
    this.#meet(kind);
    faults[kind]?.();
  }

  #restartServer(server: SimulatedServer, kill: () => void): void {
    kill();
    const { name } = server.program;
    this.#later(this.cluster.world.random.between(100, 8_000), () => {
      server.program.kill();
      this.cluster.startServer(name);
    });
  }

  #restartAgent(kill: () => void, node: Cluster["nodes"][number]): void {
    kill();
    const { random } = this.cluster.world;
    this.#later(random.happens(0.1) ? random.between(30_000, 50_000) : random.between(100, 8_000), () => {
      node.agent?.kill();
      node.start();
    });
  }

  #later(ms: number, work: () => void): void {
    this.cluster.world.after(ms, null, () => {
      if (!this.#isHealed) work();
    });
  }

  /** No more faults: everything is started that is down. */
  #heal(): void {
    const { world, network, databases, servers, nodes } = this.cluster;
    world.note("HEAL");
    this.#isHealed = true;
    network.heal();
    Object.assign(network, { losing: 0, delaying: 0, repeating: 0 });
    Object.assign(databases, { losing: 0, deaf: 0, latencyMs: 0.6 });
    for (const [name, server] of servers) {
      server.program.diesAfter = {};
      if (!server.program.isAlive) this.cluster.startServer(name);
      else server.connection.setListening(true);
    }
    for (const node of nodes) {
      if (node.agent !== null) node.agent.diesAfter = {};
      node.start();
      this.#send("uncordonNode", { params: { id: node.name } });
    }
  }

  #whatIsOpen(rows: Rows): string | null {
    const restless = rows.machines.find((machine) => this.#restless.has(machine.id) && phaseOf(machine) === "running");
    return restless === undefined ? whatIsOpen(this.cluster, rows) : `machine ${restless.id} is going to end by itself`;
  }

  /** Lets time pass until the desired state is reached, and then some more. */
  async #reach(): Promise<void> {
    const { cluster } = this;
    const { world } = cluster;
    const end = world.now + REACHES_WITHIN_MS;
    for (let stepMs = 1_000; ; stepMs = Math.min(stepMs * 1.3, 30_000)) {
      await world.until(stepMs);
      const rows = await this.#check();
      const open = this.#open > 0 ? `${this.#open} calls are not answered` : this.#whatIsOpen(rows);
      if (open === null) break;
      if (world.now > end) world.violate(`the desired state is not reached: ${open}`);
    }
    await world.until(world.random.pick(STAYS_FOR_MS));
    const rows = await this.#check();
    const open = this.#whatIsOpen(rows);
    if (open !== null) world.violate(`what was reached does not stay: ${open}`);
    const areClocksRight = cluster.nodes.every(({ aheadMs }) => aheadMs === 0);
    checkRuns(cluster, rows, await readRuns(cluster.databases), {
      toleranceMs: areClocksRight ? 1_500 : 200_000,
      // A run whose end was not seen ends where it began when the clock was set back in between.
      isForgiven: (node) => cluster.nodes.some(({ name, aheadMs }) => name === node && aheadMs !== 0),
    });
    if (world.violation !== null) throw world.violation;
  }
}
