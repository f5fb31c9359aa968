/**
 * Probes a machine's published ports. The machine is ready when one of them accepts a connection.
 *
 * Always:
 * - Failed probes are not reported. A connection that is accepted is closed immediately.
 * - The pause between two probes is a tenth of the time that has passed, within bounds: a service that starts
 *   quickly is seen quickly, and a machine where nothing ever listens costs almost nothing.
 *
 * Nothing of it is on the disk: after a crash the probes start again.
 */
import type { Duplex } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import type { VmNetwork } from "../network/vm-network.ts";

const PAUSE_MS_MIN = 100;
const PAUSE_MS_MAX = 5_000;
/** Timeout of a probe that is neither accepted nor refused. */
const PROBE_MS_MAX = 2_000;

export class Readiness {
  readonly #clock: Clock;
  #probing: AbortController | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Probes until a port accepts a connection, then calls back; not after `end`. */
  begin(network: VmNetwork, ports: readonly number[], onReady: () => void): void {
    this.end();
    const probing = new AbortController();
    this.#probing = probing;
    void this.#probe(network, ports, probing.signal).then(() => {
      if (!probing.signal.aborted) onReady();
    });
  }

  /** Ends the probes. */
  end(): void {
    this.#probing?.abort();
    this.#probing = null;
  }

  /** Never rejects. */
  async #probe(network: VmNetwork, ports: readonly number[], signal: AbortSignal): Promise<void> {
    const startedAt = this.#clock.monotonic();
    while (!signal.aborted && !(await isListening(network, ports, this.#clock, signal))) {
      await this.#clock.sleep(pauseAfter(this.#clock.monotonic() - startedAt), signal);
    }
  }
}

/** Milliseconds until the next probe. Pure. */
export function pauseAfter(waitedMs: number): number {
  return Math.min(Math.max(waitedMs / 10, PAUSE_MS_MIN), PAUSE_MS_MAX);
}

async function isListening(
  network: VmNetwork,
  ports: readonly number[],
  clock: Clock,
  signal: AbortSignal,
): Promise<boolean> {
  const over = new AbortController();
  const timer = clock.timer(PROBE_MS_MAX, () => over.abort(new Error("nothing answered")));
  const either = AbortSignal.any([signal, over.signal]);
  const probes = ports.map(async (port) => close(await network.dial(port, either)));
  try {
    await Promise.any(probes);
    return true;
  } catch {
    return false;
  } finally {
    timer.cancel();
    over.abort(new Error("another port was faster"));
  }
}

function close(connection: Duplex): void {
  connection.on("error", () => {});
  connection.destroy();
}
