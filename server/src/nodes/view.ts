/**
 * Nodes as the API shows them. Pure.
 */
import type { FleetFacts } from "@flotilla/contract/link/fleet";
import type { FleetMembership, NodeInfo, ServerInfo } from "@flotilla/contract/nodes";
import type { ServerRecord } from "./servers-store.ts";
import type { NodeRecord } from "./store.ts";

export function nodeInfo(node: NodeRecord): NodeInfo {
  return {
    id: node.id,
    address: node.address,
    smolvmAddress: node.address,
    status: node.status,
    totalCpus: node.totalCpus,
    availableCpus: Math.max(0, Math.floor(node.totalCpus - node.usedCpus)),
    totalMemoryMb: node.totalMemoryMb,
    availableMemoryMb: node.availableMemoryMb,
    totalDiskGb: node.totalDiskGb,
    availableDiskGb: node.availableDiskGb,
    labels: { ...node.labels },
    registeredAt: new Date(node.registeredAt).toISOString(),
    lastHeartbeatAt: node.lastHeartbeatAt === null ? null : new Date(node.lastHeartbeatAt).toISOString(),
    cordonedAt: node.cordonedAt === null ? null : new Date(node.cordonedAt).toISOString(),
    maintenanceAt: node.maintenanceAt === null ? null : new Date(node.maintenanceAt).toISOString(),
    replacement: replacementOf(node),
    linkVersion: node.linkVersion,
    release: node.release,
    lastError:
      node.lastError === null
        ? null
        : { at: new Date(node.lastError.at).toISOString(), message: node.lastError.message },
    clockAheadMs: node.clockAheadMs,
    certificateExpiresAt: node.certificateExpiresAt === null ? null : new Date(node.certificateExpiresAt).toISOString(),
    unknownMachines: [...node.unknownMachines],
    outdatedVmms: node.outdatedVmms === null ? null : [...node.outdatedVmms],
    runtime: node.runtime,
    usedCpus: node.usedCpus,
    usedMemoryMb: node.usedMemoryMb,
    usedDiskGb: node.usedDiskGb,
    pressure: node.pressure,
  };
}

/** null: it is not unreachable, or has been revoked since it was. */
function replacementOf({ status, lostAt, heldAt, heldReason }: NodeRecord): NodeInfo["replacement"] {
  const decidedAt = lostAt ?? heldAt;
  if (decidedAt === null || status !== "unreachable") return null;
  const decision = lostAt === null ? "held" : "replaced";
  return { decision, decidedAt: new Date(decidedAt).toISOString(), reason: heldReason };
}

export const serverInfo = ({ startedAt, seenAt, ...server }: ServerRecord): ServerInfo => ({
  ...server,
  startedAt: new Date(startedAt).toISOString(),
  seenAt: new Date(seenAt).toISOString(),
});

export const fleetMembership = ({ authorities, certificate, listeners, ingresses }: FleetFacts): FleetMembership => ({
  authorities: [...authorities],
  certificate,
  listeners: listeners.map(({ id, addresses }) => ({ id, addresses: [...addresses] })),
  ingresses: ingresses.map(({ id, addresses }) => ({ id, addresses: [...addresses] })),
});

export const fleetAuthority = (
  { fingerprint, createdAt, expiresAt }: { fingerprint: string; createdAt: number; expiresAt: number },
  isSigning: boolean,
) => ({
  fingerprint,
  isSigning,
  createdAt: new Date(createdAt).toISOString(),
  expiresAt: new Date(expiresAt).toISOString(),
});
