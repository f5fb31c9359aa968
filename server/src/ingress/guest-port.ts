/**
 * From a machine and a port to what is dialed: the node and the boot of a machine that runs and publishes the port.
 *
 * Always:
 * - a machine that does not run is refused with 503: the ingress starts none, and writes nothing;
 * - no query is made for a machine that is known to run; when its node says that it does not run there, the machine is
 *   read again, and the work is repeated only if it runs elsewhere or in another boot.
 */
import { Refusal } from "@flotilla/contract/errors";
import { NotRunning } from "../link/refusals.ts";
import type { NodeAddress } from "../link/node-link.ts";
import type { MachineCache } from "../machines/machine-cache.ts";
import { type MachineName, type MachineRecord, nodeOf } from "../machines/record.ts";
import { machineNotFound } from "../machines/start.ts";
import { phaseOf } from "../machines/state.ts";
import { shownState } from "../machines/view.ts";

/** A port of one boot of a machine. */
export interface GuestPort {
  readonly tenantId: string;
  readonly machineId: string;
  readonly bootId: string;
  readonly port: number;
  readonly node: NodeAddress;
}

export interface PortRequest {
  readonly machine: MachineName;
  /** null: the first one that is published. */
  readonly port: number | null;
}

const TRIES_MAX = 3;

/**
 * What `work` returns. `work` throws NotRunning only before anything reached the guest. Throws a Refusal: `not_found` for
 * an unknown machine or port, `unavailable` for a machine that does not run.
 */
export async function withGuestPort<T>(
  cache: MachineCache,
  { machine: name, port }: PortRequest,
  work: (port: GuestPort) => Promise<T>,
): Promise<T> {
  const known = cache.find(name);
  // The database knows more than the cache about a machine that is not known to run.
  let machine = known !== undefined && phaseOf(known) === "running" ? known : await cache.read(name);
  for (let attempt = 1; ; attempt += 1) {
    if (machine === undefined) throw machineNotFound(name.id);
    const found = publishedPort(machine, port);
    try {
      return await work(found);
    } catch (error) {
      if (!(error instanceof NotRunning)) throw error;
    }
    cache.forget(name.id);
    machine = await cache.read(name);
    const isSameBoot = machine?.observedBootId === found.bootId && machine.nodeAddress === found.node.address;
    if (machine !== undefined && phaseOf(machine) === "running" && (isSameBoot || attempt >= TRIES_MAX)) {
      const text = `machine ${name.id} cannot be connected to: its node says that it does not run; try again in a moment`;
      throw new Refusal("unavailable", text, { "retry-after": "1" });
    }
  }
}

function publishedPort(machine: MachineRecord, port: number | null): GuestPort {
  const published = port === null ? machine.ports[0] : machine.ports.find((each) => each.port === port);
  if (published === undefined)
    throw new Refusal(
      "not_found",
      port === null
        ? `machine ${machine.id} publishes no port`
        : `port ${port} of machine ${machine.id} is not published; ports are published when a machine is created`,
    );
  const { state, error } = shownState(machine);
  if (state !== "started") {
    const why = error ?? `it is ${state}`;
    throw new Refusal("unavailable", `machine ${machine.id} cannot be connected to: ${why}; start it first`);
  }
  return {
    tenantId: machine.tenantId,
    machineId: machine.id,
    bootId: machine.observedBootId ?? "",
    port: published.port,
    node: nodeOf(machine),
  };
}
