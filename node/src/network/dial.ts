/**
 * Connects the host to a machine's ports: for published ports, the connect bridge and health checks.
 *
 * The address is that of the machine's namespace, which forwards every TCP connection from the host's root
 * user to the guest, regardless of the machine's policy. The guest sees its gateway as the peer. Nothing else
 * on the host or the network can connect this way (rules.ts).
 */
import { connect, type Socket } from "node:net";
import { reasonOf } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";

const CONNECT_MS = 10_000;

export interface DialOptions {
  /** Cancels connecting; an established connection belongs to the caller. */
  readonly signal?: AbortSignal | undefined;
  readonly clock: Clock;
}

/**
 * Rejects with the system's error, such as `ECONNREFUSED` when nothing listens. The socket allows half-open
 * connections.
 */
export function dialAddress(address: string, port: number, { signal, clock }: DialOptions): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  if (!Number.isInteger(port) || port < 1 || port > 65_535) throw new RangeError(`${port} is not a port`);
  if (signal?.aborted === true) throw reasonOf(signal);
  const socket = connect({ host: address, port, allowHalfOpen: true, noDelay: true });
  const cancel = (): void => reject(signal === undefined ? new Error("cancelled") : reasonOf(signal));
  const timer = clock.timer(CONNECT_MS, () => reject(new Error(`the machine's port ${port} does not answer`)));
  signal?.addEventListener("abort", cancel, { once: true });
  socket.once("connect", () => resolve(socket));
  socket.once("error", reject);
  return promise
    .catch((error: unknown) => {
      socket.destroy();
      throw error;
    })
    .finally(() => {
      timer.cancel();
      signal?.removeEventListener("abort", cancel);
      socket.removeListener("error", reject);
    });
}
