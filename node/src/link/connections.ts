/**
 * Opens connections of the server to ports of a running machine that outlive this agent: the guest's agent
 * connects, and keeps the connection for the next host, as it keeps a resumable command (exec.ts carries the
 * bytes).
 *
 * Always:
 * - The refusals are those of a dialed connection (dial.ts), and both are counted together.
 * - A guest that has no room for another, or cannot open one, is dialed; that connection ends with this agent
 *   and with a move.
 */
import { Readable, type Duplex } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { ConnectionStart, LinkError } from "@flotilla/contract/link/link";
import type { Guest, GuestExec } from "../guest/guest.ts";
import type { VmNetwork } from "../network/vm-network.ts";

const CONNECT_MS = 10_000;
/**
 * Why a guest does not connect, where the host would fare no better. Anything else means that the guest
 * cannot.
 */
const FINAL = ["ECONNREFUSED", "ECONNRESET", "ETIMEDOUT"];

export interface OpenedConnection {
  readonly exec: GuestExec;
  /** Whether the guest keeps it when this agent ends. */
  readonly isKept: boolean;
}

export interface ConnectionOpener {
  readonly guest: Guest;
  readonly network: VmNetwork | null;
  readonly clock: Clock;
}

/** Resolves with the connection when it is established, or with the refusal. `signal` cancels it. */
export async function openConnection(
  { guest, network, clock }: ConnectionOpener,
  { port, resumeKey }: ConnectionStart,
  signal: AbortSignal,
): Promise<OpenedConnection | LinkError> {
  if (network === null) return { code: "refused", message: "the machine has no network" };
  if (guest.canConnect === true && guest.connect !== undefined) {
    try {
      const exec = await established(guest.connect({ port, resumeKey }), clock, signal);
      return { exec, isKept: true };
    } catch (error) {
      const message = messageOf(error);
      if (FINAL.includes(message) || signal.aborted) return { code: "refused", message };
    }
  }
  try {
    return { exec: dialedExec(await network.dial(port, signal)), isKept: false };
  } catch (error) {
    // The system's error code, such as ECONNREFUSED; the text names an internal address.
    const { code } = error as NodeJS.ErrnoException;
    return { code: "refused", message: code ?? messageOf(error) };
  }
}

async function established(exec: GuestExec, clock: Clock, signal: AbortSignal): Promise<GuestExec> {
  const { promise: ended, reject } = Promise.withResolvers<never>();
  const end = (why: string): void => {
    reject(new Error(why));
    exec.kill();
    exec.release?.();
  };
  const leave = (): void => end("the caller has gone");
  const timer = clock.timer(CONNECT_MS, () => end("ETIMEDOUT"));
  signal.addEventListener("abort", leave, { once: true });
  try {
    if (signal.aborted) leave();
    await Promise.race([exec.pid, ended]);
    return exec;
  } finally {
    timer.cancel();
    signal.removeEventListener("abort", leave);
  }
}

/** A socket of this host with the interface of a connection of the guest. */
function dialedExec(socket: Duplex): GuestExec {
  const { promise: exit, resolve } = Promise.withResolvers<{ exitCode: number }>();
  const stderr = Readable.from([]);
  socket.on("error", () => undefined);
  socket.once("end", () => {
    resolve({ exitCode: 0 });
    socket.destroy();
  });
  socket.once("close", () => resolve({ exitCode: 1 }));
  if (socket.destroyed) resolve({ exitCode: 1 });
  return {
    pid: Promise.resolve(0),
    stdin: socket,
    stdout: socket,
    stderr,
    exit,
    resize: () => undefined,
    signal: () => undefined,
    kill: () => void socket.destroy(),
  };
}
