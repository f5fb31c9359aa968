/**
 * What users see of a machine: computed from what was asked and what was observed, never stored.
 *
 * Pure. Always: after an accepted start no reader sees `stopped` before a stop was asked or the guest ended by itself;
 * `ready` only with `started`; `error` text exactly with the state `error`.
 */
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
  | "nodeStatus"
  | "error"
  | "observedState"
  | "observedGeneration"
  | "observedBootId"
  | "observedReason"
  | "readyAt"
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
      // An accepted start, whatever the node has seen of it yet: also while an earlier boot is still stopping.
      return plain("creating");
    case "running":
      // Its node says when it is ready: when a published port takes connections, or without one when its agent answers.
      return { state: "started", isReady: machine.readyAt !== null, error: null };
    case "stopping":
      return plain(stoppingState(machine));
    case "failed":
      // The server gave up, or the node said why the boot ended.
      return { state: "error", isReady: false, error: machine.error ?? machine.observedReason ?? "no reason is known" };
    case "deleting":
    case "deleted":
      // Not shown by any read; in an answer that was being written it is what it is about to be.
      return plain("stopped");
  }
}

/** A machine that is being stopped shows what it was, and keeps its place under the ceiling, until it has stopped. */
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
      // Nothing runs; only the node's word that nothing will is missing.
      return "stopped";
  }
}

export function nodeUnreachableText(nodeId: string, status: string | null): string {
  return status === "revoked"
    ? `node ${nodeId} was revoked; register it again to reach the machine on it`
    : `node ${nodeId} does not report; the machine on it is shown again when the node is back`;
}

/** Under which address the world reaches a machine. */
type Addresses = { urlOf(machine: MachineRecord): string };

const instant = (ms: number): string => new Date(ms).toISOString();

export function machineInfo(machine: MachineRecord, addresses: Addresses): MachineInfo {
  const shown = shownState(machine);
  return {
    id: machine.id,
    name: machine.name,
    source: machine.source,
    state: shown.state,
    resources: { cpus: machine.cpus, memoryMb: machine.memoryMb, diskGb: machine.diskGb },
    network: machine.network,
    env: { ...machine.env },
    secretEnvNames: [...machine.secretNames],
    ephemeral: machine.isEphemeral,
    createdAt: instant(machine.createdAt),
    updatedAt: instant(machine.updatedAt),
    autoStopSeconds: machine.autoStopSeconds,
    lastActivityAt: machine.lastActivityAt === null ? null : instant(machine.lastActivityAt),
    ttlSeconds: machine.ttlSeconds,
    restart: machine.restart,
    workdir: machine.workdir,
    ready: shown.isReady,
    readyAt: shown.isReady && machine.readyAt !== null ? instant(machine.readyAt) : null,
    ports: machine.ports.map(({ port }) => ({ port, hostPort: hostPortOf(machine, shown.state, port) })),
    url: shown.state === "started" && machine.ports.length > 0 ? addresses.urlOf(machine) : null,
    arch: machine.source.arch ?? null,
    error: shown.error,
    labels: { ...machine.labels },
    createdBy: machine.createdBy,
    forkable: machine.isBranchable,
    branchable: machine.isBranchable,
    public: machine.isPublic,
    command: machine.command === null ? null : [...machine.command],
    nodeId: machine.nodeId,
    startTimings: machine.observedDetails.timings,
    capabilities: { exec: shown.state === "started", ...NO_BRANCHES },
  };
}

const NO_BRANCHES = {
  ...{ branch: false, branchBatch: false, nestedBranch: false, maxBranchBatch: 0 },
  ...{ fork: false, forkBatch: false, nestedFork: false, maxForkBatch: 0 },
};

interface Shown {
  readonly body: MachineInfo;
  readonly json: string;
}

const known = new WeakMap<MachineRecord, Shown>();

/** What machineInfo() shows, and its JSON: made once for each record, which never changes. */
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
