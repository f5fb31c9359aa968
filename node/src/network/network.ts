/**
 * The network of a node's machines: opens it on the host, gives each VMM's namespace its policy, and connects to guests.
 *
 * A VMM's namespace, with its interfaces and closed rules, is made as the VMM is spawned (`setup`, used by the jail) and
 * vanishes with it. `reach` is a VMM's that runs, whether spawned now or by an earlier agent; `admit` makes it a
 * machine's.
 *
 * Always: closed until admitted, and closed again by nothing but the VMM's end. If the process dies, machines keep
 * what they were given; names are not answered and not followed until the next agent admits them again.
 */
import { readFile } from "node:fs/promises";
import type { Socket } from "node:net";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { MachineSpec } from "@flotilla/contract/link";
import type { VmNetwork } from "./vm-network.ts";
import { type Block, GATEWAY_ADDRESS, GUEST_ADDRESS, GUEST_PREFIX_LENGTH, type Pair, pairOf } from "./addresses.ts";
import { CLAIMS_DIRECTORY } from "./claims.ts";
import { DenialLimit, DenialWatch } from "./denied.ts";
import { dialAddress } from "./dial.ts";
import { closeHostNetwork, openHostNetwork } from "./host.ts";
import { type Asker, MachineNameServer } from "./name-server.ts";
import { FollowedNames, NAME_PERIODS, type NamePeriods } from "./names.ts";
import { type Policy, policyOf } from "./policy.ts";
import { inNamespaceOf, NFT, run, WaitingChange } from "./programs.ts";
import { PublishedPorts } from "./published-ports.ts";
import { connectionsMax, type NamespaceSetup, namespaceSetup, policyRules, resolvedRules } from "./rules.ts";
import { HostUpstream, type Upstream } from "./upstream.ts";

const DENIALS_LOOK_MS = 3_000;

/** What a guest is told of its network: the same for all. */
export const GUEST_NETWORK = {
  address: { cidr: `${GUEST_ADDRESS}/${GUEST_PREFIX_LENGTH}`, gateway: GATEWAY_ADDRESS },
  nameServer: GATEWAY_ADDRESS,
} as const;

export interface NetworkOptions {
  /** Without links in it. */
  readonly nodeDirectory: string;
  /** Whether published ports are opened on the host's loopback too, for everybody on the host. */
  readonly publishOnLoopback: boolean;
  readonly clock: Clock;
  readonly log: Log;
  /** For a machine's timeline, such as `egress denied to 203.0.113.7:443 (tcp)`. */
  readonly onDenied: (machineId: string, message: string) => void;
  readonly namePeriods?: NamePeriods;
}

export interface Admission {
  readonly machineId: string;
  readonly network: MachineSpec["network"];
  readonly publishedPorts: readonly number[];
}

const CONNECTIONS_OF_HOST = "/proc/sys/net/netfilter/nf_conntrack_max";
const CONNECTIONS_OF_HOST_USUAL = 262_144;

/** Throws an Error for people when this host can not carry machines' traffic. */
export async function openNetwork(options: NetworkOptions): Promise<Network> {
  const { nodeDirectory, clock, log } = options;
  const block = await openHostNetwork({ claimsDirectory: CLAIMS_DIRECTORY, nodeDirectory, log });
  // There once the host's rules, which ask for it, have been read.
  const ofHost = Number(await readFile(CONNECTIONS_OF_HOST, "utf8").catch(() => "")) || CONNECTIONS_OF_HOST_USUAL;
  const network = new Network(options, block, {
    upstream: new HostUpstream(clock),
    connections: connectionsMax(ofHost),
  });
  await network.begin();
  return network;
}

export class Network implements AsyncDisposable {
  readonly block: Block;
  readonly upstream: Upstream;
  readonly options: NetworkOptions;
  readonly #admitted = new Map<string, Reach>();
  readonly #names: MachineNameServer;
  readonly #connections: number;
  readonly #stop = new AbortController();

  constructor(
    options: NetworkOptions,
    block: Block,
    { upstream, connections }: { readonly upstream: Upstream; readonly connections: number },
  ) {
    this.options = options;
    this.#connections = connections;
    this.block = block;
    this.upstream = upstream;
    this.#names = new MachineNameServer({ block, upstream, askerAt: (address) => this.#admitted.get(address)?.asker });
  }

  async begin(): Promise<void> {
    await this.#names.listen();
    void this.#watchDenials();
  }

  /** How the namespace of a user's VMM is made. */
  setup(uid: number): NamespaceSetup {
    return namespaceSetup(this.block, pairOf(this.block, uid), { uid, connections: this.#connections });
  }

  /** The network of a VMM that runs in its namespace; null for one that has no way out. */
  reach(vmm: { readonly pid: number; readonly uid: number }): Reach | null {
    const pair = pairOf(this.block, vmm.uid);
    return pair === null ? null : new Reach(this, pair, vmm.pid);
  }

  /** From when it is admitted until it is closed. */
  enter(address: string, reach: Reach): void {
    this.#admitted.set(address, reach);
  }

  leave(address: string, reach: Reach): void {
    if (this.#admitted.get(address) === reach) this.#admitted.delete(address);
  }

  /** Machines keep what they have; when there are none the host forgets this node. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    for (const reach of this.#admitted.values()) reach.close();
    await this.#names[Symbol.asyncDispose]();
    await closeHostNetwork(CLAIMS_DIRECTORY, this.block, this.options.clock);
  }

  async #watchDenials(): Promise<void> {
    const { clock, log } = this.options;
    for (;;) {
      await clock.sleep(DENIALS_LOOK_MS, this.#stop.signal);
      if (this.#stop.signal.aborted) return;
      for (const reach of this.#admitted.values()) {
        await reach.lookAtDenials().catch((error: unknown) => {
          log.debug({ reason: messageOf(error) }, "a machine's refusals were not read");
        });
      }
    }
  }
}

/** The way to and from one VMM. */
export class Reach {
  readonly #network: Network;
  readonly #pair: Pair;
  readonly #pid: number;
  /** Started before it is needed. */
  #waiting: WaitingChange | null;
  /** Changes of the namespace come one after the other. */
  #lastChange: Promise<unknown> = Promise.resolve();
  #denials: DenialWatch | null = null;
  #asker: Asker | null = null;
  readonly #published = new PublishedPorts();
  readonly #dialed = new Set<Socket>();
  #isClosed = false;

  constructor(network: Network, pair: Pair, pid: number) {
    this.#network = network;
    this.#pair = pair;
    this.#pid = pid;
    this.#waiting = new WaitingChange(inNamespaceOf(pid, NFT));
  }

  get asker(): Asker | undefined {
    return this.#asker ?? undefined;
  }

  /** Opens what the machine may reach. Rejects when that failed: it is closed then. Once. */
  async admit({ machineId, network, publishedPorts }: Admission): Promise<void> {
    const policy = policyOf(network);
    const { clock, onDenied, publishOnLoopback } = this.#network.options;
    const change = this.#waiting;
    this.#waiting = null;
    if (change === null || this.#isClosed) throw new Error("the VM has ended");
    const limit = new DenialLimit((words) => onDenied(machineId, `egress denied ${words}`));
    this.#denials = new DenialWatch(this.#pid, limit, clock);
    const onRefused = (name: string): void => limit.denied(`${JSON.stringify(name)} (name)`, clock.monotonic());
    const names = policy.hosts.length === 0 ? null : this.#follow(policy);
    this.#asker = { policy, names, onRefused };
    this.#network.enter(this.#pair.machineAddress, this);
    const dial = (port: number, signal: AbortSignal): Promise<Socket> => this.dial(port, signal);
    await Promise.all([
      this.#inTurn(() => change.run(policyRules(policy, this.#network.block))),
      this.#published.open({ machineId, ports: publishOnLoopback ? publishedPorts : [], dial }),
    ]);
    if (this.#isClosed) this.#published.close();
    void names?.run();
  }

  /** A connection to a port of the guest. It breaks with `close`: a guest that is gone says nothing. */
  async dial(port: number, signal?: AbortSignal): Promise<Socket> {
    const socket = await dialAddress(this.#pair.machineAddress, port, { signal, clock: this.#network.options.clock });
    if (this.#isClosed) {
      socket.destroy();
      throw new Error("the VM has ended");
    }
    this.#dialed.add(socket);
    socket.once("close", () => this.#dialed.delete(socket));
    return socket;
  }

  /** What whoever sets up the guest tells it, and how its ports are reached. After `admit`. */
  ofGuest(): VmNetwork {
    const hasNames = this.#asker !== null && (this.#asker.policy.mode === "open" || this.#asker.names !== null);
    return {
      address: GUEST_NETWORK.address,
      nameservers: hasNames ? [GUEST_NETWORK.nameServer] : [],
      dial: (port, signal) => this.dial(port, signal),
      hostPorts: this.#published.ports,
    };
  }

  async lookAtDenials(): Promise<void> {
    await this.#denials?.look();
  }

  /** Its VMM has ended, or the agent lets go of it. */
  close(): void {
    this.#isClosed = true;
    this.#waiting?.cancel();
    this.#waiting = null;
    this.#denials = null;
    this.#published.close();
    for (const socket of this.#dialed) socket.destroy();
    this.#asker?.names?.close();
    this.#network.leave(this.#pair.machineAddress, this);
  }

  #follow({ hosts }: Policy): FollowedNames {
    const { clock, log, namePeriods } = this.#network.options;
    const admit = async (addresses: readonly string[], holdMs: number): Promise<void> => {
      if (this.#isClosed) return;
      await this.#inTurn(() => run(inNamespaceOf(this.#pid, NFT), resolvedRules(addresses, holdMs)));
    };
    const { upstream } = this.#network;
    return new FollowedNames({ hosts, upstream, admit, clock, log, periods: namePeriods ?? NAME_PERIODS });
  }

  #inTurn<T>(change: () => Promise<T>): Promise<T> {
    const done = this.#lastChange.catch(() => undefined).then(change);
    this.#lastChange = done;
    return done;
  }
}
