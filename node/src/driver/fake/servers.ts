/**
 * Web servers in a fake guest (web-program.ts): each answers every request with one status, and says which
 * machine it is.
 *
 * FAKE: without a socket. Two variables of the machine's environment say what listens from the beginning:
 *
 *     FAKE_LISTEN=80=200,81=503   its ports and their statuses     FAKE_LISTEN_AFTER_MS=N   not before that time
 *
 * The commands `listen` and `unlisten` of script.ts change it. A new agent begins with the variables again.
 * Always: connections break when their port is closed, and when the VM ends.
 */
import { type Duplex, duplexPair } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { parsePairs } from "@flotilla/contract/setting-values";
import { WebProgram } from "./web-program.ts";

interface Port {
  readonly program: WebProgram;
  readonly connections: Set<Duplex>;
}

export class FakeServers {
  readonly #ports = new Map<number, Port>();
  readonly #parts: { readonly hostname: () => string; readonly clock: Clock };

  constructor(
    environment: Readonly<Record<string, string | undefined>>,
    clock: Clock,
    { hostname, gone }: { readonly hostname: () => string; readonly gone: AbortSignal },
  ) {
    this.#parts = { hostname, clock };
    const { FAKE_LISTEN: ports = "", FAKE_LISTEN_AFTER_MS: afterMs } = environment;
    const begin = (): void => {
      for (const [port, status] of parsePairs(ports)) this.listen(Number(port), Number(status));
    };
    const timer = afterMs === undefined ? null : clock.timer(Number(afterMs), begin);
    if (timer === null) begin();
    const end = (): void => {
      timer?.cancel();
      for (const port of [...this.#ports.keys()]) this.unlisten(port);
    };
    gone.addEventListener("abort", end, { once: true });
  }

  listen(port: number, status: number): void {
    this.unlisten(port);
    this.#ports.set(port, { program: new WebProgram({ ...this.#parts, status }), connections: new Set() });
  }

  unlisten(port: number): void {
    const closed = this.#ports.get(port);
    this.#ports.delete(port);
    for (const connection of closed?.connections ?? []) connection.destroy();
  }

  /** Whether there are connections. */
  get areInUse(): boolean {
    return [...this.#ports.values()].some(({ connections }) => connections.size > 0);
  }

  /** Ends the programs, as an init does. */
  async stop(): Promise<void> {
    await Promise.all([...this.#ports.values()].map(({ program }) => program.stop()));
  }

  /** A connection to the port; undefined: nothing listens there. */
  connect(port: number): Duplex | undefined {
    const listening = this.#ports.get(port);
    if (listening === undefined) return undefined;
    const { program, connections } = listening;
    const [caller, guest] = duplexPair();
    for (const [one, other] of [
      [caller, guest],
      [guest, caller],
    ] as const) {
      one.on("error", () => undefined);
      one.once("close", () => other.destroy());
    }
    connections.add(guest);
    guest.once("close", () => connections.delete(guest));
    program.accept(guest);
    return caller;
  }
}
