/**
 * One connection to a port of a guest, for one request at a time.
 *
 * Always: `frame` sees every byte that the guest sends on it, from the first request on.
 */
import type { Duplex } from "node:stream";
import type { NodeLink } from "../link/node-link.ts";
import { dialOnNode } from "../link/dial.ts";
import { resumeKeyOf } from "../link/exec-frames.ts";
import { connectOnNode } from "../link/guest-stream.ts";
import type { Locate } from "../link/open-exec.ts";
import { AnswerFrame } from "./answer-frame.ts";
import type { GuestPort } from "./guest-port.ts";

export interface GuestConnection {
  readonly socket: Duplex;
  readonly frame: AnswerFrame;
  /** Whether it has carried a request before. */
  readonly isReused: boolean;
}

export interface Lasting {
  /** Where the machine is. */
  readonly locate: Locate;
  readonly randomBytes: (size: number) => Buffer;
}

export interface ConnectOptions {
  /** Cancels connecting; what is connected outlives it, since another request may use it later. */
  readonly signal: AbortSignal;
  /**
   * The connection continues when its machine moves or the agent of its node restarts. null: it breaks then,
   * and costs less.
   */
  readonly lasting: Lasting | null;
}

/** A new connection. Throws as `dialOnNode`. */
export async function connectToGuest(
  link: NodeLink,
  port: GuestPort,
  { signal, lasting }: ConnectOptions,
): Promise<GuestConnection> {
  const { node, tenantId, machineId, port: number } = port;
  const dialing = new AbortController();
  const cancel = (): void => dialing.abort(signal.reason);
  signal.addEventListener("abort", cancel, { once: true });
  if (signal.aborted) cancel();
  try {
    const options = { tenantId, machineId, port: number, signal: dialing.signal };
    const socket =
      lasting === null
        ? await dialOnNode(link, node, options)
        : await connectOnNode(link, node, { ...options, locate: lasting.locate, resumeKey: resumeKeyOf(lasting) });
    return { socket, frame: new AnswerFrame(), isReused: false };
  } finally {
    signal.removeEventListener("abort", cancel);
  }
}
