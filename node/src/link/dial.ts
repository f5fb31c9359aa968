/**
 * A TCP connection from the server to a port of a running machine: the request's body goes to the guest, and
 * the guest's bytes are the response's body.
 *
 * It is a request instead of an upgrade, because a body shows how it ended: a body that ends closes that
 * direction, a body that breaks means that the caller has disconnected, and the guest must see the
 * difference. On a raw Unix socket both look the same.
 *
 * Always:
 * - The response begins after the guest's port has accepted, so a refusal has a status.
 * - Neither side is read faster than the other accepts it.
 * - The end of the guest's direction ends the connection, after its last byte.
 * - A machine has at most CONNECTIONS_MAX connections, so that it cannot use up the agent's descriptors.
 *
 * The server decides which ports are reachable. When the agent dies all connections break.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { messageOf } from "@flotilla/base/errors";
import { DIAL_PREAMBLE, type LinkError } from "@flotilla/contract/link/link";
import type { VmNetwork } from "../network/vm-network.ts";
import type { NodeMachine } from "../machines/node-machine.ts";

const CONNECTIONS_MAX = 512;

export interface DialTarget {
  readonly machineId: string;
  readonly port: number;
  /** undefined: not on this node. */
  readonly machine: Pick<NodeMachine, "access"> | undefined;
}

/** The open connections to ports of machines, counted by machine. */
export class Dials {
  readonly #counts = new Map<string, number>();

  /** Resolves with the refusal, or with null when the connection has ended. */
  async serve(
    request: IncomingMessage,
    response: ServerResponse,
    { machineId, port, machine }: DialTarget,
  ): Promise<(LinkError & { readonly status: number }) | null> {
    if (machine === undefined)
      return { status: 404, code: "not_running", message: `machine ${machineId} is not on this node` };
    const { guest, network } = machine.access;
    if (guest === null) return { status: 409, code: "not_running", message: `machine ${machineId} does not run` };
    if (network === null) return { status: 502, code: "refused", message: `machine ${machineId} has no network` };
    const release = this.claim(machineId);
    if (release === null) return { status: 503, ...this.limitReached(machineId) };
    try {
      await relay(request, response, await dial(network, port, response));
      return null;
    } catch (error) {
      // The system's error code, such as ECONNREFUSED; the text names an internal address.
      const { code } = error as NodeJS.ErrnoException;
      return { status: 502, code: "refused", message: code ?? messageOf(error) };
    } finally {
      release();
    }
  }

  /** Counts one connection until the result is called, once. null: the machine has as many as it may. */
  claim(machineId: string): (() => void) | null {
    const count = this.#counts.get(machineId) ?? 0;
    if (count >= CONNECTIONS_MAX) return null;
    this.#counts.set(machineId, count + 1);
    return () => this.#release(machineId);
  }

  limitReached(machineId: string): LinkError {
    const message = `machine ${machineId} has ${CONNECTIONS_MAX} connections from outside, which is the limit`;
    return { code: "busy", message };
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

/** Resolves when the connection has ended, in whatever way. */
function relay(request: IncomingMessage, response: ServerResponse, guest: Duplex): Promise<void> {
  return new Promise((resolve) => {
    guest.on("error", () => response.destroy());
    guest.once("close", () => {
      // Without an end the connection broke, and the caller must not mistake the part for the whole.
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
    // The guest may be silent until it receives something.
    response.flushHeaders();
    request.once("data", (first: Buffer) => {
      if (first.byteLength > DIAL_PREAMBLE.byteLength) guest.write(first.subarray(DIAL_PREAMBLE.byteLength));
      request.pipe(guest);
    });
    guest.pipe(response);
  });
}
