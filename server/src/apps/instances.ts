/**
 * What a plan knows of an instance, from its row, its machine's and the ingresses' leases. Pure.
 *
 * Always: an instance whose row says that it could not be made or started has failed, whatever its machine
 * is.
 */
import { IMAGE_FAULTS, type ErrorCode } from "@flotilla/contract/errors";
import { includes, type MachineFacts, OBSERVED_ACTIVE, phaseOf } from "../machines/state.ts";
import type { Health, Instance, InstanceState } from "./rollout/facts.ts";

/** The check's newest result, as its node reports it. */
export interface ReportedHealth {
  readonly status: Health;
  readonly since: number | null;
  readonly reason: string | null;
}

/** The part of a machine's row that decides about its instance. */
export interface InstanceMachine extends MachineFacts {
  readonly revision: number;
  readonly observedReasonCode: string | null;
  readonly readyAt: number | null;
  readonly deletedAt: number | null;
  readonly health: ReportedHealth | null;
  readonly unresponsiveSince: number | null;
  readonly hostPorts: readonly { readonly port: number; readonly hostPort: number }[];
}

/** A row of app_instances with its machine. Instants are epoch milliseconds. */
export interface InstanceRow {
  readonly machineId: string;
  readonly release: number;
  readonly madeAt: number;
  readonly error: string | null;
  readonly isHopeless: boolean;
  readonly retiredAt: number | null;
  readonly retiredWhy: string | null;
  readonly removedAt: number | null;
  readonly isRouted: boolean;
  readonly routeVersion: number;
  readonly unroutedAt: number | null;
  readonly wasUnhealthy: boolean;
  /** null: its machine is not made. */
  readonly machine: InstanceMachine | null;
  /** Its node does not report, and counts as lost. */
  readonly isNodeLost: boolean;
  /** Its node does not report, whether or not it counts as lost. */
  readonly isNodeSilent: boolean;
  /** Its node is being drained, or was. */
  readonly isNodeDrained: boolean;
  /** What `seen` of app_instances is to be after a plan that knows this row. */
  readonly seen: string;
}

/** An ingress that may serve apps now. */
export interface Lease {
  readonly version: number;
  /** Open requests of machines that left the table. */
  readonly open: Readonly<Record<string, number>>;
}

/** The id of the instance that a machine is. */
export const instanceId = (machineId: string): string => machineId.replace(/^mach-/, "inst-");

/** Refusals of a create or a start that each other instance of the release gets too. */
const HOPELESS: ReadonlySet<ErrorCode> = new Set([...IMAGE_FAULTS, "invalid_request", "not_implemented"]);
export const isHopelessCode = (code: ErrorCode): boolean => HOPELESS.has(code);

/**
 * `checks`: whether the release has a health check that decides now; otherwise an instance is healthy when it
 * is ready, which its node reports when the port accepts connections. One whose node does not report gets no
 * requests, and is replaced only when the node counts as lost.
 */
export function instanceOf(row: InstanceRow, leases: readonly Lease[], checks: boolean): Instance {
  const { machine } = row;
  const reported = stateOf(row);
  const health = healthOf(row, checks);
  return {
    id: row.machineId,
    release: row.release,
    nodeId: machine?.nodeId ?? null,
    isDrained: row.isNodeDrained,
    state: reported.state,
    ...health,
    reason: reported.reason ?? health.reason,
    isHopeless: reported.isHopeless,
    madeAt: row.madeAt,
    isRouted: row.isRouted,
    isConfirmed: leases.every(({ version }) => version >= row.routeVersion),
    unroutedAt: row.unroutedAt,
    openRequests: leases.reduce((sum, { open }) => sum + (open[row.machineId] ?? 0), 0),
    retiredAt: row.retiredAt,
    isRemoved: row.removedAt !== null,
  };
}

interface Reported {
  readonly state: InstanceState;
  readonly reason: string | null;
  readonly isHopeless: boolean;
}

const is = (state: InstanceState, reason: string | null = null, isHopeless = false): Reported => ({
  state,
  reason,
  isHopeless,
});

function stateOf({ machine, error, isHopeless, isNodeLost, isNodeSilent, removedAt }: InstanceRow): Reported {
  if (machine === null) {
    if (removedAt !== null) return is("gone", error);
    return error === null ? is("unmade") : is("failed", error, isHopeless);
  }
  if (isNodeLost && machine.nodeId !== null) return is("lost");
  const isActive = includes(OBSERVED_ACTIVE, machine.observedState);
  // A silent node deletes it when it is back; nothing waits for that.
  if (machine.deletedAt !== null) return isActive ? is(isNodeSilent ? "lost" : "running") : is("gone");
  if (error !== null) return is("failed", error, isHopeless);
  switch (phaseOf(machine)) {
    case "created":
      return is("unmade");
    case "starting":
      return is("starting");
    case "running":
      return is("running");
    case "stopping":
      // A machine that was asked to stop still uses its node.
      return is(removedAt === null ? "failed" : "running", "its machine was stopped");
    case "failed": {
      const isImage = (IMAGE_FAULTS as readonly string[]).includes(machine.observedReasonCode ?? "");
      return is("failed", machine.error ?? machine.observedReason ?? "no reason is known", isImage);
    }
    default:
      return is("failed", "its machine was stopped");
  }
}

function healthOf(
  { machine, isNodeSilent }: InstanceRow,
  checks: boolean,
): Pick<Instance, "health" | "healthSince" | "reason"> {
  const unknown = { health: "unknown", healthSince: null, reason: null } as const;
  if (machine === null) return unknown;
  if (isNodeSilent) return { health: "unhealthy", healthSince: null, reason: "its node does not report" };
  if (machine.unresponsiveSince !== null)
    return { health: "unhealthy", healthSince: machine.unresponsiveSince, reason: "its agent does not answer" };
  if (!checks)
    return machine.readyAt === null
      ? { ...unknown, reason: "its port does not accept connections yet" }
      : { health: "healthy", healthSince: machine.readyAt, reason: null };
  if (machine.health === null) return unknown;
  const { status, since, reason } = machine.health;
  return { health: status, healthSince: status === "unknown" ? null : since, reason };
}
