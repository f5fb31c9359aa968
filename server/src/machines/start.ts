/**
 * Starts a machine: writes the request, calls its node, and writes the result.
 *
 * Always:
 * - Two concurrent starts lead to one boot: the second loses the fenced write, finds the request in the row
 *   and waits for it.
 * - The statement that writes the request also checks the concurrency ceiling and the budget, so concurrent
 *   starts never exceed them.
 * - A start of a machine whose agent does not answer is a new request, on which its node restarts it.
 * - A refused start changes nothing. An accepted one continues whatever happens to this server or to the
 *   caller.
 * - A start of a machine that is being moved waits for the end of the move, and happens on the node that owns
 *   the disk then.
 * - A caller waits until the start has ended, however long that takes: the machine reconciler abandons a
 *   start after START_DEADLINE_MS. Only a node that does not answer ends the wait sooner.
 *
 * If the process dies after the first write, the machine reconciler of any server makes the call.
 */
import { Refusal } from "@flotilla/contract/errors";
import { machineNotFound } from "../auth/not-found.ts";
import { placementRequest } from "./placement-request.ts";
import { requestStart } from "./change.ts";
import { converge, convergePatiently } from "./converge.ts";
import { hasBlockingBudget, refuseOverBudget } from "../usage/budget.ts";
import { refuseOverEgress } from "../usage/egress.ts";
import { activeRefusal } from "../usage/quota.ts";
import { asReached } from "./reached.ts";
import type { MachineRecord } from "./record.ts";
import type { ConvergeServices, MachineServices } from "./services.ts";
import type { Durability } from "./store.ts";
import { HIDDEN_BY_NODE, includes, isActive, UNREACHABLE_STATUSES, nextPhase, phaseOf } from "./state.ts";
import { readTotals } from "../usage/store.ts";
import { isResponsive, nodeUnreachableText } from "./view.ts";

export interface StartOptions {
  readonly tenantId: string;
  readonly id: string;
  /** The API key whose call it is: what the run costs is attributed to it. */
  readonly keyId: string;
  /** Requested by a command in a stopped machine. */
  readonly isAutomatic: boolean;
  /** Answer as soon as the start is accepted. */
  readonly isDetached: boolean;
  readonly signal: AbortSignal;
  /**
   * Durability of what the node answers. `later` if the caller's answer waits for another commit that
   * follows. Default: disk.
   */
  readonly durability?: Durability;
  /** Nodes that are tried before others when it is placed, the best first. Default: none. */
  readonly preferredNodes?: readonly string[];
  /** Machines that it is kept apart from, by their nodes (PlacementRequest). Default: none. */
  readonly siblings?: Map<string, number>;
  /** How long the end of a move is waited for, in milliseconds. Default: as long as it takes. */
  readonly moveWaitMs?: number;
}

const WRITE_TRIES_MAX = 8;
/** Between two calls to a node about the same start. */
const RETRY_MS = 100;

/** The machine, running (or starting, when detached). Throws a Refusal that says why it does not run. */
export async function startMachine(services: MachineServices, options: StartOptions): Promise<MachineRecord> {
  const machine = await acceptStart(services, options);
  if (phaseOf(machine) === "running") return machine;
  if (options.isDetached) {
    services.inBackground(`start of ${machine.id}`, () => converge(services, machine, { waitMs: services.nodeWaitMs }));
    return machine;
  }
  return await awaitRunning(services, machine, options);
}

/** Writes the request, unless the machine already runs, and its agent answers, or is starting. */
async function acceptStart(
  services: Pick<MachineServices, "cache" | "ceilingsOf" | "context" | "fleet" | "nodes" | "plansUrl">,
  options: StartOptions,
): Promise<MachineRecord> {
  const { context, cache } = services;
  let machine = usableFromCache(cache.find(options)) ?? (await cache.read(options));
  for (let attempt = 0; attempt < WRITE_TRIES_MAX; attempt += 1) {
    if (machine === undefined) throw machineNotFound(options.id);
    refuseWithoutNode(asReached(services, machine));
    const phase = phaseOf(machine);
    const next = nextPhase(phase, "startRequested");
    if (next === undefined) throw machineNotFound(options.id);
    if (next === phase && (phase !== "running" || options.isAutomatic || isResponsive(machine))) return machine;
    const ceilings = await services.ceilingsOf(machine.tenantId);
    await refuseOverEgress(context, machine.tenantId, ceilings, services.plansUrl);
    const nodeId = await chooseNode(services, machine, { isRepeated: attempt > 0, ...options });
    const change = requestStart(machine, {
      tenantId: machine.tenantId,
      nodeId,
      overcommit: services.nodes.overcommit,
      activeMax: ceilings.maxConcurrentMachines,
      isBudgeted: hasBlockingBudget(ceilings),
      isAutomatic: options.isAutomatic,
      keyId: options.keyId,
      now: context.clock.now(),
    });
    const written = await services.nodes.whileWriting(nodeId, () => cache.write([change]));
    const accepted = written.get(machine.id);
    if (accepted !== undefined) return accepted;
    const fresh = await cache.read(options);
    if (fresh?.revision === machine.revision) await refuseOverBudget(context, fresh.tenantId, ceilings, fresh);
    if (fresh?.revision === machine.revision && (!isActive(fresh) || fresh.moveStops)) {
      await refuseOverCeilings(services, fresh);
      if (fresh.moveId !== null && attempt > 0) throw noRoomInMove(fresh);
      // The tenant has capacity again, or the node does not admit the start any more, as others may not
      // either.
      if (attempt === 0 && fresh.moveId === null) services.nodes.forgetNode(nodeId);
      else services.nodes.forget();
    }
    machine = fresh;
  }
  throw new Refusal("conflict", `start of machine ${options.id} kept conflicting with concurrent changes; try again`);
}

/** Throws a Refusal when another active machine exceeds the tenant's plan. */
async function refuseOverCeilings(
  services: Pick<MachineServices, "ceilingsOf" | "context" | "plansUrl">,
  machine: MachineRecord,
): Promise<void> {
  if (isActive(machine)) return;
  const held = await readTotals(services.context.db, machine.tenantId);
  const refusal = activeRefusal(machine, held, await services.ceilingsOf(machine.tenantId), services.plansUrl);
  if (refusal !== undefined) throw refusal;
}

const noRoomInMove = ({ id, moveId }: MachineRecord): Refusal =>
  new Refusal(
    "no_capacity",
    `machine ${id} cannot be started while it moves (${moveId}): a node of its move has no room for it; try again when the move has ended`,
  );

/** A cached machine is used only if a fenced write follows: another server may have changed it just now. */
function usableFromCache(machine: MachineRecord | undefined): MachineRecord | undefined {
  const phase = machine && phaseOf(machine);
  return phase === "created" || phase === "stopped" ? machine : undefined;
}

function refuseWithoutNode(machine: MachineRecord): void {
  if (machine.nodeStatus === null || !includes(UNREACHABLE_STATUSES, machine.nodeStatus)) return;
  const state = includes(HIDDEN_BY_NODE, phaseOf(machine)) ? "is unreachable" : "cannot be started";
  const why = nodeUnreachableText(machine.nodeId ?? "", machine.nodeStatus);
  throw new Refusal("unavailable", `machine ${machine.id} ${state}: ${why}`);
}

/**
 * The node that has the machine's disk, or the best node for it. Throws a Refusal when it cannot be started
 * there.
 */
async function chooseNode(
  services: Pick<MachineServices, "nodes">,
  machine: MachineRecord,
  {
    isRepeated,
    preferredNodes = [],
    siblings,
  }: Pick<StartOptions, "preferredNodes" | "siblings"> & { readonly isRepeated: boolean },
): Promise<string> {
  const { nodeId, moveNodeId } = machine;
  const request = { ...(await placementRequest(services, machine)), ...(siblings !== undefined && { siblings }) };
  if (nodeId !== null) {
    // One that is being moved starts where its move ends.
    const reason = await services.nodes.startRefusal(moveNodeId ?? nodeId, request);
    if (reason === null) return nodeId;
    throw new Refusal("no_capacity", `machine ${machine.id} cannot be started: ${reason}`);
  }
  // A preferred node may have filled up since it was read: another attempt takes any.
  const preferred = isRepeated ? null : await services.nodes.placeOn(preferredNodes, request);
  if (preferred !== null) return preferred;
  const placement = await services.nodes.place(request, { isRepeated });
  if (placement.nodeId !== null) return placement.nodeId;
  const advice = placement.canNever
    ? "what a machine needs of a node is fixed: create another machine, or ask the operator to add a node that fits"
    : "try again later, or add a node";
  throw new Refusal("no_capacity", `no node has room for machine ${machine.id}: ${placement.reason}; ${advice}`);
}

/** Waits until a starting machine runs. Throws a Refusal when it does not. */
export async function awaitRunning(
  services: ConvergeServices & Pick<MachineServices, "nodeWaitMs">,
  machine: MachineRecord,
  { signal, durability = "disk", moveWaitMs }: Pick<StartOptions, "signal" | "durability" | "moveWaitMs">,
): Promise<MachineRecord> {
  const { cache, context } = services;
  let held = machine;
  for (;;) {
    let latest =
      held.moveId === null
        ? await convergePatiently(services, held, { waitMs: services.nodeWaitMs, signal, durability })
        : await awaitEndOfMove(services, held, { signal, waitMs: moveWaitMs });
    if (latest === undefined || latest.deletedAt !== null) throw deletedWhileStarting(machine.id);
    switch (phaseOf(latest)) {
      case "running":
        return latest;
      case "failed":
        throw startFailed(latest);
      case "starting":
        // The start takes longer than one call to the node may, or the request was replaced: read the row
        // again.
        if (held.moveId === null) await context.clock.sleep(RETRY_MS, signal);
        signal.throwIfAborted();
        latest = await cache.readAny(machine.id);
        if (latest === undefined) throw deletedWhileStarting(machine.id);
        refuseWithoutNode(latest);
        held = latest;
        break;
      default:
        throw endedWhileStarting(latest);
    }
  }
}

/**
 * The machine when no move holds it any more; undefined when there is no row of it. Throws a Refusal after
 * `waitMs`.
 */
async function awaitEndOfMove(
  { cache, context }: Pick<MachineServices, "cache" | "context">,
  { id }: MachineRecord,
  { signal, waitMs = Number.POSITIVE_INFINITY }: { readonly signal: AbortSignal; readonly waitMs?: number | undefined },
): Promise<MachineRecord | undefined> {
  const { clock } = context;
  const until = clock.monotonic() + waitMs;
  for (;;) {
    const read = new AbortController();
    const changed = cache.changed(id, AbortSignal.any([signal, read.signal]), until - clock.monotonic());
    try {
      const latest = await cache.readAny(id);
      if (latest === undefined || latest.deletedAt !== null || latest.moveId === null) return latest;
      refuseWithoutNode(latest);
      if (clock.monotonic() >= until) throw stillMoving(latest);
      await changed;
      signal.throwIfAborted();
    } finally {
      read.abort();
    }
  }
}

const stillMoving = ({ id, moveId }: MachineRecord): Refusal =>
  new Refusal(
    "unavailable",
    `machine ${id} is being moved to another node by operation ${moveId}; try again when that has ended`,
  );

const deletedWhileStarting = (id: string): Refusal =>
  new Refusal("not_found", `machine ${id} was deleted while it started`);

function startFailed(machine: MachineRecord): Refusal {
  const reason = machine.error ?? machine.observedReason ?? "no reason is known";
  const fault = machine.error === null ? machine.observedReasonCode : null;
  // Existing clients look for "not found" and then explain image references.
  const hint = fault === "image_not_found" ? "; image not found: check the reference" : "";
  return new Refusal(fault ?? "start_failed", `start of machine ${machine.id} failed: ${reason}${hint}`);
}

const endedWhileStarting = (machine: MachineRecord): Refusal =>
  new Refusal("conflict", `machine ${machine.id} was stopped, or powered itself off, while it started; start it again`);
