/**
 * Connections from the host to a machine's ports: for published ports, the connect bridge and health checks.
 *
 * The address is that of the machine's namespace, which hands every TCP connection of the host's own root on to the
 * guest, whatever its policy is; the guest sees its gateway as the other side. Nothing else on the host or the network
 * can use that way (rules.ts).
 */
import { connect, type Socket } from "node:net";
import { reasonOf } from "@flotilla/base/abort";
import type { Clock } from "@flotilla/base/clock";

const CONNECT_MS = 10_000;

export interface DialOptions {
  /** Gives up connecting; what is connected is the caller's. */
  readonly signal?: AbortSignal | undefined;
  readonly clock: Clock;
}

/** Rejects with the system's error, such as `ECONNREFUSED` when nobody listens there. Half-open ends are kept apart. */
export function dialAddress(address: string, port: number, { signal, clock }: DialOptions): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  if (!Number.isInteger(port) || port < 1 || port > 65_535) throw new RangeError(`${port} is no port`);
  if (signal?.aborted === true) throw reasonOf(signal);
  const socket = connect({ host: address, port, allowHalfOpen: true, noDelay: true });
  const giveUp = (): void => reject(signal === undefined ? new Error("given up") : reasonOf(signal));
  const timer = clock.timer(CONNECT_MS, () => reject(new Error(`the machine's port ${port} does not answer`)));
  signal?.addEventListener("abort", giveUp, { once: true });
  socket.once("connect", () => resolve(socket));
  socket.once("error", reject);
  return promise
    .catch((error: unknown) => {
      socket.destroy();
      throw error;
    })
    .finally(() => {
      timer.cancel();
      signal?.removeEventListener("abort", giveUp);
      socket.removeListener("error", reject);
    });
}
