/**
 * How a silent TCP connection is probed, so that a peer that has vanished is detected, and address
 * translators keep the connection.
 *
 * Always: an interruption of the network of up to 30 s, which makes no node unreachable, ends no connection.
 * By default Node has a connection ended ten seconds after its first probe.
 */
import type { Socket } from "node:net";

const PROBE_AFTER_MS = 15_000;
const PROBE_PERIOD_MS = 5_000;
/** The last one is sent 30 s after the first. */
const PROBES = 7;

/** The connection ends 50 s after its last sign of life, or when the system abandons what it has sent. */
export function probeWhenSilent(socket: Pick<Socket, "setKeepAlive">): void {
  socket.setKeepAlive(true, PROBE_AFTER_MS, PROBE_PERIOD_MS, PROBES);
}
