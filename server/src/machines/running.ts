/**
 * Runs work in a machine: finds the machine, starts it if it is stopped, and passes its record with its node
 * to the work. Commands, terminals and files use it.
 *
 * Always:
 * - The path has no database write, and no query for a machine that is known to run, except at the first use
 *   of one that may be in a pool.
 * - The work is repeated only when the node answered that it did not accept it (NotRunning). Commands are
 *   also repeated when no connection to the node could be opened, because its agent may be restarting.
 */
import { Refusal } from "@flotilla/contract/errors";
import { NodeUnreachable, NotRunning } from "../link/refusals.ts";
import { converge } from "./converge.ts";
import { claimForUse } from "./lift-fences.ts";
import { asReached } from "./reached.ts";
import type { MachineRecord } from "./record.ts";
import type { MachineServices } from "./services.ts";
import { machineNotFound } from "../auth/not-found.ts";
import { awaitRunning, startMachine } from "./start.ts";
import { includes, UNREACHABLE_STATUSES, phaseOf } from "./state.ts";
import { nodeUnreachableText, shownState } from "./view.ts";

const TRIES_MAX = 3;
/** How long a caller waits for the node's next agent, which may start for seconds on a busy host. */
const AGENT_WAIT_MS = 15_000;
const AGENT_RETRY_MS = 100;
/** How long a caller waits for the end of a move. Most moves pause a machine for less. */
const MOVE_WAIT_MS = 5 * 60_000;

export interface InMachineOptions {
  readonly tenantId: string;
  readonly id: string;
  /** The API key whose call it is. */
  readonly keyId: string;
  readonly signal: AbortSignal;
  /** Called before the work, which may change something in the machine from then on (api/handler.ts). */
  readonly recordSent: () => void;
  /** Checks the machine before anything else, also before a start; throws to refuse. */
  readonly admit?: (machine: MachineRecord) => void;
}

/** Returns the result of `work`. Throws a Refusal if the machine does not run, and any error of `work`. */
export async function inRunningMachine<T>(
  services: MachineServices,
  options: InMachineOptions,
  work: (machine: MachineRecord) => Promise<T>,
): Promise<T> {
  const { cache } = services;
  const { id } = options;
  // The database knows more than the cache of a machine that is not known to run.
  const known = cache.find(options);
  let machine = known !== undefined && phaseOf(known) === "running" ? known : await cache.read(options);
  const boots = new Set<string | null>();
  for (let attempt = 1; ; attempt += 1) {
    if (machine === undefined) throw machineNotFound(id);
    options.admit?.(machine);
    const running = await ensureRunning(services, machine, options);
    await claimForUse(services, running);
    options.recordSent();
    try {
      return await work(running);
    } catch (error) {
      if (!(error instanceof NotRunning)) throw error;
      boots.add(running.observedBootId);
      if (attempt >= TRIES_MAX) throw boots.size === 1 ? guestUnreachable(id) : machineKeepsExiting(id);
    }
    // The cached state is out of date: ask the node.
    cache.forget(id);
    machine = await cache.read(options);
    if (machine !== undefined) machine = await converge(services, machine, { waitMs: 0, signal: options.signal });
    if (machine !== undefined && machine.deletedAt !== null) throw machineNotFound(id);
  }
}

/** Repeats work that could not be sent, for AGENT_WAIT_MS. The work must not have used up its input then. */
export async function whenAgentListens<T>(
  { context: { clock } }: Pick<MachineServices, "context">,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T> {
  const until = clock.monotonic() + AGENT_WAIT_MS;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      const isUnsent = error instanceof NodeUnreachable && !error.mayBeSent;
      if (!isUnsent || signal.aborted || clock.monotonic() >= until) throw error;
    }
    await clock.sleep(AGENT_RETRY_MS, signal);
  }
}

const machineKeepsExiting = (id: string): Refusal =>
  new Refusal("conflict", `machine ${id} keeps exiting; read its events to see why`);

/** The node reports that the machine runs, but its restarted agent cannot reach the agent in the guest. */
const guestUnreachable = (id: string): Refusal =>
  new Refusal(
    "guest_unreachable",
    `machine ${id} runs, but its agent does not answer its node; try again later, or stop the machine and start it`,
  );

async function ensureRunning(
  services: MachineServices,
  machine: MachineRecord,
  options: InMachineOptions,
): Promise<MachineRecord> {
  const { nodeStatus } = asReached(services, machine);
  if (nodeStatus !== null && includes(UNREACHABLE_STATUSES, nodeStatus)) {
    const why = nodeUnreachableText(machine.nodeId ?? "", nodeStatus);
    throw new Refusal("unavailable", `machine ${machine.id} cannot be used: ${why}`);
  }
  switch (phaseOf(machine)) {
    case "running":
      return machine;
    case "starting":
      return await awaitRunning(services, machine, { ...options, moveWaitMs: MOVE_WAIT_MS });
    case "created":
    case "stopped":
    case "stopping":
      return await startFor(services, options);
    case "failed": {
      const { error } = shownState(machine);
      const text = `machine ${machine.id} is in state error: ${error}; start it again, or delete it`;
      throw new Refusal("conflict", text);
    }
    case "deleting":
    case "deleted":
      throw machineNotFound(machine.id);
  }
}

/** Starts a stopped machine for a use. A refusal becomes an event, because no caller requested a start. */
async function startFor(services: MachineServices, options: InMachineOptions): Promise<MachineRecord> {
  try {
    return await startMachine(services, {
      ...options,
      isAutomatic: true,
      isDetached: false,
      moveWaitMs: MOVE_WAIT_MS,
    });
  } catch (error) {
    // A failed boot has its event already.
    if (error instanceof Refusal && ["quota_exceeded", "no_capacity", "unavailable"].includes(error.code))
      services.activity.note(options.id, {
        type: "machine.startFailed",
        data: { reason: error.message, isAutomatic: true },
      });
    throw error;
  }
}

/** Throws a Refusal if the tenant has no such machine. Returns undefined if the cache shows that it has. */
export function requireMachine(
  { cache }: Pick<MachineServices, "cache">,
  name: { readonly tenantId: string; readonly id: string },
): Promise<void> | undefined {
  if (cache.find(name) !== undefined) return undefined;
  return cache.read(name).then((machine) => {
    if (machine === undefined) throw machineNotFound(name.id);
  });
}
