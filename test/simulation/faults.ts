/**
 * What goes wrong in a simulated cluster, until it heals. Each fault is reported with the node that it
 * concerns.
 */
import { type Cluster, SERVERS } from "./cluster.ts";
import type { SimulatedNode } from "./node.ts";
import type { SimulatedServer } from "./server.ts";

/** Every fault, and whether it concerns one node: its agent, its clock, or messages from or to it. */
export const FAULTS = {
  "message lost": "node",
  "message late": "node",
  "message repeated": "node",
  "message cut": "node",
  "agent killed": "node",
  "agent killed in a write": "node",
  "agent stopped": "node",
  "agent hangs": "node",
  "one direction cut": "node",
  "node cut off": "node",
  "nothing arrives from a node": "node",
  "nothing arrives at a node": "node",
  "clock set": "node",
  "nodes cut off together": "all",
  "server's clock set": "all",
  "server stopped": "all",
  "servers away": "all",
  "server killed": "all",
  "server killed in a write": "all",
  "notifications missed": "all",
  "statements lost": "all",
} as const satisfies Readonly<Record<string, "node" | "all">>;

export type Fault = keyof typeof FAULTS;

type Injected = Exclude<Fault, `message ${string}`>;

/** Faults that differ little in what is lost. What lasts for a moment must be met by one of each. */
export const ALIKE: readonly (readonly Fault[])[] = [
  ["message lost", "message late", "message repeated", "message cut"],
  ["agent killed", "agent killed in a write", "agent stopped", "agent hangs"],
  [
    "one direction cut",
    "node cut off",
    "nothing arrives from a node",
    "nothing arrives at a node",
    "nodes cut off together",
  ],
  ["server killed", "server killed in a write", "server stopped", "servers away"],
  ["clock set", "server's clock set"],
  ["notifications missed"],
  ["statements lost"],
];

/** Two servers may differ by 8 s (decision 63). */
const SERVER_AHEAD_MS_MAX = 3_900;

const INJECTED = ALIKE.filter(([first]) => first !== "message lost") as readonly (readonly Injected[])[];

export class Faults {
  readonly #cluster: Cluster;
  readonly #onFault: (fault: Fault, node: string | null) => void;
  #isHealed = false;
  /** Hosts stay away for long, and time passes in which they become unreachable. */
  isSlow = false;

  /** `onFault`: called for each fault. `node`: null when it concerns all. */
  constructor(cluster: Cluster, onFault: (fault: Fault, node: string | null) => void) {
    this.#cluster = cluster;
    this.#onFault = onFault;
    cluster.network.onFault = (kind, node) => onFault(`message ${kind}`, node);
  }

  /** How unkind network, database and clocks are all the time. */
  setTempers(): void {
    const { network, databases, nodes, world } = this.#cluster;
    const { random } = world;
    this.isSlow = random.happens(0.15);
    if (random.happens(0.4)) network.losing = random.between(0, 0.1);
    if (random.happens(0.4)) network.delaying = random.between(0, 0.2);
    if (random.happens(0.5)) network.repeating = random.between(0, 0.4);
    if (random.happens(0.2)) databases.losing = random.between(0, 0.02);
    if (random.happens(0.3)) databases.deaf = random.between(0, 0.6);
    if (random.happens(0.3)) databases.latencyMs = random.between(1, 30);
    if (random.happens(0.2)) for (const node of nodes) node.aheadMs = Math.round(random.between(-60_000, 60_000));
    if (random.happens(0.2)) for (const name of SERVERS) this.#setServerClock(name);
    // More than any clock of a host drifts.
    if (random.happens(0.4)) for (const node of nodes) node.rate = random.between(0.98, 1.02);
  }

  /**
   * Something goes wrong at random. `isRare`: faults of each sort come as often, so that each meets what
   * there is now. `nodeName`: the node that a fault of a node concerns more often than others; null: none
   * does.
   */
  inject(isRare: boolean, nodeName: string | null): void {
    const { world, network, databases, nodes, servers } = this.#cluster;
    const { random } = world;
    const server = random.pick([...servers.values()]);
    const picked = random.pick(nodes);
    const preferred = nodes.find(({ name }) => name === nodeName);
    const node = preferred !== undefined && random.happens(0.5) ? preferred : picked;
    const faults: Readonly<Record<Injected, () => void>> = {
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
        this.#later(random.between(500, 20_000), network.cut(from, to));
      },
      "node cut off": () => this.#cutOff([node], { from: true, to: true }),
      "nothing arrives from a node": () => this.#cutOff([node], { from: true, to: false }),
      "nothing arrives at a node": () => this.#cutOff([node], { from: false, to: true }),
      "nodes cut off together": () =>
        this.#cutOff(random.happens(0.5) ? nodes : nodes.filter((each) => each !== node), { from: true, to: true }),
      "agent stopped": () => {
        const { agent } = node;
        agent?.stop();
        this.#later(this.#awayMs(0.25), () => agent?.continue());
      },
      "agent hangs": () => {
        if (node.agent !== null) node.agent.filesAnswerAt = world.now + this.#awayMs(0.25);
      },
      "server stopped": () => this.#stopServer(server, this.#awayMs(0.25)),
      "servers away": () => {
        // All of them are stopped, or die.
        const isStop = random.happens(0.5);
        for (const each of servers.values()) {
          const ms = this.#awayMs(0.25);
          if (isStop) this.#stopServer(each, ms);
          else this.#restartServer(each, () => each.program.kill(), ms);
        }
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
      "server's clock set": () => {
        this.#setServerClock(server.program.name);
      },
    };
    const kind = random.pick(isRare ? random.pick(INJECTED) : INJECTED.flat());
    world.note(`FAULT ${kind}: ${server.program.name}, ${node.name}`);
    this.#onFault(kind, FAULTS[kind] === "node" ? node.name : null);
    faults[kind]();
  }

  /** No more faults: everything is started that is down. */
  heal(): void {
    const { world, network, databases, servers, nodes } = this.#cluster;
    world.note("HEAL");
    this.#isHealed = true;
    network.heal();
    Object.assign(network, { losing: 0, delaying: 0, repeating: 0 });
    Object.assign(databases, { losing: 0, deaf: 0, latencyMs: 0.6 });
    for (const [name, server] of servers) {
      server.program.diesAfter = {};
      server.program.continue();
      if (!server.program.isAlive) this.#cluster.startServer(name);
      else server.connection.setListening(true);
    }
    for (const node of nodes) {
      if (node.agent !== null) Object.assign(node.agent, { diesAfter: {}, filesAnswerAt: 0 });
      node.agent?.continue();
      node.start();
    }
  }

  #setServerClock(name: string): void {
    const aheadMs = Math.round(this.#cluster.world.random.between(-SERVER_AHEAD_MS_MAX, SERVER_AHEAD_MS_MAX));
    this.#cluster.setServerClock(name, aheadMs);
  }

  /** No bytes arrive from these nodes at any server, or none to them. */
  #cutOff(nodes: readonly SimulatedNode[], directions: { readonly from: boolean; readonly to: boolean }): void {
    const { network, servers } = this.#cluster;
    const ends = nodes.flatMap(({ name }) =>
      [...servers.keys()].flatMap((server) => [
        ...(directions.to ? [network.cut(server, name)] : []),
        ...(directions.from ? [network.cut(name, server)] : []),
      ]),
    );
    this.#later(this.#awayMs(0.25), () => {
      for (const end of ends) end();
    });
  }

  /**
   * Its transaction ends first: other servers wait for that here, and in PostgreSQL only for the rows of it.
   */
  #stopServer(server: SimulatedServer, ms: number): void {
    const { program, connection } = server;
    if (this.#cluster.databases.isHeldBy(connection))
      return this.#later(1, () => {
        this.#stopServer(server, ms);
      });
    program.stop();
    this.#later(ms, () => program.continue());
  }

  #restartServer(server: SimulatedServer, kill: () => void, ms = this.#cluster.world.random.between(100, 8_000)): void {
    kill();
    const { name } = server.program;
    this.#later(ms, () => {
      server.program.kill();
      this.#cluster.startServer(name);
    });
  }

  #restartAgent(kill: () => void, node: SimulatedNode): void {
    kill();
    const { random } = this.#cluster.world;
    this.#later(this.#isLong(0.1) ? random.between(30_000, 50_000) : random.between(100, 8_000), () => {
      node.agent?.kill();
      node.start();
    });
  }

  /** How long a host or a program is away. */
  #awayMs(usually: number): number {
    const { random } = this.#cluster.world;
    return this.#isLong(usually) ? random.between(31_000, 60_000) : random.between(500, 20_000);
  }

  /** Whether a host is away for longer than it may be silent. */
  #isLong(usually: number): boolean {
    return this.#cluster.world.random.happens(this.isSlow ? 0.7 : usually);
  }

  #later(ms: number, work: () => void): void {
    this.#cluster.world.after(ms, null, () => {
      if (!this.#isHealed) work();
    });
  }
}
