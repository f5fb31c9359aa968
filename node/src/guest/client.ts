/**
 * The host's end of a guest channel: implements `Guest` over a stream of bytes that leads to a guest agent.
 *
 * Being written; its signature is final.
 */
import type { Duplex } from "node:stream";
import type { Guest } from "./guest.ts";

export interface ConnectGuestOptions {
  /** How long the agent may take to answer, in milliseconds: the guest may still be booting. */
  readonly helloTimeoutMs: number;
  /** Gives up connecting; the stream is destroyed. Has no effect once connected. */
  readonly signal?: AbortSignal;
}

/**
 * Takes over the stream and resolves when the agent has answered. Rejects, and has destroyed the stream, when it does
 * not answer in time, breaks the protocol or the stream ends.
 */
export function connectGuest(stream: Duplex, options: ConnectGuestOptions): Promise<Guest> {
  stream.destroy();
  return Promise.reject(new Error(`no guest channel yet (asked to wait ${options.helloTimeoutMs} ms)`));
}
