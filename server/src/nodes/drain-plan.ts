/**
 * What a drain does next with the machines of its node, and how it says so. Pure.
 *
 * Always:
 * - Tenants take turns, so that the machines of one do not wait for all those of another. Running machines of
 *   a tenant leave first.
 * - A move that failed is tried again MOVE_TRIES_MAX times in all; one that was canceled is not.
 */
import type { Placement } from "../placement/place.ts";

const MOVE_TRIES_MAX = 3;
/** Before a move is tried again. */
const RETRY_MS = 10_000;
/** Max machines that a text names. */
const NAMED_MAX = 5;

export interface DrainedMachine {
  readonly id: string;
  readonly name: string | null;
  readonly tenantId: string;
  /** It runs or is about to. */
  readonly isActive: boolean;
  /** A move holds it, which need not be one of the drain. */
  readonly isMoving: boolean;
}

/** A move that the drain has begun. */
export interface DrainMove {
  readonly machineId: string;
  readonly status: "running" | "succeeded" | "failed" | "canceled";
  readonly error: string | null;
  /** Epoch milliseconds. */
  readonly updatedAt: number;
  /** The machine is on another node now. */
  readonly hasMoved: boolean;
}

export interface BlockedMachine<Machine> {
  readonly machine: Machine;
  readonly reason: string;
}

/** Every machine of the node is in one of the first four lists. */
export interface DrainView<Machine> {
  /** To be moved, in this order. */
  readonly next: readonly Machine[];
  readonly moving: readonly Machine[];
  /** Their move failed, and is tried again soon. */
  readonly waiting: readonly Machine[];
  readonly blocked: readonly BlockedMachine<Machine>[];
  readonly movedCount: number;
  /** How many machines are on another node now, and their moves wait until they run there. */
  readonly startingCount: number;
  /** Machines that are on another node now, and do not run there although they should. */
  readonly failed: readonly { readonly machineId: string; readonly error: string }[];
}

/** The machines in the order in which they leave. */
export function inTurns<Machine extends DrainedMachine>(machines: readonly Machine[]): readonly Machine[] {
  const sorted = machines.toSorted((a, b) => Number(b.isActive) - Number(a.isActive) || (a.id < b.id ? -1 : 1));
  const counts = new Map<string, number>();
  const turns = sorted.map((machine) => {
    const turn = counts.get(machine.tenantId) ?? 0;
    counts.set(machine.tenantId, turn + 1);
    return { machine, turn };
  });
  return turns.toSorted((a, b) => a.turn - b.turn).map(({ machine }) => machine);
}

export interface DrainFacts<Machine> {
  /** In the order in which they leave. */
  readonly machines: readonly Machine[];
  /** By machine; of one that is not moving. */
  readonly placements: ReadonlyMap<string, Placement>;
  readonly moves: readonly DrainMove[];
  /** Why a move could not be requested just now, by machine. */
  readonly refusals: ReadonlyMap<string, string>;
  readonly now: number;
}

export function viewDrain<Machine extends DrainedMachine>(facts: DrainFacts<Machine>): DrainView<Machine> {
  const { machines, moves } = facts;
  const next: Machine[] = [];
  const moving: Machine[] = [];
  const waiting: Machine[] = [];
  const blocked: BlockedMachine<Machine>[] = [];
  for (const machine of machines) {
    const own = moves.filter(({ machineId }) => machineId === machine.id);
    const failedAt = Math.max(0, ...own.map(({ updatedAt }) => updatedAt));
    if (machine.isMoving || own.some(({ status }) => status === "running")) moving.push(machine);
    else {
      const reason = blockedBy(machine, own, facts);
      if (reason !== null) blocked.push({ machine, reason });
      else if (facts.now - failedAt < RETRY_MS) waiting.push(machine);
      else next.push(machine);
    }
  }
  const gone = moves.filter(({ hasMoved }) => hasMoved);
  return {
    ...{ next, moving, waiting, blocked },
    movedCount: new Set(gone.map(({ machineId }) => machineId)).size,
    startingCount: gone.filter(({ status }) => status === "running").length,
    failed: gone.flatMap(({ machineId, status, error }) =>
      status === "failed" && error !== null ? [{ machineId, error }] : [],
    ),
  };
}

/** Why the machine is not moved; null: it is. */
function blockedBy<Machine extends DrainedMachine>(
  { id }: Machine,
  own: readonly DrainMove[],
  { placements, refusals }: DrainFacts<Machine>,
): string | null {
  if (own.some(({ status }) => status === "canceled")) return "its move was canceled";
  const failed = own.filter(({ status }) => status === "failed");
  if (failed.length >= MOVE_TRIES_MAX)
    return `its move failed ${MOVE_TRIES_MAX} times: ${failed.at(-1)?.error ?? "no reason is known"}`;
  const placement = placements.get(id);
  if (placement?.nodeId === null) return placement.reason;
  return refusals.get(id) ?? null;
}

export const counted = (count: number, what = "machine"): string => `${count} ${what}${count === 1 ? "" : "s"}`;

const labelOf = ({ id, name }: Pick<DrainedMachine, "id" | "name">): string => (name === null ? id : `${name} (${id})`);

function namesOf(machines: readonly Pick<DrainedMachine, "id" | "name">[]): string {
  const more = machines.length > NAMED_MAX ? ` and ${machines.length - NAMED_MAX} more` : "";
  return machines.slice(0, NAMED_MAX).map(labelOf).join(", ") + more;
}

/** Which machines are not moved and why: one part for each reason. */
export function blockedText(blocked: readonly BlockedMachine<DrainedMachine>[]): string {
  const byReason = Map.groupBy(blocked, ({ reason }) => reason);
  const parts = [...byReason].map(([reason, those]) => `${namesOf(those.map(({ machine }) => machine))}: ${reason}`);
  const more = parts.length > NAMED_MAX ? `; and ${counted(parts.length - NAMED_MAX, "other reason")}` : "";
  return parts.slice(0, NAMED_MAX).join("; ") + more;
}

export interface DrainProgress {
  readonly stopAt: number;
  readonly now: number;
  /** How many machines were deleted and are not gone yet. */
  readonly deleting: number;
}

export function progressText(view: DrainView<DrainedMachine>, { stopAt, now, deleting }: DrainProgress): string {
  const { next, moving, waiting, blocked, movedCount, startingCount } = view;
  const left = next.length + moving.length + waiting.length + blocked.length;
  const running = blocked.filter(({ machine }) => machine.isActive).length;
  const stay = `${running === 1 ? "1 machine runs" : `${running} machines run`} and cannot be moved`;
  const when = stopAt > now ? `at ${new Date(stopAt).toISOString()} it is stopped` : "it is being stopped";
  return [
    movedCount + left > 0 ? `${movedCount} of ${counted(movedCount + left)} moved` : null,
    startingCount > 0 ? `${counted(startingCount)} starting on another node` : null,
    moving.length > 0 ? `moving ${namesOf(moving)}` : null,
    waiting.length > 0 ? `trying again soon: ${namesOf(waiting)}` : null,
    running > 0 ? `${stay}; ${running === 1 ? when : when.replace("it is", "they are")}` : null,
    deleting > 0 ? `${counted(deleting)} being deleted` : null,
    blocked.length > 0 ? `cannot be moved: ${blockedText(blocked)}` : null,
  ]
    .filter((part) => part !== null)
    .join("; ");
}

/** What was done when no machine runs on the node any more. */
export function emptiedText({ movedCount, failed, blocked }: DrainView<DrainedMachine>, stoppedCount: number): string {
  const notRunning = failed.map(({ machineId, error }) => `${machineId} (${error})`);
  return [
    movedCount > 0 || blocked.length > 0 ? `${movedCount} of ${counted(movedCount + blocked.length)} moved` : null,
    stoppedCount > 0 ? `${counted(stoppedCount)} stopped` : null,
    failed.length > 0
      ? `moved, but not running: ${notRunning.slice(0, NAMED_MAX).join("; ")}${failed.length > NAMED_MAX ? "; and others" : ""}`
      : null,
    "none runs there",
  ]
    .filter((part) => part !== null)
    .join("; ");
}

/** What a drained node still has. */
export function restText(nodeId: string, blocked: readonly BlockedMachine<DrainedMachine>[]): string {
  if (blocked.length === 0)
    return `node ${nodeId} has no machine's disk: its host may be switched off or decommissioned, and no machine is lost`;
  const one = blocked.length === 1;
  return (
    `node ${nodeId} still has the ${one ? "disk" : "disks"} of ${counted(blocked.length)}: ${blockedText(blocked)}. ` +
    `The host may be switched off for a time: ${one ? "this machine starts" : "these machines start"} again when it is back. ` +
    `To remove it for good, move or delete ${one ? "it" : "them"} first`
  );
}

/** How long a machine is away besides its copy: it is stopped, handed over and started. */
const SECONDS_PER_MOVE = 10;
const BYTES_PER_SECOND = 50_000_000;

export const moveSeconds = (bytes: number): number => SECONDS_PER_MOVE + Math.ceil(bytes / BYTES_PER_SECOND);

/** How long moves take in this order, `atATime` together. `estimate` says how it was computed. */
export function estimateMoves(
  bytes: readonly number[],
  atATime: number,
): { readonly seconds: number; readonly estimate: string } {
  const ends = Array.from({ length: atATime }, () => 0);
  for (const each of bytes) {
    const first = ends.indexOf(Math.min(...ends));
    ends[first] = (ends[first] ?? 0) + moveSeconds(each);
  }
  return {
    seconds: Math.max(0, ...ends),
    estimate: `${SECONDS_PER_MOVE} s for each machine and ${BYTES_PER_SECOND / 1e6} MB/s for each copy, ${atATime} machines at a time`,
  };
}
