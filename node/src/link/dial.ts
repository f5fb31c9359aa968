/**
 * A TCP connection into a running machine, for the server: what the request's body brings goes to the guest's port, and
 * what comes from there is the answer's body.
 *
 * A request in place of an upgrade, because a body says how it ended: one that ends is the end of that direction, one
 * that breaks is a caller who has gone, and a guest must hear of either. On a raw Unix socket both look the same.
 *
 * Always: the guest's port has accepted before anything is answered, so what can be refused is refused with a status;
 * nobody is read faster than the other side takes it; the end of the guest's direction ends all, after its last byte; a
 * machine has at most CONNECTIONS_MAX of them, so that none takes all of the agent's descriptors.
 *
 * Which ports the outside may reach is the server's decision. When the agent dies all of them break.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { messageOf } from "@flotilla/base/errors";
import { DIAL_PREAMBLE, type LinkError } from "@flotilla/contract/link";
import type { VmNetwork } from "../network/vm-network.ts";
import type { Supervisor } from "../machines/supervisor.ts";
import type { UnreadableMachine } from "../machines/unreadable-machine.ts";

const CONNECTIONS_MAX = 512;

export interface DialTarget {
  readonly machineId: string;
  readonly port: number;
  /** undefined: not on this node. */
  readonly machine: Supervisor | UnreadableMachine | undefined;
}

/** The connections into machines that this agent carries. */
export class Dials {
  readonly #counts = new Map<string, number>();

  /** Gives how it was refused; null when it was not. Resolves once that is known, or the caller has gone. */
  async serve(
    request: IncomingMessage,
    response: ServerResponse,
    { machineId, port, machine }: DialTarget,
  ): Promise<(LinkError & { readonly status: number }) | null> {
    if (machine === undefined)
      return { status: 404, code: "not_running", message: `machine ${machineId} is not on this node` };
    if (machine.guest === null)
      return { status: 409, code: "not_running", message: `machine ${machineId} does not run` };
    if (machine.network === null)
      return { status: 502, code: "refused", message: `machine ${machineId} has no network` };
    const count = this.#counts.get(machineId) ?? 0;
    if (count >= CONNECTIONS_MAX) {
      const message = `machine ${machineId} has ${count} connections from outside, more are not carried`;
      return { status: 503, code: "busy", message };
    }
    this.#counts.set(machineId, count + 1);
    try {
      const guest = await dial(machine.network, port, response);
      await relay(request, response, guest);
      return null;
    } catch (error) {
      // The system's word, such as ECONNREFUSED; its text names an address that means nothing to others.
      const { code } = error as NodeJS.ErrnoException;
      return { status: 502, code: "refused", message: code ?? messageOf(error) };
    } finally {
      this.#release(machineId);
    }
  }

  #release(machineId: string): void {
    const count = (this.#counts.get(machineId) ?? 1) - 1;
    if (count > 0) this.#counts.set(machineId, count);
    else this.#counts.delete(machineId);
  }
}

async function dial(network: VmNetwork, port: number, response: ServerResponse): Promise<Duplex> {
  const gone = new AbortController();
  const leave = (): void => gone.abort(new Error("the caller has gone"));
  response.once("close", leave);
  try {
    return await network.dial(port, gone.signal);
  } finally {
    response.removeListener("close", leave);
  }
}

/** Resolves when all is over, however it ended. */
function relay(request: IncomingMessage, response: ServerResponse, guest: Duplex): Promise<void> {
  return new Promise((resolve) => {
    guest.on("error", () => response.destroy());
    guest.once("close", () => {
      // Without an end it was broken off, and the caller must not take what came for the whole.
      if (!guest.readableEnded) response.destroy();
    });
    response.on("error", () => guest.destroy());
    response.once("close", () => {
      guest.destroy();
      resolve();
    });
    request.on("error", () => guest.destroy());
    if (response.destroyed) {
      guest.destroy();
      return resolve();
    }
    response.writeHead(200, { "content-type": "application/octet-stream" });
    // The guest may be silent until it hears something.
    response.flushHeaders();
    request.once("data", (first: Buffer) => {
      if (first.byteLength > DIAL_PREAMBLE.byteLength) guest.write(first.subarray(DIAL_PREAMBLE.byteLength));
      request.pipe(guest);
    });
    guest.pipe(response);
  });
}
