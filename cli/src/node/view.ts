/**
 * How a node is displayed on a terminal: a row of the list, and everything about one. Pure; `now` is passed
 * in.
 */
import { renderSpan } from "@flotilla/base/span";
import type { NodeInfo } from "@flotilla/sdk";

export const NODE_HEADS = [
  ...["NODE", "STATUS", "CPUS BUSY", "FREE MEMORY", "FREE DISK", "PRESSURE", "OLD VMMS", "LAST SEEN", "RUNTIME"],
] as const;

export function nodeRow(node: NodeInfo, now: number): readonly string[] {
  return [
    node.id,
    statusOf(node),
    `${node.usedCpus.toFixed(1)} of ${node.totalCpus}`,
    `${node.availableMemoryMb} of ${node.totalMemoryMb} MB`,
    `${node.availableDiskGb} of ${node.totalDiskGb} GB`,
    highestPressure(node),
    outdatedCount(node),
    seen(node, now),
    node.runtime ?? "",
  ];
}

export function nodeFacts(node: NodeInfo, now: number): readonly (readonly [string, string | null])[] {
  const since = (at: string | null): string | null => (at === null ? null : `${renderSpan(now - Date.parse(at))} ago`);
  const { lastError, certificateExpiresAt, clockAheadMs, unknownMachines } = node;
  return [
    ["id", node.id],
    ["status", statusOf(node)],
    ["machines", replacementOf(node)],
    ["maintenance", since(node.maintenanceAt)],
    ["cordoned", since(node.cordonedAt)],
    ["address", node.address],
    ["last seen", seen(node, now)],
    ["registered", since(node.registeredAt)],
    ["version", `${node.release ?? "unknown"}, link ${node.linkVersion ?? "unknown"}`],
    ["runtime", node.runtime],
    ["processors", `${node.usedCpus.toFixed(1)} of ${node.totalCpus} busy`],
    ["memory", `${node.availableMemoryMb} of ${node.totalMemoryMb} MB free`],
    ["disk", `${node.availableDiskGb} of ${node.totalDiskGb} GB free`],
    ["pressure", allPressure(node)],
    [
      "labels",
      Object.entries(node.labels)
        .map(([name, value]) => `${name}=${value}`)
        .join(" ") || null,
    ],
    ["clock", clockAheadMs === null ? null : clockFact(clockAheadMs)],
    ["certificate", certificateExpiresAt === null ? null : `for ${renderSpan(Date.parse(certificateExpiresAt) - now)}`],
    ["last error", lastError === null ? null : `${since(lastError.at)}: ${lastError.message}`],
    ["outdated VMMs", outdatedFact(node)],
    ["unknown machines", unknownMachines.length === 0 ? null : unknownMachines.join(" ")],
  ];
}

const clockFact = (aheadMs: number): string =>
  `${Math.abs(aheadMs)} ms ${aheadMs < 0 ? "behind" : "ahead of"} the server's`;

function replacementOf({ replacement }: NodeInfo): string | null {
  if (replacement === null) return null;
  return replacement.decision === "replaced"
    ? "those that can be replaced are made on other nodes"
    : `NOT REPLACED: ${replacement.reason ?? "the reason is unknown"}`;
}

function statusOf({
  status,
  cordonedAt,
  maintenanceAt,
  replacement,
}: Pick<NodeInfo, "status" | "cordonedAt" | "maintenanceAt" | "replacement">): string {
  if (replacement !== null) return replacement.decision === "held" ? `${status}, NOT REPLACED` : `${status}, replaced`;
  if (maintenanceAt !== null) return `${status}, maintenance`;
  return cordonedAt === null ? status : `${status}, cordoned`;
}

const seen = ({ lastHeartbeatAt }: NodeInfo, now: number): string =>
  lastHeartbeatAt === null ? "never" : `${renderSpan(now - Date.parse(lastHeartbeatAt))} ago`;

const percent = (waits: number): string => `${Math.round(waits)} %`;

/** As many as are reported: there may be more. */
const OUTDATED_REPORTED_MAX = 1_000;

function outdatedCount({ outdatedVmms }: NodeInfo): string {
  if (outdatedVmms === null) return "unknown";
  return `${outdatedVmms.length}${outdatedVmms.length === OUTDATED_REPORTED_MAX ? "+" : ""}`;
}

function outdatedFact({ outdatedVmms }: NodeInfo): string | null {
  if (outdatedVmms === null) return "not reported";
  return outdatedVmms.length === 0 ? null : `of ${outdatedVmms.join(" ")}`;
}

function highestPressure({ pressure }: NodeInfo): string {
  if (pressure === null) return "unknown";
  const { cpu, memory, io } = pressure;
  const all = [
    ["cpu", cpu.some],
    ["memory", memory.some],
    ["disk", io.some],
  ] as const;
  const [name, some] = all.reduce((highest, each) => (each[1] > highest[1] ? each : highest));
  return some < 0.5 ? "none" : `${name} ${percent(some)}`;
}

function allPressure({ pressure }: NodeInfo): string {
  if (pressure === null) return "not reported: its kernel does not measure it";
  const { cpu, memory, io } = pressure;
  const of = (name: string, { some, full }: typeof cpu): string => `${name} ${percent(some)} (all ${percent(full)})`;
  return `of the last minute, some process waited for ${of("a processor", cpu)}, ${of("memory", memory)}, ${of("the disk", io)}`;
}
