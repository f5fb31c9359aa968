/**
 * From a machine and a port to what is dialed: the node and the boot of a machine that runs and publishes the port.
 *
 * Always:
 * - a machine that does not run is refused with 503: the ingress starts none, and writes nothing;
 * - no query is made for a machine that is known to run; when its node says that it does not run there, the machine is
 *   read again, and the work is repeated only if it runs elsewhere or in another boot.
 */
import type { Clock } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import { NotRunning } from "../link/refusals.ts";
import type { NodeAddress } from "../link/node-link.ts";
import type { Locate } from "../link/open-exec.ts";
import type { MachineCache } from "../machines/machine-cache.ts";
import { type MachineName, type MachineRecord, nodeOf } from "../machines/record.ts";
import { machineNotFound } from "../machines/start.ts";
import { isStoppedByMove, phaseOf } from "../machines/state.ts";
import { shownState } from "../machines/view.ts";
import { locateFor } from "../machines/whereabouts.ts";

/** A port of one boot of a machine. */
export interface GuestPort {
  readonly tenantId: string;
  readonly machineId: string;
  readonly bootId: string;
  readonly port: number;
  readonly node: NodeAddress;
  /** Finds the machine again when a connection to it broke. */
  readonly locate: Locate;
}

export interface PortRequest {
  readonly machine: MachineName;
  /** null: the first one that is published. */
  readonly port: number | null;
}

interface PortServices {
  readonly cache: MachineCache;
  readonly clock: Pick<Clock, "monotonic">;
}

const TRIES_MAX = 3;
/** How long a new connection waits for the end of a move in whose pause it came. */
const MOVE_WAIT_MS = 20_000;

/**
 * What `work` returns. `work` throws NotRunning only before anything reached the guest, or when it may be repeated. Throws a Refusal: `not_found` for
 * an unknown machine or port, `unavailable` for a machine that does not run.
 */
export async function withGuestPort<T>(
  services: PortServices,
  { machine: name, port }: PortRequest,
  work: (port: GuestPort) => Promise<T>,
): Promise<T> {
  const { cache } = services;
  const known = cache.find(name);
  // The database knows more than the cache about a machine that is not known to run.
  let machine = known !== undefined && phaseOf(known) === "running" ? known : await cache.read(name);
  for (let attempt = 1; ; attempt += 1) {
    if (machine === undefined) throw machineNotFound(name.id);
    const found = publishedPort(cache, machine, port);
    try {
      return await work(found);
    } catch (error) {
      if (!(error instanceof NotRunning)) throw error;
    }
    cache.forget(name.id);
    machine = await cache.read(name);
    if (machine !== undefined && attempt < TRIES_MAX && isOnItsWay(machine, found)) {
      machine = await arrival(services, name, found);
      continue;
    }
    const isSameBoot = machine?.observedBootId === found.bootId && machine.nodeAddress === found.node.address;
    if (machine !== undefined && phaseOf(machine) === "running" && (isSameBoot || attempt >= TRIES_MAX)) {
      const text = `machine ${name.id} cannot be connected to: its node says that it does not run; try again in a moment`;
      throw new Refusal("unavailable", text, { "retry-after": "1" });
    }
  }
}

/** Whether it continues elsewhere: it is moved while it runs, or starts after a move that has ended. */
const isOnItsWay = (machine: MachineRecord, left: GuestPort): boolean =>
  machine.moveId === null
    ? phaseOf(machine) === "starting" && machine.nodeAddress !== left.node.address
    : !isStoppedByMove(machine);

/** Waits while the machine is on its way, at most MOVE_WAIT_MS. Returns it as it is then; undefined: there is none any more. */
async function arrival(
  { cache, clock }: PortServices,
  name: MachineName,
  left: GuestPort,
): Promise<MachineRecord | undefined> {
  const until = clock.monotonic() + MOVE_WAIT_MS;
  for (;;) {
    const over = new AbortController();
    const leftMs = until - clock.monotonic();
    const change = cache.changed(name.id, over.signal, leftMs);
    try {
      const machine = await cache.read(name);
      if (leftMs <= 0 || machine === undefined || !isOnItsWay(machine, left)) return machine;
      await change;
    } finally {
      over.abort();
    }
  }
}

function publishedPort(cache: MachineCache, machine: MachineRecord, port: number | null): GuestPort {
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
    locate: locateFor({ cache }, machine),
  };
}
