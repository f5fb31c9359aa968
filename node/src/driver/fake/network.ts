/**
 * The ports of a fake VM: its own servers (servers.ts), and programs on the host's loopback that play the
 * role of servers in the guest.
 *
 * FAKE: for tests of the control plane, which run such programs themselves. Nothing is published on the host.
 * Always: connections break when the VM ends, as with a real one.
 */
import type { Duplex } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { parsePairs } from "@flotilla/contract/setting-values";
import { dialAddress } from "../../network/dial.ts";
import type { SentCounter, VmNetwork } from "../../network/vm-network.ts";
import type { FakeServers } from "./servers.ts";

interface FakeNetworkOptions {
  /** Has FAKE_PORTS, FAKE_SENT_BYTES and FAKE_SENDS. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly servers: FakeServers;
  readonly clock: Clock;
  /** When its VM started, in epoch milliseconds. */
  readonly startedAt: number;
  /** Aborted when the VM ends or is released. */
  readonly gone: AbortSignal;
}

export class FakeNetwork implements VmNetwork {
  readonly address = null;
  readonly nameservers = [];
  readonly hostPorts = [];
  readonly #servers: FakeServers;
  readonly #ports: ReadonlyMap<string, string>;
  readonly #clock: Clock;
  readonly #gone: AbortSignal;
  readonly #count: () => number;
  readonly #sent: SentCounter;

  constructor({ environment, servers, clock, startedAt, gone }: FakeNetworkOptions) {
    this.#servers = servers;
    const { FAKE_PORTS: ports = "", FAKE_SENT_BYTES: first = "0", FAKE_SENDS: each = "0" } = environment;
    this.#ports = parsePairs(ports);
    this.#clock = clock;
    this.#gone = gone;
    this.#count = () => Number(first) + Number(each) * Math.max(0, clock.now() - startedAt);
    this.#sent = this.countOn();
    gone.addEventListener("abort", () => this.#sent.close(), { once: true });
  }

  sentBytes(): number {
    return this.#sent.bytes();
  }

  countOn(): SentCounter {
    let last: number | null = null;
    return { bytes: () => last ?? this.#count(), close: () => void (last ??= this.#count()) };
  }

  async dial(port: number, signal?: AbortSignal): Promise<Duplex> {
    const served = this.#servers.connect(port);
    if (served !== undefined) return served;
    const hostPort = this.#ports.get(String(port));
    if (hostPort === undefined)
      throw Object.assign(new Error(`connect ECONNREFUSED: port ${port} is closed`), { code: "ECONNREFUSED" });
    const socket = await dialAddress("127.0.0.1", Number(hostPort), { signal, clock: this.#clock });
    const end = (): void => void socket.destroy();
    this.#gone.addEventListener("abort", end, { once: true });
    socket.once("close", () => this.#gone.removeEventListener("abort", end));
    if (this.#gone.aborted) end();
    return socket;
  }
}
