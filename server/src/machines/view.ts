/**
 * What users see of a machine: computed from its desired and observed state, never stored.
 *
 * Pure. Always:
 * - After an accepted start no reader sees `stopped` before a stop was requested or the guest ended by
 *   itself.
 * - `ready` appears only with the state `started`, and an `error` text exactly with the state `error`.
 */
import { BRANCHES_MAX } from "@flotilla/contract/limits";
import type { MachineInfo, MachineState } from "@flotilla/contract/machines";
import type { MachineRecord } from "./record.ts";
import { HIDDEN_BY_NODE, includes, UNREACHABLE_STATUSES, phaseOf } from "./state.ts";

export interface ShownState {
  readonly state: MachineState;
  readonly isReady: boolean;
  readonly error: string | null;
}

type ShownOf = Pick<
  MachineRecord,
  | "desiredState"
  | "generation"
  | "nodeId"
  | "moveId"
  | "moveStops"
  | "nodeStatus"
  | "error"
  | "observedState"
  | "observedGeneration"
  | "observedBootId"
  | "observedReason"
  | "readyAt"
  | "observedDetails"
>;

const plain = (state: MachineState): ShownState => ({ state, isReady: false, error: null });

export function shownState(machine: ShownOf): ShownState {
  const phase = phaseOf(machine);
  const isNodeUnreachable = machine.nodeStatus !== null && includes(UNREACHABLE_STATUSES, machine.nodeStatus);
  if (isNodeUnreachable && includes(HIDDEN_BY_NODE, phase)) {
    // Its state is unknown. It most likely still runs, and is shown again when its node reports.
    return { state: "error", isReady: false, error: nodeUnreachableText(machine.nodeId ?? "", machine.nodeStatus) };
  }
  switch (phase) {
    case "created":
      // Creating does not boot.
      return plain("stopped");
    case "stopped":
      return plain("stopped");
    case "starting":
      // An accepted start, whatever the node has reported yet: also while an earlier boot is still stopping.
      return plain("creating");
    case "running":
      // The node reports when it is ready: when a published port accepts connections, or without ports when
      // the guest agent answers. It is not while its agent does not answer.
      return { state: "started", isReady: machine.readyAt !== null && isResponsive(machine), error: null };
    case "stopping":
      return plain(stoppingState(machine));
    case "failed":
      // The server abandoned the request, or the node reported why the boot ended.
      return { state: "error", isReady: false, error: machine.error ?? machine.observedReason ?? "no reason is known" };
    case "deleting":
    case "deleted":
      // Not shown by any read; an answer that was being written shows the state that follows.
      return plain("stopped");
  }
}

/** Whether its agent answers its node, as far as is known. */
export const isResponsive = ({ observedDetails }: Pick<MachineRecord, "observedDetails">): boolean =>
  observedDetails.unresponsiveSince === null;

/**
 * A machine that is being stopped shows its former state, and counts against the ceiling, until it has
 * stopped.
 */
function stoppingState(machine: ShownOf): MachineState {
  switch (machine.observedState) {
    case "preparing":
    case "booting":
      return "creating";
    case "running":
    case "stopping":
      return "started";
    case "absent":
    case "stopped":
    case "failed":
      // Nothing runs; the node has yet to confirm the request.
      return "stopped";
  }
}

export function nodeUnreachableText(nodeId: string, status: string | null): string {
  if (status === "revoked") return `node ${nodeId} was revoked; register it again to reach the machine on it`;
  if (status === "unconnected")
    return `node ${nodeId} reports, but keeps no connection to this server open; the machine on it is shown again when it does`;
  const why = status === "maintenance" ? "is under maintenance" : "does not report";
  return `node ${nodeId} ${why}; the machine on it is shown again when the node is back`;
}

/** The public addresses of machines. */
type Addresses = { urlOf(machine: MachineRecord): string };

const instant = (ms: number): string => new Date(ms).toISOString();
const orNull = (ms: number | null): string | null => (ms === null ? null : instant(ms));

export function machineInfo(machine: MachineRecord, addresses: Addresses): MachineInfo {
  const shown = shownState(machine);
  return {
    id: machine.id,
    name: machine.name,
    source: sourceOf(machine.source),
    state: shown.state,
    resources: { cpus: machine.cpus, memoryMb: machine.memoryMb, diskGb: machine.diskGb },
    network: machine.network,
    env: { ...machine.env },
    secretEnvNames: [...machine.secretNames],
    ephemeral: machine.isEphemeral,
    createdAt: instant(machine.createdAt),
    updatedAt: instant(machine.updatedAt),
    autoStopSeconds: machine.autoStopSeconds,
    lastActivityAt: orNull(machine.lastActivityAt),
    ttlSeconds: machine.ttlSeconds,
    atEnd: machine.atEnd,
    restart: machine.restart,
    disruption: machine.disruption,
    workdir: machine.workdir,
    pauseReason: shown.state === "started" ? machine.observedDetails.pauseReason : null,
    unresponsiveSince: shown.state === "started" ? orNull(machine.observedDetails.unresponsiveSince) : null,
    suspendedAt: suspendedAt(machine),
    ready: shown.isReady,
    readyAt: shown.isReady && machine.readyAt !== null ? instant(machine.readyAt) : null,
    ports: machine.ports.map(({ port }) => ({ port, hostPort: hostPortOf(machine, shown.state, port) })),
    url: shown.state === "started" && machine.ports.length > 0 ? addresses.urlOf(machine) : null,
    arch: machine.source.arch ?? null,
    error: shown.error,
    labels: { ...machine.labels },
    nodeLabels: { ...machine.nodeLabels },
    createdBy: machine.createdBy,
    parentMachineId: machine.origin?.machineId ?? null,
    forkable: machine.isBranchable,
    branchable: machine.isBranchable,
    hooks: machine.hooks,
    public: machine.isPublic,
    command: machine.command === null ? null : [...machine.command],
    nodeId: machine.nodeId,
    startTimings: machine.observedDetails.timings,
    capabilities: { exec: shown.state === "started", ...branchesOf(machine, shown.state) },
  };
}

/** As its owner wrote it. */
function sourceOf({ pulledAs: _, ...source }: MachineRecord["source"]): MachineInfo["source"] {
  return source;
}

/** Its memory is kept, and neither discarded nor loaded. */
function suspendedAt(machine: MachineRecord): string | null {
  const at = machine.observedDetails.suspendedAt;
  return phaseOf(machine) === "stopped" && at !== null ? instant(at) : null;
}

const branchesOf = ({ isBranchable }: MachineRecord, state: MachineState) => {
  const may = isBranchable && state === "started";
  const maxBatch = may ? BRANCHES_MAX : 0;
  return {
    ...{ branch: may, branchBatch: may, nestedBranch: may, maxBranchBatch: maxBatch },
    ...{ fork: may, forkBatch: may, nestedFork: may, maxForkBatch: maxBatch },
  };
};

interface Shown {
  readonly body: MachineInfo;
  readonly json: string;
}

const known = new WeakMap<MachineRecord, Shown>();

/** The result of machineInfo(), and its JSON: made once for each record, which never changes. */
export function shownMachine(machine: MachineRecord, addresses: Addresses): Shown {
  let shown = known.get(machine);
  if (shown === undefined) {
    const body = machineInfo(machine, addresses);
    shown = { body, json: JSON.stringify(body) };
    known.set(machine, shown);
  }
  return shown;
}

export function shownMachines(
  machines: readonly MachineRecord[],
  addresses: Addresses,
): { readonly body: MachineInfo[]; readonly json: string } {
  const all = machines.map((machine) => shownMachine(machine, addresses));
  return { body: all.map(({ body }) => body), json: `[${all.map(({ json }) => json).join(",")}]` };
}

function hostPortOf(machine: MachineRecord, state: MachineState, port: number): number | null {
  if (state !== "started") return null;
  return machine.observedDetails.hostPorts.find((published) => published.port === port)?.hostPort ?? null;
}
