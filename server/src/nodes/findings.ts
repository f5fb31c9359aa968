/**
 * What each server, node and authority of the fleet needs from an operator. Pure.
 *
 * Always: a finding that needs action is `bad` and says what to do; a state that an operator chose, or that
 * passes by itself, is `warn` at most. What needs nothing has one finding that is `ok`.
 */
import { renderSpan } from "@flotilla/base/span";
import { memoryKeptMb } from "@flotilla/contract/limits";
import type { FleetFinding } from "@flotilla/contract/nodes";
import { MEMORY_WAITS_MAX } from "../placement/place.ts";
import type { ServerRecord } from "./servers-store.ts";
import type { NodeRecord } from "./store.ts";

export interface FleetState {
  readonly servers: readonly ServerRecord[];
  readonly nodes: readonly NodeRecord[];
  /**
   * The one that signs first; or why this server cannot list them: it cannot decrypt their keys, for example.
   */
  readonly authorities: readonly AuthorityFacts[] | string;
  /** How many images each node that was called has, or why it did not answer. */
  readonly answers: ReadonlyMap<string, number | string>;
  /** Epoch milliseconds. */
  readonly now: number;
}

export interface AuthorityFacts {
  readonly fingerprint: string;
  readonly createdAt: number;
  readonly expiresAt: number;
}

/** Below this a node makes no template, and its machines that write are paused soon. */
const FREE_DISK_GB_MIN = 2;
/** Percent of the last minute; from these on machines are noticeably slower. */
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

type Subject = FleetFinding["subject"];
/** A finding without its subject. */
type Found = Omit<FleetFinding, "subject">;
type Data = FleetFinding["data"];

const FLEET: Subject = { kind: "fleet", id: null };

export function findingsOf(state: FleetState): readonly FleetFinding[] {
  const { servers, nodes, authorities, now } = state;
  // By the database's clock alone: that of this host may be wrong.
  const seenLast = Math.max(...servers.map(({ seenAt }) => seenAt));
  const ofServers = servers.map((server) =>
    about({ kind: "server", id: server.host }, serverFinding(server, { now, silentMs: seenLast - server.seenAt })),
  );
  if (nodes.length === 0)
    return [
      ...ofServers,
      about(FLEET, bad("no_nodes", "no node", "no machine can run; `flotilla node` on a host adds it to the fleet")),
    ];
  return [
    ...ofServers,
    ...[versionFinding(state), heldFinding(nodes)].filter((each) => each !== null).map((each) => about(FLEET, each)),
    ...nodes.flatMap((node) => nodeFindings(node, state).map((found) => about({ kind: "node", id: node.id }, found))),
    ...(typeof authorities === "string"
      ? [about(FLEET, bad("authorities_unreadable", "this server cannot list the authorities", authorities))]
      : authorities.map((authority, index) =>
          about(
            { kind: "authority", id: authority.fingerprint },
            index === 0 ? signingFinding(authority, now) : retiredFinding(authority, nodes),
          ),
        )),
  ];
}

const about = (subject: Subject, found: Found): FleetFinding => ({ subject, ...found });

const found = (
  severity: Found["severity"],
  code: Found["code"],
  message: string,
  { action, data }: { readonly action: string; readonly data: Data },
): Found => ({ code, severity, message, action, data });
const ok = (code: Found["code"], message: string, action = "", data: Data = {}): Found =>
  found("ok", code, message, { action, data });
const warn = (code: Found["code"], message: string, action: string, data: Data = {}): Found =>
  found("warn", code, message, { action, data });
const bad = (code: Found["code"], message: string, action: string, data: Data = {}): Found =>
  found("bad", code, message, { action, data });

function serverFinding(
  { release, linkVersion, startedAt }: ServerRecord,
  { now, silentMs }: { readonly now: number; readonly silentMs: number },
): Found {
  const version = `${release}, link ${linkVersion}`;
  const data = { release, linkVersion };
  if (silentMs <= SERVER_SILENT_MS)
    return ok("server_runs", `${version}, up for ${renderSpan(now - startedAt)}`, "", {
      ...data,
      upMs: now - startedAt,
    });
  const action =
    "it was killed or hangs, or does not reach the database; one that does not come back is left out within a minute";
  return warn("server_silent", `${version}, silent for ${renderSpan(silentMs)}`, action, { ...data, silentMs });
}

/** Programs one release apart work together; from two apart they may refuse each other. */
function versionFinding({ servers, nodes }: FleetState): Found | null {
  const programs = [
    ...servers.map(({ host, release, linkVersion }) => ({ name: `server ${host}`, release, linkVersion })),
    ...nodes
      .filter(({ status }) => status !== "revoked")
      .map(({ id, release, linkVersion }) => ({ name: `node ${id}`, release, linkVersion })),
  ];
  const newest = Math.max(...programs.map(({ linkVersion }) => linkVersion ?? 0));
  const far = programs.filter(({ linkVersion }) => linkVersion !== null && newest - linkVersion > 1);
  if (far.length > 0) {
    const names = far.map(({ name, linkVersion }) => `${name} has ${linkVersion}`).join(", ");
    const action = "upgrade these one release at a time; until then they may be refused";
    const message = `versions more than one release apart: link ${newest}, and ${names}`;
    return bad("versions_apart", message, action, { newest, count: far.length });
  }
  const releases = new Set(programs.flatMap(({ release }) => release ?? []));
  if (releases.size <= 1) return null;
  const listed = [...releases].toSorted().map((release) => {
    const names = programs.filter((program) => program.release === release).map(({ name }) => name);
    return `${release} (${names.join(", ")})`;
  });
  return warn("versions_differ", `versions ${listed.join("; ")}`, "they work together; finish the upgrade", {
    count: releases.size,
  });
}

/** Nothing is replaced of nodes that do not report. */
function heldFinding(nodes: readonly NodeRecord[]): Found | null {
  const held = nodes.filter((node) => node.status === "unreachable" && node.lostAt === null && node.heldAt !== null);
  const reason = held[0]?.heldReason ?? null;
  if (reason === null) return null;
  const count = held.length;
  const action =
    "look first at what is between the servers and these nodes; it resumes when they report, or with `flotilla node replace-lost` (`--dry-run` shows what it does)";
  const message = `NOTHING IS REPLACED of ${count} ${count === 1 ? "node" : "nodes"}: ${reason}`;
  return bad("replacement_held", message, action, { count, reason });
}

/** One that is silent or revoked has no other facts of now. */
function nodeFindings(node: NodeRecord, { answers, now }: FleetState): readonly Found[] {
  const status = statusFinding(node, now);
  const answer = answers.get(node.id);
  const needs =
    status?.severity === "bad"
      ? [status]
      : [
          status,
          ...roomFindings(node),
          ...pressureFindings(node),
          ...connectionFindings(node, now),
          unknownFinding(node),
          outdatedFinding(node),
          answerFinding(answer),
        ].filter((each) => each !== null);
  const last = errorFinding(node, now);
  const all = needs.length > 0 ? needs : [readyFinding(node, { images: Number(answer ?? 0), now })];
  return last === null ? all : [...all, last];
}

function readyFinding(node: NodeRecord, { images, now }: { readonly images: number; readonly now: number }): Found {
  const { labels, availableMemoryMb, totalMemoryMb, availableDiskGb, totalDiskGb, certificateExpiresAt } = node;
  const facts = [
    `ready, ${images} ${images === 1 ? "image" : "images"}`,
    `${availableMemoryMb} of ${totalMemoryMb} MB and ${availableDiskGb} of ${totalDiskGb} GB free`,
    labels["accelerator"] ?? "accelerator unknown",
    `${node.release ?? "version unknown"}, link ${node.linkVersion ?? "unknown"}`,
    ...(certificateExpiresAt === null ? [] : [`certificate for ${renderSpan(certificateExpiresAt - now)}`]),
  ];
  const data = { images, availableMemoryMb, totalMemoryMb, availableDiskGb, totalDiskGb };
  return ok("node_ready", facts.join(", "), labels["acceleratorReason"] ?? "", data);
}

function roomFindings(node: NodeRecord): readonly (Found | null)[] {
  const { availableMemoryMb, totalMemoryMb, availableDiskGb, totalDiskGb } = node;
  return [
    availableMemoryMb < memoryKeptMb(totalMemoryMb)
      ? bad(
          "memory_short",
          `${availableMemoryMb} of ${totalMemoryMb} MB of memory are free`,
          "it starts no machine; stop machines there, or add memory or a node",
          { availableMemoryMb, totalMemoryMb, keptMb: memoryKeptMb(totalMemoryMb) },
        )
      : null,
    availableDiskGb < FREE_DISK_GB_MIN
      ? bad(
          "disk_short",
          `${availableDiskGb} of ${totalDiskGb} GB of its disk are free`,
          "machines that write there are paused soon; delete machines there, or enlarge its disk",
          { availableDiskGb, totalDiskGb },
        )
      : null,
  ];
}

/** What makes the node's machines wait. A node whose kernel does not measure pressure has none to show. */
function pressureFindings({ pressure }: NodeRecord): readonly (Found | null)[] {
  if (pressure === null) return [];
  const percent = (waits: number): string => `${Math.round(waits)} % of the last minute`;
  const { cpu, memory, io } = pressure;
  return [
    memory.full >= MEMORY_WAITS_MAX
      ? bad(
          "memory_pressure",
          `all its processes waited for memory for ${percent(memory.full)}`,
          "it gets no new machine; stop or move machines there, or add memory",
          { percent: memory.full },
        )
      : null,
    cpu.some >= CPU_WAITS_MAX
      ? warn(
          "processor_pressure",
          `processes waited for a processor for ${percent(cpu.some)}`,
          "its machines are slow; move some away, or add a node",
          { percent: cpu.some },
        )
      : null,
    io.full >= DISK_WAITS_MAX
      ? warn(
          "disk_pressure",
          `all its processes waited for the disk for ${percent(io.full)}`,
          "its machines are slow; move some away, or see what writes there",
          { percent: io.full },
        )
      : null,
  ];
}

/** What may soon keep the node from connecting. */
function connectionFindings(node: NodeRecord, now: number): readonly (Found | null)[] {
  const { status, clockAheadMs, certificateExpiresAt } = node;
  if (status === "revoked") return [];
  const leftMs = certificateExpiresAt === null ? CERTIFICATE_MS_MIN : certificateExpiresAt - now;
  return [
    clockAheadMs !== null && Math.abs(clockAheadMs) > CLOCK_MS_MAX
      ? bad(
          "clock_off",
          `its clock is ${renderSpan(Math.abs(clockAheadMs))} ${clockAheadMs > 0 ? "ahead" : "behind"}`,
          "set the clocks of its host and of the servers; from an hour on it cannot connect",
          { clockAheadMs },
        )
      : null,
    leftMs < CERTIFICATE_MS_MIN
      ? bad(
          "certificate_expires",
          `its certificate expires in ${renderSpan(leftMs)}`,
          "it should have been renewed; see the log of its agent, and the clocks of its host and of the servers",
          { leftMs },
        )
      : null,
  ];
}

/** Machines that were created after the backup that was restored, or moved there since. */
function unknownFinding({ unknownMachines }: NodeRecord): Found | null {
  const count = unknownMachines.length;
  if (count === 0) return null;
  const shown = `${unknownMachines.slice(0, UNKNOWN_SHOWN).join(", ")}${count > UNKNOWN_SHOWN ? ", …" : ""}`;
  return warn(
    "unknown_machines",
    `${count} unknown ${count === 1 ? "machine" : "machines"}: ${shown}`,
    "it keeps them and their disks, and runs those that ran; nothing bills or removes them (docs/operations.md, Unknown machines)",
    { count },
  );
}

/** A node that has not reported says nothing of its VMMs. */
function outdatedFinding({ id, outdatedVmms }: NodeRecord): Found | null {
  const count = (outdatedVmms ?? []).length;
  if (count === 0) return null;
  const message = `${count} ${count === 1 ? "machine runs" : "machines run"} in a VMM of another program than the installed one`;
  return warn("outdated_vmms", message, `\`flotilla node upgrade ${id} --vmms\` runs them in the installed one`, {
    count,
  });
}

function answerFinding(answer: number | string | undefined): Found | null {
  if (typeof answer !== "string") return null;
  const action = "commands and transfers through this server fail with 503; check the way from it to the node";
  return warn("node_does_not_answer", `it reports, and does not answer this server: ${answer}`, action, {
    reason: answer,
  });
}

/** The last error of the agent since it started. */
function errorFinding({ lastError }: NodeRecord, now: number): Found | null {
  if (lastError === null) return null;
  const ageMs = Math.max(0, now - lastError.at);
  const message = `last error ${renderSpan(ageMs)} ago: ${lastError.message}`;
  const judged = ageMs < ERROR_RECENT_MS ? warn : ok;
  return judged("node_error", message, "the log of its agent has more", { ageMs, error: lastError.message });
}

/** null: it reports, and machines are placed there. */
function statusFinding(node: NodeRecord, now: number): Found | null {
  const { id, status, lastHeartbeatAt, cordonedAt, maintenanceAt } = node;
  const seen = lastHeartbeatAt === null ? "never reported" : `last seen ${renderSpan(now - lastHeartbeatAt)} ago`;
  const silence: Data = lastHeartbeatAt === null ? {} : { silentMs: now - lastHeartbeatAt };
  const isAway = status === "unreachable";
  if (maintenanceAt !== null && (isAway || status === "ready"))
    return warn(
      "node_in_maintenance",
      `under maintenance for ${renderSpan(now - maintenanceAt)}${isAway ? `, ${seen}` : ""}`,
      `no new machine is placed there until \`flotilla node uncordon ${id}\``,
      { sinceMs: now - maintenanceAt },
    );
  switch (status) {
    case "unreachable":
      return bad(
        "node_unreachable",
        `unreachable, ${seen}`,
        `check its host, that \`flotilla node\` runs there, and its way to the servers; if it is lost for good, delete its machines, then \`flotilla node decommission ${id}\``,
        silence,
      );
    case "revoked":
      return warn(
        "node_revoked",
        "revoked",
        `its machines are unreachable; start its agent with a new join token, or remove it with \`flotilla node decommission ${id}\``,
      );
    case "draining":
    case "drained":
      return warn("node_draining", status, "it starts no machine until its agent restarts");
    default:
      if (lastHeartbeatAt === null)
        return warn("node_never_reported", seen, "it should report within seconds; see the log of its agent");
      if (cordonedAt === null) return null;
      return warn(
        "node_cordoned",
        "cordoned",
        `no new machine is placed there until \`flotilla node uncordon ${id}\``,
        { sinceMs: now - cordonedAt },
      );
  }
}

function signingFinding({ createdAt, expiresAt }: AuthorityFacts, now: number): Found {
  const leftMs = expiresAt - now;
  const action = "no node can connect then; `flotilla authority rotate` makes another one";
  if (createdAt - AUTHORITY_BEFORE_MS > now)
    return bad("authority_not_yet_valid", "is not valid yet: it was made by a clock that was ahead", action);
  if (leftMs >= AUTHORITY_MS_MIN)
    return ok("authority_signs", `signs, expires in ${renderSpan(leftMs)}`, "", { leftMs });
  const message = leftMs < 0 ? "has expired" : `expires in ${renderSpan(leftMs)}`;
  return bad("authority_expires", message, action, { leftMs });
}

function retiredFinding({ fingerprint }: AuthorityFacts, nodes: readonly NodeRecord[]): Found {
  const waiting = nodes.filter(({ status }) => status === "unreachable").map(({ id }) => id);
  const action =
    waiting.length === 0
      ? `every node has reported; \`flotilla authority rm ${fingerprint}\` ends the trust in it`
      : `remove it when these nodes have reported: ${waiting.join(", ")}`;
  return warn("authority_retired", "replaced, still trusted", action, { waiting: waiting.length });
}
