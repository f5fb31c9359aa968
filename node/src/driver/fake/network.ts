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
import type { VmNetwork } from "../../network/vm-network.ts";
import type { FakeServers } from "./servers.ts";

export class FakeNetwork implements VmNetwork {
  readonly address = null;
  readonly nameservers = [];
  readonly hostPorts = [];
  readonly #servers: FakeServers;
  readonly #ports: ReadonlyMap<string, string>;
  readonly #clock: Clock;
  readonly #gone: AbortSignal;
  readonly #sentBytes: number;

  /** `environment`: has FAKE_PORTS and FAKE_SENT_BYTES. */
  constructor(
    environment: Readonly<Record<string, string | undefined>>,
    { servers, clock, gone }: { readonly servers: FakeServers; readonly clock: Clock; readonly gone: AbortSignal },
  ) {
    this.#servers = servers;
    const ports = environment["FAKE_PORTS"] ?? "";
    this.#sentBytes = Number(environment["FAKE_SENT_BYTES"] ?? 0);
    this.#ports = parsePairs(ports);
    this.#clock = clock;
    this.#gone = gone;
  }

  sentBytes(): number {
    return this.#sentBytes;
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
