/**
 * `flotilla doctor --fleet`: what each node and authority of the fleet needs from an operator. Pure.
 *
 * Always: a finding that needs action is `bad` and says what to do; a state that an operator chose, or that passes by itself,
 * is `warn` at most.
 */
import type { FleetAuthority, NodeInfo, ServerInfo } from "@flotilla/sdk";
import { renderSpan } from "../table.ts";
import type { Check } from "./check.ts";

export interface FleetFacts {
  readonly servers: readonly ServerInfo[];
  readonly nodes: readonly NodeInfo[];
  /** Or why this server cannot list them: it cannot decrypt their keys, for example. */
  readonly authorities: readonly FleetAuthority[] | string;
  /** What the nodes answered to the server that was called; null: none answered. */
  readonly images: readonly { readonly nodeId: string }[] | null;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** Below these a node starts no machine, or makes no template. */
const FREE_MEMORY_MB_MIN = 256;
const FREE_MEMORY_SHARE_MIN = 0.04;
const FREE_DISK_GB_MIN = 2;
/** Percent of the last minute. From the first on a node gets no new machine; the others slow machines down noticeably. */
const MEMORY_WAITS_MAX = 10;
const CPU_WAITS_MAX = 80;
const DISK_WAITS_MAX = 40;
/** Certificates tolerate an hour. */
const CLOCK_MS_MAX = 60_000;
/** Certificates of a day are renewed when half of it has passed. */
const CERTIFICATE_MS_MIN = 6 * 3_600_000;
const UNKNOWN_SHOWN = 10;
const ERROR_RECENT_MS = 3_600_000;
/** Servers announce themselves every 10 s, and the one that answers did so lately. */
const SERVER_SILENT_MS = 20_000;
const AUTHORITY_MS_MIN = 30 * 24 * 3_600_000;
/** An authority is valid from a year before it was made. */
const AUTHORITY_BEFORE_MS = 365 * 24 * 3_600_000;

/** Pure. The servers are checked by the caller. */
export function fleetChecks(facts: FleetFacts): readonly Check[] {
  const { servers, nodes, authorities, now } = facts;
  // By the database's clock alone: that of this host may be wrong.
  const seenLast = Math.max(...servers.map(({ seenAt }) => Date.parse(seenAt)));
  const ofServers = servers.map((server) =>
    serverCheck(server, { now, silentMs: seenLast - Date.parse(server.seenAt) }),
  );
  if (nodes.length === 0)
    return [
      ...ofServers,
      finding("nodes", "bad", "none", "no machine can run; `flotilla node` on a host adds it to the fleet"),
    ];
  return [
    ...ofServers,
    ...versionChecks(facts),
    ...nodes.flatMap((node) => [...nodeChecks(node, facts), ...errorCheck(node, now)]),
    ...heldCheck(nodes),
    ...(typeof authorities === "string"
      ? [finding("authorities", "bad", "this server cannot list them", authorities)]
      : authorities.flatMap((authority) => authorityChecks(authority, nodes, now))),
  ];
}

const finding = (name: string, status: Check["status"], value: string, meaning: string): Check => ({
  name,
  status,
  value,
  meaning,
});

function serverCheck(
  { host, release, linkVersion, startedAt }: ServerInfo,
  { now, silentMs }: { readonly now: number; readonly silentMs: number },
): Check {
  const name = `server ${host}`;
  const version = `${release}, link ${linkVersion}`;
  if (silentMs <= SERVER_SILENT_MS)
    return finding(name, "ok", `${version}, up for ${renderSpan(now - Date.parse(startedAt))}`, "");
  const meaning =
    "it was killed or hangs, or does not reach the database; one that does not come back is left out within a minute";
  return finding(name, "warn", `${version}, silent for ${renderSpan(silentMs)}`, meaning);
}

/** Programs one release apart work together; from two apart they may refuse each other. */
function versionChecks({ servers, nodes }: FleetFacts): readonly Check[] {
  const programs = [
    ...servers.map(({ host, release, linkVersion }) => ({ name: `server ${host}`, release, linkVersion })),
    ...nodes
      .filter(({ status }) => status !== "revoked")
      .map(({ id, release, linkVersion }) => ({ name: `node ${id}`, release, linkVersion })),
  ];
  const newest = Math.max(...programs.map(({ linkVersion }) => linkVersion ?? 0));
  const far = programs.filter(({ linkVersion }) => linkVersion !== null && newest - linkVersion > 1);
  if (far.length > 0)
    return [
      finding(
        "versions",
        "bad",
        `more than one release apart: link ${newest}, and ${far.map(({ name, linkVersion }) => `${name} has ${linkVersion}`).join(", ")}`,
        "upgrade these one release at a time; until then they may be refused",
      ),
    ];
  const releases = new Set(programs.flatMap(({ release }) => release ?? []));
  if (releases.size <= 1) return [];
  const listed = [...releases].toSorted().map((release) => {
    const names = programs.filter((program) => program.release === release).map(({ name }) => name);
    return `${release} (${names.join(", ")})`;
  });
  return [finding("versions", "warn", listed.join("; "), "they work together; finish the upgrade")];
}

/** Nothing is replaced of nodes that do not report. */
function heldCheck(nodes: readonly NodeInfo[]): readonly Check[] {
  const held = nodes.filter(({ replacement }) => replacement?.decision === "held");
  const reason = held[0]?.replacement?.reason ?? null;
  if (reason === null) return [];
  return [
    finding(
      "replacement",
      "bad",
      `NOTHING IS REPLACED of ${held.length} ${held.length === 1 ? "node" : "nodes"}: ${reason}`,
      "look first at what is between the servers and these nodes; it resumes when they report, or with `flotilla node replace-lost` (`--dry-run` shows what it does)",
    ),
  ];
}

/** The last error of the agent since it started. */
function errorCheck({ id, lastError }: NodeInfo, now: number): readonly Check[] {
  if (lastError === null) return [];
  const ageMs = now - Date.parse(lastError.at);
  const value = `last error ${renderSpan(Math.max(0, ageMs))} ago: ${lastError.message}`;
  return [finding(`node ${id}`, ageMs < ERROR_RECENT_MS ? "warn" : "ok", value, "the log of its agent has more")];
}

/** A node that has not reported says nothing of its VMMs. */
function outdatedCheck(name: string, { id, outdatedVmms }: NodeInfo): Check | null {
  const count = (outdatedVmms ?? []).length;
  if (count === 0) return null;
  const value = `${count} ${count === 1 ? "machine runs" : "machines run"} in a VMM of another program than the installed one`;
  return finding(name, "warn", value, `\`flotilla node upgrade ${id} --vmms\` runs them in the installed one`);
}

function nodeChecks(node: NodeInfo, { images, now }: FleetFacts): readonly Check[] {
  const name = `node ${node.id}`;
  const status = statusCheck(name, node, now);
  if (status !== null && status.status === "bad") return [status];
  const count = images?.filter(({ nodeId }) => nodeId === node.id).length ?? 0;
  const { labels, availableMemoryMb, totalMemoryMb, availableDiskGb, totalDiskGb } = node;
  const found = [
    status,
    availableMemoryMb < Math.max(FREE_MEMORY_MB_MIN, FREE_MEMORY_SHARE_MIN * totalMemoryMb)
      ? finding(
          name,
          "bad",
          `${availableMemoryMb} of ${totalMemoryMb} MB of memory are free`,
          "it starts no machine; stop machines there, or add memory or a node",
        )
      : null,
    availableDiskGb < FREE_DISK_GB_MIN
      ? finding(
          name,
          "bad",
          `${availableDiskGb} of ${totalDiskGb} GB of its disk are free`,
          "machines that write there are paused soon; delete machines there, or enlarge its disk",
        )
      : null,
    ...pressureChecks(name, node),
    ...connectionChecks(name, node, now),
    unknownCheck(name, node),
    outdatedCheck(name, node),
    node.status !== "revoked" && count === 0
      ? finding(
          name,
          "warn",
          "no image in its answer",
          "it has fetched none, or this server cannot call it: then commands fail with 503, and the server's log has the reason",
        )
      : null,
  ].filter((each) => each !== null);
  if (found.length > 0) return found;
  const facts = [
    `ready, ${count} ${count === 1 ? "image" : "images"}`,
    `${availableMemoryMb} of ${totalMemoryMb} MB and ${availableDiskGb} of ${totalDiskGb} GB free`,
    labels["accelerator"] ?? "accelerator unknown",
    `${node.release ?? "version unknown"}, link ${node.linkVersion ?? "unknown"}`,
    ...(node.certificateExpiresAt === null
      ? []
      : [`certificate for ${renderSpan(Date.parse(node.certificateExpiresAt) - now)}`]),
  ];
  return [finding(name, "ok", facts.join(", "), labels["acceleratorReason"] ?? "")];
}

/** What makes the node's machines wait. A node whose kernel does not measure pressure has none to show. */
function pressureChecks(name: string, { pressure }: NodeInfo): readonly (Check | null)[] {
  if (pressure === null) return [];
  const percent = (waits: number): string => `${Math.round(waits)} % of the last minute`;
  const { cpu, memory, io } = pressure;
  return [
    memory.full >= MEMORY_WAITS_MAX
      ? finding(
          name,
          "bad",
          `all its processes waited for memory for ${percent(memory.full)}`,
          "it gets no new machine; stop or move machines there, or add memory",
        )
      : null,
    cpu.some >= CPU_WAITS_MAX
      ? finding(
          name,
          "warn",
          `processes waited for a processor for ${percent(cpu.some)}`,
          "its machines are slow; move some away, or add a node",
        )
      : null,
    io.full >= DISK_WAITS_MAX
      ? finding(
          name,
          "warn",
          `all its processes waited for the disk for ${percent(io.full)}`,
          "its machines are slow; move some away, or see what writes there",
        )
      : null,
  ];
}

/** Machines that were created after the backup that was restored, or moved there since. */
function unknownCheck(name: string, { unknownMachines }: NodeInfo): Check | null {
  const count = unknownMachines.length;
  if (count === 0) return null;
  const shown = `${unknownMachines.slice(0, UNKNOWN_SHOWN).join(", ")}${count > UNKNOWN_SHOWN ? ", …" : ""}`;
  return finding(
    name,
    "warn",
    `${count} unknown ${count === 1 ? "machine" : "machines"}: ${shown}`,
    "it keeps them and their disks, and runs those that ran; nothing bills or removes them (docs/operations.md, Unknown machines)",
  );
}

/** What may soon keep the node from connecting. */
function connectionChecks(name: string, node: NodeInfo, now: number): readonly (Check | null)[] {
  const { status, clockAheadMs, certificateExpiresAt } = node;
  if (status === "revoked") return [];
  const leftMs = certificateExpiresAt === null ? CERTIFICATE_MS_MIN : Date.parse(certificateExpiresAt) - now;
  return [
    clockAheadMs !== null && Math.abs(clockAheadMs) > CLOCK_MS_MAX
      ? finding(
          name,
          "bad",
          `its clock is ${renderSpan(Math.abs(clockAheadMs))} ${clockAheadMs > 0 ? "ahead" : "behind"}`,
          "set the clocks of its host and of the servers; from an hour on it cannot connect",
        )
      : null,
    leftMs < CERTIFICATE_MS_MIN
      ? finding(
          name,
          "bad",
          `its certificate expires in ${renderSpan(leftMs)}`,
          "it should have been renewed; see the log of its agent, and the clocks of its host and of this one",
        )
      : null,
  ];
}

/** null: it reports, and machines are placed there. */
function statusCheck(name: string, node: NodeInfo, now: number): Check | null {
  const { id, status, lastHeartbeatAt, cordonedAt, maintenanceAt } = node;
  const seen =
    lastHeartbeatAt === null ? "never reported" : `last seen ${renderSpan(now - Date.parse(lastHeartbeatAt))} ago`;
  const isAway = status === "unreachable";
  if (maintenanceAt !== null && (isAway || status === "ready"))
    return finding(
      name,
      "warn",
      `under maintenance for ${renderSpan(now - Date.parse(maintenanceAt))}${isAway ? `, ${seen}` : ""}`,
      `no new machine is placed there until \`flotilla node uncordon ${id}\``,
    );
  switch (status) {
    case "unreachable":
      return finding(
        name,
        "bad",
        `unreachable, ${seen}`,
        `check its host, that \`flotilla node\` runs there, and its way to the servers; if it is lost for good, delete its machines, then \`flotilla node decommission ${id}\``,
      );
    case "revoked":
      return finding(
        name,
        "warn",
        "revoked",
        `its machines are unreachable; start its agent with a new join token, or remove it with \`flotilla node decommission ${id}\``,
      );
    case "draining":
    case "drained":
      return finding(name, "warn", status, "it starts no machine until its agent restarts");
    default:
      if (lastHeartbeatAt === null)
        return finding(name, "warn", seen, "it should report within seconds; see the log of its agent");
      if (cordonedAt === null) return null;
      return finding(name, "warn", "cordoned", `no new machine is placed there until \`flotilla node uncordon ${id}\``);
  }
}

function authorityChecks(authority: FleetAuthority, nodes: readonly NodeInfo[], now: number): readonly Check[] {
  const { fingerprint, isSigning, createdAt, expiresAt } = authority;
  const name = `authority ${fingerprint.slice(0, 12)}`;
  const leftMs = Date.parse(expiresAt) - now;
  const isEarly = Date.parse(createdAt) - AUTHORITY_BEFORE_MS > now;
  if (isSigning && (isEarly || leftMs < AUTHORITY_MS_MIN)) {
    const expiry = leftMs < 0 ? "has expired" : `expires in ${renderSpan(leftMs)}`;
    const value = isEarly ? "is not valid yet: it was made by a clock that was ahead" : expiry;
    return [finding(name, "bad", value, "no node can connect then; `flotilla authority rotate` makes another one")];
  }
  if (isSigning) return [finding(name, "ok", `signs, expires in ${renderSpan(leftMs)}`, "")];
  const waiting = nodes.filter(({ status }) => status === "unreachable").map(({ id }) => id);
  const meaning =
    waiting.length === 0
      ? `every node has reported; \`flotilla authority rm ${fingerprint}\` ends the trust in it`
      : `remove it when these nodes have reported: ${waiting.join(", ")}`;
  return [finding(name, "warn", "replaced, still trusted", meaning)];
}
