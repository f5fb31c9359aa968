/**
 * The ports of a fake VM: programs on the host's loopback play the role of servers in the guest.
 *
 * FAKE: for tests of the control plane, which run such servers themselves. Nothing is published on the host.
 * Always: connections break when the VM ends, as with a real one.
 */
import type { Socket } from "node:net";
import type { Clock } from "@flotilla/base/clock";
import { parsePairs } from "@flotilla/contract/setting-values";
import { dialAddress } from "../../network/dial.ts";
import type { VmNetwork } from "../../network/vm-network.ts";

export class FakeNetwork implements VmNetwork {
  readonly address = null;
  readonly nameservers = [];
  readonly hostPorts = [];
  readonly #ports: ReadonlyMap<string, string>;
  readonly #clock: Clock;
  readonly #gone: AbortSignal;
  readonly #sentBytes: number;

  /** `environment`: has FAKE_PORTS and FAKE_SENT_BYTES. */
  constructor(environment: Readonly<Record<string, string | undefined>>, clock: Clock, gone: AbortSignal) {
    const ports = environment["FAKE_PORTS"] ?? "";
    this.#sentBytes = Number(environment["FAKE_SENT_BYTES"] ?? 0);
    this.#ports = parsePairs(ports);
    this.#clock = clock;
    this.#gone = gone;
  }

  sentBytes(): number {
    return this.#sentBytes;
  }

  async dial(port: number, signal?: AbortSignal): Promise<Socket> {
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
