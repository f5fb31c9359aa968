/**
 * The network of a node's machines: opens it on the host, applies a policy to each VMM's namespace, connects
 * to guests.
 *
 * A VMM's namespace, with its interfaces and closed rules, is made when the VMM is spawned (`setup`, used by
 * the jail) and vanishes with it; an agent that is attached keeps it until it has read what the machine sent.
 * `attach` gives the network of a running VMM, whether this or an earlier
 * agent spawned it; `GuestNetwork.open` applies a machine's policy to it.
 *
 * Always: a namespace is closed until `open`, and only the VMM's end closes it again. If the process dies,
 * machines keep their access; names are neither answered nor tracked until the next agent opens their
 * networks again.
 */
import { readFile } from "node:fs/promises";
import type { Socket } from "node:net";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import type { MachineSpec } from "@flotilla/contract/link/link";
import type { VmNetwork } from "./vm-network.ts";
import {
  type Block,
  GATEWAY_ADDRESS,
  GUEST_ADDRESS,
  GUEST_PREFIX_LENGTH,
  type VethPair,
  vethPairOf,
} from "./addresses.ts";
import { CLAIMS_DIRECTORY } from "./claims.ts";
import { ClosedDestinations } from "./closed.ts";
import { UplinkCounter } from "./counters.ts";
import { DenialLimit, DenialWatch } from "./denied.ts";
import { dialAddress } from "./dial.ts";
import { closeHostNetwork, openHostNetwork } from "./host.ts";
import { type DnsClient, MachineNameServer } from "./name-server.ts";
import { TrackedNames, NAME_PERIODS, type NamePeriods } from "./names.ts";
import { type Policy, policyOf } from "./policy.ts";
import { inNamespaceOf, IP, NFT, run, PrestartedProgram } from "./programs.ts";
import { PublishedPorts } from "./published-ports.ts";
import {
  connectionRules,
  connectionsMax,
  type NamespaceJoin,
  namespaceJoin,
  type NamespaceSetup,
  namespaceSetup,
  nextTap,
  policyRules,
  resolvedRules,
} from "./rules.ts";
import { keepTapOf } from "./taps.ts";
import { HostUpstream, type Upstream } from "./upstream.ts";

const DENIALS_POLL_MS = 3_000;

/** The guest's network configuration, the same for all. */
export const GUEST_ADDRESSING = {
  address: { cidr: `${GUEST_ADDRESS}/${GUEST_PREFIX_LENGTH}`, gateway: GATEWAY_ADDRESS },
  nameServer: GATEWAY_ADDRESS,
} as const;

export interface NetworkOptions {
  /** Without symbolic links. */
  readonly nodeDirectory: string;
  /** Whether published ports are also opened on the host's loopback, for every user of the host. */
  readonly publishOnLoopback: boolean;
  /** IPv4 networks that no policy opens. */
  readonly blockedNetworks: readonly string[];
  readonly clock: Clock;
  readonly log: Log;
  /** Writes to a machine's timeline; `detail` is such as `to 203.0.113.7:443 (tcp)`. */
  readonly onDenied: (machineId: string, detail: string) => void;
  readonly namePeriods?: NamePeriods;
}

export interface OpenRequest {
  readonly machineId: string;
  readonly network: MachineSpec["network"];
  readonly publishedPorts: readonly number[];
}

const CONNECTIONS_OF_HOST = "/proc/sys/net/netfilter/nf_conntrack_max";
const CONNECTIONS_OF_HOST_DEFAULT = 262_144;

/** Throws an Error with a user-facing message when this host cannot carry machines' traffic. */
export async function openNetwork(options: NetworkOptions): Promise<Network> {
  const { nodeDirectory, clock, log } = options;
  const block = await openHostNetwork({ claimsDirectory: CLAIMS_DIRECTORY, nodeDirectory, log });
  // The file exists once the host's rules, which use connection tracking, have been loaded.
  const ofHost = Number(await readFile(CONNECTIONS_OF_HOST, "utf8").catch(() => "")) || CONNECTIONS_OF_HOST_DEFAULT;
  const connections = connectionsMax(ofHost);
  await run(NFT, connectionRules(block, connections));
  const network = new Network(options, block, { upstream: new HostUpstream(clock), connections });
  await network.begin();
  return network;
}

export class Network implements AsyncDisposable {
  readonly block: Block;
  readonly upstream: Upstream;
  readonly options: NetworkOptions;
  /** What guests must not reach on other hosts. */
  readonly closed: ClosedDestinations;
  readonly #open = new Map<string, GuestNetwork>();
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
    this.closed = new ClosedDestinations({ block, clock: options.clock, log: options.log });
    this.upstream = upstream;
    const clientAt = (address: string): DnsClient | undefined => this.#open.get(address)?.client;
    this.#names = new MachineNameServer({ block, upstream, clock: options.clock, clientAt });
  }

  async begin(): Promise<void> {
    await this.#names.listen();
    void this.#watchDenials();
  }

  /** How to make the namespace of a user's VMM. */
  setup(uid: number): NamespaceSetup {
    return namespaceSetup(this.block, vethPairOf(this.block, uid), { uid, connections: this.#connections });
  }

  /** How to put a VMM into the namespace of the one that it is to replace. */
  join(vmm: { readonly pid: number; readonly uid: number }): NamespaceJoin {
    return namespaceJoin(vmm.pid, vmm.uid);
  }

  /** The network of a VMM that runs in its namespace; null for a VMM without an uplink. */
  attach(vmm: { readonly pid: number; readonly uid: number }): GuestNetwork | null {
    const pair = vethPairOf(this.block, vmm.uid);
    return pair === null ? null : new GuestNetwork(this, pair, vmm.pid);
  }

  /** Makes a machine's DNS queries answered and its rejections reported, until `unregister`. */
  register(address: string, network: GuestNetwork): void {
    this.#open.set(address, network);
  }

  unregister(address: string, network: GuestNetwork): void {
    if (this.#open.get(address) === network) this.#open.delete(address);
  }

  /** Machines keep their network; without any, everything of this node is removed from the host. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    for (const network of this.#open.values()) network.close();
    await this.#names[Symbol.asyncDispose]();
    await closeHostNetwork(CLAIMS_DIRECTORY, this.block, this.options.clock);
  }

  async #watchDenials(): Promise<void> {
    const { clock, log } = this.options;
    for (;;) {
      await clock.sleep(DENIALS_POLL_MS, this.#stop.signal);
      if (this.#stop.signal.aborted) return;
      for (const network of this.#open.values()) {
        await network.checkDenials().catch((error: unknown) => {
          log.debug({ reason: messageOf(error) }, "the denied connections of a machine could not be read");
        });
      }
    }
  }
}

/** The network of one VMM: its policy, DNS, and connections to its guest. */
export class GuestNetwork {
  readonly #network: Network;
  readonly #pair: VethPair;
  #pid: number;
  /** Started before it is needed, because spawning takes time. */
  #program: PrestartedProgram | null;
  /** Changes of the namespace run one after the other. */
  #lastChange: Promise<unknown> = Promise.resolve();
  #denials: DenialWatch | null = null;
  #dnsClient: DnsClient | null = null;
  readonly #published = new PublishedPorts();
  readonly #dialed = new Set<Socket>();
  #isClosed = false;
  readonly #sent: UplinkCounter;
  /** Two VMMs of the machine are in the namespace. */
  #isShared = false;

  constructor(network: Network, pair: VethPair, pid: number) {
    this.#network = network;
    this.#pair = pair;
    this.#pid = pid;
    this.#program = new PrestartedProgram(inNamespaceOf(pid, NFT));
    this.#sent = this.countOn();
  }

  get client(): DnsClient | undefined {
    return this.#dnsClient ?? undefined;
  }

  /** Applies the machine's policy. Rejects when that fails; the network stays closed then. Call once. */
  async open({ machineId, network, publishedPorts }: OpenRequest): Promise<void> {
    const policy = policyOf(network);
    const { clock, onDenied, publishOnLoopback, blockedNetworks } = this.#network.options;
    const change = this.#program;
    this.#program = null;
    if (change === null || this.#isClosed) throw new Error("the VM has ended");
    const limit = new DenialLimit((detail) => onDenied(machineId, detail));
    this.#denials = new DenialWatch(this.#pid, limit, clock);
    const onRefused = (name: string): void => limit.denied(`${JSON.stringify(name)} (name)`, clock.monotonic());
    const names = policy.hosts.length === 0 ? null : this.#trackNames(policy);
    this.#dnsClient = { policy, names, onRefused };
    this.#network.register(this.#pair.machineAddress, this);
    const dial = (port: number, signal: AbortSignal): Promise<Socket> => this.dial(port, signal);
    await Promise.all([
      this.#afterLastChange(() => change.run(policyRules(policy, this.#network.block, blockedNetworks))),
      this.#published.open({ machineId, ports: publishOnLoopback ? publishedPorts : [], dial }),
    ]);
    if (this.#isClosed) this.#published.close();
    void names?.run();
  }

  /**
   * Connects to a port of the guest. `close` destroys the connection, because a guest that has ended sends
   * nothing.
   */
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

  sentBytes(): number {
    return this.#sent.bytes();
  }

  countOn(): UplinkCounter {
    return new UplinkCounter(this.#pair.hostEnd, this.#pid);
  }

  /** The guest's network configuration and the way to its ports. Call after `open`. */
  vmNetwork(): VmNetwork {
    const hasNames =
      this.#dnsClient !== null && (this.#dnsClient.policy.mode === "open" || this.#dnsClient.names !== null);
    return {
      address: GUEST_ADDRESSING.address,
      nameservers: hasNames ? [GUEST_ADDRESSING.nameServer] : [],
      dial: (port, signal) => this.dial(port, signal),
      sentBytes: () => this.sentBytes(),
      countOn: () => this.countOn(),
      hostPorts: this.#published.ports,
    };
  }

  /** The guest's configuration in a network that will be opened with this policy. */
  addressing(network: OpenRequest["network"]): Pick<VmNetwork, "address" | "nameservers"> {
    const { mode, hosts } = policyOf(network);
    const hasNames = mode === "open" || hosts.length > 0;
    return { address: GUEST_ADDRESSING.address, nameservers: hasNames ? [GUEST_ADDRESSING.nameServer] : [] };
  }

  /** A program that waits to do what `next` needs. */
  prepareNext(): PrestartedProgram {
    return new PrestartedProgram(inNamespaceOf(this.#pid, IP));
  }

  /**
   * The guest's packets go to the interface of the VMM that replaces this one. Only while the guest is
   * paused.
   */
  async next(program: PrestartedProgram): Promise<void> {
    await program.run(nextTap());
  }

  /** Keeps the network open beyond the end of a VMM, until `belongsTo`. */
  share(): void {
    this.#isShared = true;
  }

  /**
   * The guest runs in this VMM, which has joined the namespace: names, ports and connections are served as
   * before.
   */
  belongsTo(pid: number): void {
    this.#pid = pid;
    this.#isShared = false;
    this.#denials?.follow(pid);
  }

  /**
   * The VMM is the only one of its machine: removes what one that it replaced, or that was to replace it, had
   * here.
   */
  async keepOnly(): Promise<void> {
    await keepTapOf(this.#pid);
  }

  /** The VMM has ended. */
  closeOf(pid: number): void {
    if (pid === this.#pid && !this.#isShared) this.close();
  }

  async checkDenials(): Promise<void> {
    await this.#denials?.check();
  }

  /** Call when the VMM has ended or the agent releases it. */
  close(): void {
    this.#isClosed = true;
    this.#sent.close();
    this.#program?.cancel();
    this.#program = null;
    this.#denials = null;
    this.#published.close();
    for (const socket of this.#dialed) socket.destroy();
    this.#dnsClient?.names?.close();
    this.#network.unregister(this.#pair.machineAddress, this);
  }

  #trackNames({ hosts }: Policy): TrackedNames {
    const { clock, log, namePeriods } = this.#network.options;
    const allow = async (addresses: readonly string[], holdMs: number): Promise<void> => {
      if (this.#isClosed) return;
      await this.#afterLastChange(() => run(inNamespaceOf(this.#pid, NFT), resolvedRules(addresses, holdMs)));
    };
    const { upstream } = this.#network;
    return new TrackedNames({ hosts, upstream, allow, clock, log, periods: namePeriods ?? NAME_PERIODS });
  }

  #afterLastChange<T>(change: () => Promise<T>): Promise<T> {
    const done = this.#lastChange.catch(() => undefined).then(change);
    this.#lastChange = done;
    return done;
  }
}
