/**
 * From a machine and a port to what is dialed: the node and the boot of a machine that runs and publishes the
 * port.
 *
 * Always:
 * - a machine that does not run is refused with 503: the ingress starts none, and writes nothing. One that
 *   starts, or is on its way to another node, is waited for;
 * - no query is made for a machine that is known to run; when its node says that it does not run there, the
 *   machine is read again, and the work is repeated only if it runs elsewhere or in another boot.
 */
import type { Clock } from "@flotilla/base/clock";
import { Refusal } from "@flotilla/contract/errors";
import { NotRunning } from "../link/refusals.ts";
import type { NodeAddress } from "../link/node-link.ts";
import type { Locate } from "../link/open-exec.ts";
import type { MachineCache } from "../machines/machine-cache.ts";
import { type MachineName, type MachineRecord, nodeOf } from "../machines/record.ts";
import { machineNotFound } from "../auth/not-found.ts";
import { isStoppedByMove, phaseOf } from "../machines/state.ts";
import { shownState } from "../machines/view.ts";
import { locateFor } from "../machines/locate.ts";
import type { TargetPort } from "./target.ts";

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

export interface PortRequest extends TargetPort {
  /** Cancels it: the caller has disconnected, or its right has ended. */
  readonly signal: AbortSignal;
}

interface PortServices {
  readonly cache: MachineCache;
  readonly clock: Pick<Clock, "monotonic">;
}

const TRIES_MAX = 3;
/** How long a new connection waits for a start under way, or for the end of a move in whose pause it came. */
const ARRIVAL_WAIT_MS = 20_000;

/**
 * What `work` returns. `work` throws NotRunning only before anything reached the guest, or when it may be
 * repeated. Throws a Refusal: `not_found` for an unknown machine or port, `unavailable` for a machine that
 * does not run.
 */
export async function withGuestPort<T>(
  services: PortServices,
  { machine: name, port, signal }: PortRequest,
  work: (port: GuestPort) => Promise<T>,
): Promise<T> {
  const { cache } = services;
  const arrivalOf = (isAwaited: (machine: MachineRecord) => boolean) => arrival(services, { name, signal, isAwaited });
  const known = cache.find(name);
  // The database knows more than the cache about a machine that is not known to run.
  let machine = known !== undefined && phaseOf(known) === "running" ? known : await cache.read(name);
  if (machine !== undefined && isStarting(machine) && publishedPort(machine, port) !== undefined)
    machine = await arrivalOf(isStarting);
  for (let attempt = 1; ; attempt += 1) {
    if (machine === undefined) throw machineNotFound(name.id);
    const found = runningPort(cache, machine, port);
    try {
      return await work(found);
    } catch (error) {
      if (!(error instanceof NotRunning)) throw error;
    }
    cache.forget(name.id);
    machine = await cache.read(name);
    if (machine !== undefined && attempt < TRIES_MAX && isOnItsWay(machine)) {
      machine = await arrivalOf(isOnItsWay);
      continue;
    }
    const isSameBoot = machine?.observedBootId === found.bootId && machine.nodeAddress === found.node.address;
    if (machine !== undefined && phaseOf(machine) === "running" && (isSameBoot || attempt >= TRIES_MAX)) {
      const text = `machine ${name.id} cannot be connected to: its node says that it does not run; try again in a moment`;
      throw new Refusal("unavailable", text, { headers: { "retry-after": "1" } });
    }
  }
}

/** Whether a start is under way on a node that reports. */
const isStarting = (machine: MachineRecord): boolean =>
  phaseOf(machine) === "starting" && shownState(machine).state === "creating";

/** Whether it runs again soon: it starts, or is moved while it runs. */
const isOnItsWay = (machine: MachineRecord): boolean =>
  machine.moveId === null ? isStarting(machine) : !isStoppedByMove(machine);

interface Awaited {
  readonly name: MachineName;
  readonly signal: AbortSignal;
  readonly isAwaited: (machine: MachineRecord) => boolean;
}

/**
 * Waits while the machine is on its way, at most ARRIVAL_WAIT_MS. Returns it as it is then; undefined: it
 * does not exist any more.
 */
async function arrival(
  { cache, clock }: PortServices,
  { name, signal, isAwaited }: Awaited,
): Promise<MachineRecord | undefined> {
  const until = clock.monotonic() + ARRIVAL_WAIT_MS;
  for (;;) {
    const over = new AbortController();
    const leftMs = until - clock.monotonic();
    const change = cache.changed(name.id, AbortSignal.any([over.signal, signal]), leftMs);
    try {
      const machine = await cache.read(name);
      if (leftMs <= 0 || signal.aborted || machine === undefined || !isAwaited(machine)) return machine;
      await change;
    } finally {
      over.abort();
    }
  }
}

const publishedPort = ({ ports }: MachineRecord, port: number | null): MachineRecord["ports"][number] | undefined =>
  port === null ? ports[0] : ports.find((each) => each.port === port);

function runningPort(cache: MachineCache, machine: MachineRecord, port: number | null): GuestPort {
  const published = publishedPort(machine, port);
  if (published === undefined)
    throw new Refusal(
      "not_found",
      port === null
        ? `machine ${machine.id} publishes no port`
        : `port ${port} of machine ${machine.id} is not published; ports are published when a machine is created`,
    );
  const { state, error } = shownState(machine);
  if (state === "creating") {
    const text = `machine ${machine.id} cannot be connected to: it is still starting; try again in a moment`;
    throw new Refusal("unavailable", text, { headers: { "retry-after": "1" } });
  }
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
