/**
 * Machines as values, for pure tests: a complete record, in which a test sets what matters to it.
 */
import type { ObservedMachine } from "@flotilla/contract/link/link";
import { absentMachine } from "@flotilla/contract/link/absent";
import { NOTHING_OBSERVED } from "../../src/machines/observed.ts";
import type { MachineRecord } from "../../src/machines/record.ts";

export const MACHINE_ID = `mach-${"a".repeat(32)}`;
export const NOW = Date.UTC(2026, 6, 22, 20, 1, 41);

/** A machine that was created a minute ago and never started. */
export function machineRecord(facts: Partial<MachineRecord> = {}): MachineRecord {
  return {
    id: MACHINE_ID,
    tenantId: "tenant-1",
    hostName: MACHINE_ID,
    name: null,
    source: { type: "image", reference: "local/busybox" },
    network: { mode: "open" },
    env: {},
    secretNames: [],
    secretEnv: null,
    command: null,
    ports: [],
    labels: {},
    workdir: null,
    cpus: 4,
    memoryMb: 8192,
    diskGb: 20,
    isEphemeral: false,
    isPublic: false,
    isBranchable: false,
    autoStopSeconds: null,
    ttlSeconds: null,
    restart: "always",
    atEnd: "delete",
    disruption: "migrate",
    nodeLabels: {},
    health: null,
    hooks: null,
    origin: null,
    fence: null,
    createdBy: "key-1",
    createdAt: NOW - 60_000,
    updatedAt: NOW - 60_000,
    desiredState: "stopped",
    keepsMemory: false,
    generation: 1,
    desiredAt: NOW - 60_000,
    nodeId: null,
    moveId: null,
    moveStops: false,
    moveNodeId: null,
    movedBy: null,
    error: null,
    isAutoStarted: false,
    hasRun: false,
    ...NOTHING_OBSERVED,
    reconcileAt: null,
    revision: 1,
    lastActivityAt: null,
    deletedAt: null,
    nodeStatus: facts.nodeId === null || facts.nodeId === undefined ? null : "ready",
    nodeAddress: facts.nodeId === null || facts.nodeId === undefined ? null : "unix:/run/node.sock",
    ...facts,
  };
}

export function report(facts: Partial<ObservedMachine> = {}): ObservedMachine {
  return { ...absentMachine(MACHINE_ID, 1), state: "stopped", ...facts };
}
