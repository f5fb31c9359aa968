/**
 * A machine as this server reaches it. A node that reports and keeps no connection open to this server is for
 * the callers of this server what one is that does not report.
 *
 * Not stored: another server may have connections, and nothing is replaced for it.
 */
import { parkedAddress } from "@flotilla/contract/link/fleet";
import type { MachineRecord } from "./record.ts";
import type { MachineServices } from "./services.ts";

/** The same record, unless its node is not reached. */
export function asReached({ fleet }: Pick<MachineServices, "fleet">, machine: MachineRecord): MachineRecord {
  const { nodeId, nodeAddress, nodeStatus } = machine;
  if (nodeId === null || nodeAddress !== parkedAddress(nodeId)) return machine;
  if (nodeStatus === "unreachable" || nodeStatus === "maintenance" || nodeStatus === "revoked") return machine;
  return fleet.parked.isMissing(nodeId) ? { ...machine, nodeStatus: "unconnected" } : machine;
}
