/**
 * One connection to a port of a guest, for one request at a time.
 *
 * Always: `frame` sees every byte that the guest sends on it, from the first request on.
 */
import type { Duplex } from "node:stream";
import type { NodeLink } from "../link/node-link.ts";
import { dialOnNode } from "../link/dial.ts";
import { AnswerFrame } from "./answer-frame.ts";
import type { GuestPort } from "./guest-port.ts";

export interface GuestConnection {
  readonly socket: Duplex;
  readonly frame: AnswerFrame;
  /** Whether it has carried a request before. */
  readonly isReused: boolean;
}

/**
 * A new connection. `signal` cancels the dialing; what is connected outlives it, since another request may use it later.
 * Throws as `dialOnNode`.
 */
export async function connectToGuest(link: NodeLink, port: GuestPort, signal: AbortSignal): Promise<GuestConnection> {
  const { node, tenantId, machineId, port: number } = port;
  const dialing = new AbortController();
  const cancel = (): void => dialing.abort(signal.reason);
  signal.addEventListener("abort", cancel, { once: true });
  if (signal.aborted) cancel();
  try {
    const options = { tenantId, machineId, port: number, signal: dialing.signal };
    return { socket: await dialOnNode(link, node, options), frame: new AnswerFrame(), isReused: false };
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}
