/**
 * Printed by scripts/generate-link.ts from the schemas beside it; not edited by hand: change those and run
 * `npm run golden`. Reads the messages of the link as read.ts says.
 */
import type { FleetFacts, FleetListener, RestartAnswer, RestartRequest } from "./membership.ts";
import type {
  DesiredMachine,
  EndedRun,
  GuestHook,
  GuestHooks,
  MachineHealth,
  MachineHealthCheck,
  MachineSpec,
  ObservedMachine,
  ReplaceAnswer,
  ReplaceRequest,
  SuspendAllRequest,
} from "./machines.ts";
import type { Run, RunReport } from "./runs.ts";
import type {
  AbsentMachine,
  Heartbeat,
  HeartbeatAnswer,
  ImageReport,
  LinkVersions,
  NodeEvent,
  NodePressure,
  NodeResources,
  RegistrationAnswer,
  ReportedImage,
} from "./reports.ts";
import type { ImageProgress, NodeImage, PullRequest } from "./images.ts";
import type {
  ConnectionStart,
  ExecExit,
  ExecResume,
  ExecResumed,
  ExecStart,
  SignalRequest,
  Taken,
  TerminalSize,
  TerminalWatch,
} from "./streams.ts";
import type { FileFacts, FileListLine, FilePath, FileRead, FileWrite, FileWritten, ListedFile } from "./files.ts";
import type {
  AwaitedFile,
  IncomingMachine,
  IncomingState,
  MoveProgress,
  MovedFile,
  MovedImage,
  MovedMemory,
  MovedRoot,
  OutgoingMachine,
} from "./moves.ts";
import type { MadePoint, MemoryUse, OutgoingPoint, PointFacts, PointRequest } from "./points.ts";
import type { ExportLine, ExportRequest, PackageConfiguration } from "./packages.ts";
import type { LinkError } from "./errors.ts";
import {
  bytesAtMost,
  clipped,
  clippedList,
  count,
  environment,
  facts,
  list,
  matching,
  measure,
  oneOf,
  oneOfOr,
  record,
  text,
  textFrom,
  whole,
} from "./read.ts";

const DESIRED_MACHINE_STATE = ["running", "stopped", "absent"] as const;
const ENDED_RUN_CAUSE = ["stop", "delete", "poweroff", "crash", "unresponsive", "unseen", "fenced", "unknown"] as const;
const MACHINE_HEALTH_STATUS = ["unknown", "healthy", "unhealthy"] as const;
const MACHINE_HEALTH_CHECK_TYPE = ["http", "tcp", "exec"] as const;
const MACHINE_HEALTH_CHECK_PATH_PATTERN = /^\/[\x21-\x7e]{0,2047}$/;
const MACHINE_HEALTH_CHECK_HOST_PATTERN = /^[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?$/;
const MACHINE_SPEC_MACHINE_ID_PATTERN = /^mach-[0-9a-f]{32}$/;
const MACHINE_SPEC_HOSTNAME_PATTERN = /^[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}$/;
const MACHINE_SPEC_IMAGE_REFERENCE_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}$/;
const MACHINE_SPEC_IMAGE_ARCH = ["amd64", "arm64"] as const;
const MACHINE_SPEC_NETWORK_MODE = ["open", "blocked", "allowCidrs"] as const;
const MACHINE_SPEC_RESTART = ["always", "never"] as const;
const MACHINE_SPEC_DISRUPTION = ["migrate", "restart", "stop"] as const;
const MACHINE_SPEC_POINT_POINT_ID_PATTERN = /^point-[0-9a-f]{32}$/;
const OBSERVED_MACHINE_MACHINE_ID_PATTERN = /^mach-[0-9a-f]{32}$/;
const OBSERVED_MACHINE_STATE = ["absent", "stopped", "preparing", "booting", "running", "stopping", "failed"] as const;
const OBSERVED_MACHINE_REASON_CODE = [
  "image_not_found",
  "image_refused",
  "image_not_allowed",
  "image_wrong_platform",
  "image_not_cached",
] as const;
const OBSERVED_MACHINE_TIMINGS_VM = ["prepared", "template", "boot"] as const;
const OBSERVED_MACHINE_SUSPEND_REFUSAL_CODE = ["no_space", "conflict"] as const;
const REPLACE_ANSWER_OUTCOME = ["replaced", "current", "ended", "refused"] as const;
const REPLACE_REQUEST_HOW = ["live", "restart"] as const;
const RUN_MACHINE_ID_PATTERN = /^mach-[0-9a-f]{32}$/;
const RUN_CAUSE = ["stop", "delete", "poweroff", "crash", "unresponsive", "unseen", "fenced", "unknown"] as const;
const ABSENT_MACHINE_MACHINE_ID_PATTERN = /^mach-[0-9a-f]{32}$/;
const IMAGE_PROGRESS_REASON_CODE = [
  "image_not_found",
  "image_refused",
  "image_not_allowed",
  "image_wrong_platform",
  "image_not_cached",
  "no_space",
] as const;
const IMAGE_PROGRESS_KIND = ["progress", "done", "failed"] as const;
const PULL_REQUEST_REFERENCE_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}$/;
const PULL_REQUEST_ARCH = ["amd64", "arm64"] as const;
const CONNECTION_START_RESUME_KEY_PATTERN = /^[0-9a-f]{32}$/;
const EXEC_RESUME_RESUME_KEY_PATTERN = /^[0-9a-f]{32}$/;
const EXEC_START_RESUME_KEY_PATTERN = /^[0-9a-f]{32}$/;
const TERMINAL_WATCH_RESUME_KEY_PATTERN = /^[0-9a-f]{32}$/;
const FILE_FACTS_MODE_PATTERN = /^[0-7]{4}$/;
const FILE_LIST_LINE_KIND = ["entry", "done", "failed"] as const;
const FILE_WRITE_SHA256_PATTERN = /^[0-9a-f]{64}$/;
const FILE_WRITTEN_SHA256_PATTERN = /^[0-9a-f]{64}$/;
const FILE_WRITTEN_KIND = ["written", "failed"] as const;
const LISTED_FILE_KIND = ["file", "directory", "link", "other"] as const;
const LISTED_FILE_MODE_PATTERN = /^[0-7]{4}$/;
const AWAITED_FILE_NAME_PATTERN = /^(disk|root|memory|memory-base|log-[0-9]{1,15})$/;
const INCOMING_STATE_POINT_PATTERN = /^[0-9a-f]{32}$/;
const MOVE_PROGRESS_KIND = ["progress", "done", "failed"] as const;
const MOVED_FILE_NAME_PATTERN = /^(disk|log-[0-9]{1,15})$/;
const MOVED_IMAGE_DIGEST_PATTERN = /^sha256:[0-9a-f]{64}$/;
const MOVED_MEMORY_MEMORY_ID_PATTERN = /^[0-9a-f]{32}$/;
const MOVED_ROOT_SHA256_PATTERN = /^[0-9a-f]{64}$/;
const OUTGOING_MACHINE_POINTS_PATTERN = /^[0-9a-f]{32}$/;
const MADE_POINT_POINT_ID_PATTERN = /^point-[0-9a-f]{32}$/;
const MADE_POINT_MACHINE_ID_PATTERN = /^mach-[0-9a-f]{32}$/;
const MADE_POINT_LAYERS_PATTERN = /^point-[0-9a-f]{32}$/;
const POINT_FACTS_MACHINE_ID_PATTERN = /^mach-[0-9a-f]{32}$/;
const POINT_REQUEST_MACHINE_ID_PATTERN = /^mach-[0-9a-f]{32}$/;
const EXPORT_LINE_DIGEST_PATTERN = /^sha256:[0-9a-f]{64}$/;
const EXPORT_LINE_CODE = [
  "not_found",
  "not_stopped",
  "suspended",
  "started",
  "no_space",
  "refused",
  "unreadable",
] as const;
const EXPORT_LINE_KIND = ["progress", "done", "failed"] as const;
const EXPORT_REQUEST_REPOSITORY_PATTERN = /^[a-z0-9]+(?:[._/-]+[a-z0-9]+)*$/;
const EXPORT_REQUEST_TAG_PATTERN = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;
const EXPORT_REQUEST_IMAGE_REFERENCE_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}$/;
const EXPORT_REQUEST_IMAGE_DIGEST_PATTERN = /^sha256:[0-9a-f]{64}$/;
const EXPORT_REQUEST_ARCHITECTURE = ["amd64", "arm64"] as const;
const LINK_ERROR_CODE = [
  "invalid",
  "version",
  "not_found",
  "not_running",
  "guest_unreachable",
  "refused",
  "busy",
  "no_space",
  "paused",
  "interrupted",
  "not_stopped",
  "older_copy",
  "not_runnable",
  "replaced",
  "no_such_file",
  "is_directory",
  "not_directory",
  "not_empty",
  "not_regular",
  "name_too_long",
  "in_memory",
  "hash_differs",
  "too_many_entries",
  "file_refused",
] as const;

export function readFleetFacts(value: unknown): FleetFacts {
  const fields = record(value, "FleetFacts");
  return {
    authorities: list(fields["authorities"], "FleetFacts.authorities", 16, (item) =>
      text(item, "FleetFacts.authorities", 8000),
    ),
    certificate:
      fields["certificate"] === undefined || fields["certificate"] === null
        ? null
        : text(fields["certificate"], "FleetFacts.certificate", 8000),
    listeners: list(fields["listeners"], "FleetFacts.listeners", 256, readFleetListener),
    ingresses: clippedList(fields["ingresses"] ?? [], "FleetFacts.ingresses", 16, readFleetListener),
  };
}

export function readFleetListener(value: unknown): FleetListener {
  const fields = record(value, "FleetListener");
  return {
    id: text(fields["id"], "FleetListener.id", 64),
    addresses: list(fields["addresses"], "FleetListener.addresses", 16, (item) =>
      text(item, "FleetListener.addresses", 300),
    ),
  };
}

export function readRestartAnswer(value: unknown): RestartAnswer {
  const fields = record(value, "RestartAnswer");
  return {
    agentBootId: clipped(fields["agentBootId"], "RestartAnswer.agentBootId", 4000),
    release: clipped(fields["release"], "RestartAnswer.release", 64),
  };
}

export function readRestartRequest(value: unknown): RestartRequest {
  const fields = record(value, "RestartRequest");
  return {
    agentBootId: clipped(fields["agentBootId"], "RestartRequest.agentBootId", 4000),
  };
}

export function readDesiredMachine(value: unknown): DesiredMachine {
  const fields = record(value, "DesiredMachine");
  return {
    generation: whole(fields["generation"], "DesiredMachine.generation", 1, 9007199254740991),
    state: oneOf(fields["state"], "DesiredMachine.state", DESIRED_MACHINE_STATE),
    spec: fields["spec"] === undefined || fields["spec"] === null ? null : readMachineSpec(fields["spec"]),
    ...(fields["keepsMemory"] === undefined ? undefined : { keepsMemory: fields["keepsMemory"] === true }),
    ...(fields["keepsCommands"] === undefined ? undefined : { keepsCommands: fields["keepsCommands"] === true }),
    ...(fields["isFenced"] === undefined ? undefined : { isFenced: fields["isFenced"] === true }),
    ...(fields["hasDisk"] === undefined ? undefined : { hasDisk: fields["hasDisk"] === true }),
  };
}

export function readEndedRun(value: unknown): EndedRun {
  const fields = record(value, "EndedRun");
  return {
    bootId: clipped(fields["bootId"], "EndedRun.bootId", 4000),
    startedAt: measure(fields["startedAt"], "EndedRun.startedAt", 8640000000000000),
    endedAt: measure(fields["endedAt"], "EndedRun.endedAt", 8640000000000000),
    cause: oneOfOr(fields["cause"], ENDED_RUN_CAUSE, "unknown"),
    egressBytes: count(fields["egressBytes"] ?? 0, "EndedRun.egressBytes", 9007199254740991),
  };
}

export function readGuestHook(value: unknown): GuestHook {
  const fields = record(value, "GuestHook");
  return {
    command: bytesAtMost(
      list(fields["command"], "GuestHook.command", 100000, (item) => text(item, "GuestHook.command", 131072)),
      "GuestHook.command",
      1048576,
    ),
    timeoutMs: whole(fields["timeoutMs"], "GuestHook.timeoutMs", 1, 60000),
  };
}

export function readGuestHooks(value: unknown): GuestHooks {
  const fields = record(value, "GuestHooks");
  return {
    ...(fields["fork"] === undefined ? undefined : { fork: readGuestHook(fields["fork"]) }),
    ...(fields["resume"] === undefined ? undefined : { resume: readGuestHook(fields["resume"]) }),
    ...(fields["suspend"] === undefined ? undefined : { suspend: readGuestHook(fields["suspend"]) }),
    ...(fields["stop"] === undefined ? undefined : { stop: readGuestHook(fields["stop"]) }),
  };
}

export function readMachineHealth(value: unknown): MachineHealth {
  const fields = record(value, "MachineHealth");
  return {
    status: oneOfOr(fields["status"], MACHINE_HEALTH_STATUS, "unknown"),
    since:
      fields["since"] === undefined || fields["since"] === null
        ? null
        : measure(fields["since"], "MachineHealth.since", 8640000000000000),
    reason:
      fields["reason"] === undefined || fields["reason"] === null
        ? null
        : clipped(fields["reason"], "MachineHealth.reason", 2000),
  };
}

export function readMachineHealthCheck(value: unknown): MachineHealthCheck {
  const fields = record(value, "MachineHealthCheck");
  return {
    type: oneOf(fields["type"], "MachineHealthCheck.type", MACHINE_HEALTH_CHECK_TYPE),
    path:
      fields["path"] === undefined || fields["path"] === null
        ? null
        : matching(fields["path"], "MachineHealthCheck.path", MACHINE_HEALTH_CHECK_PATH_PATTERN),
    port:
      fields["port"] === undefined || fields["port"] === null
        ? null
        : whole(fields["port"], "MachineHealthCheck.port", 1, 65535),
    command:
      fields["command"] === undefined || fields["command"] === null
        ? null
        : bytesAtMost(
            list(fields["command"], "MachineHealthCheck.command", 100000, (item) =>
              text(item, "MachineHealthCheck.command", 131072),
            ),
            "MachineHealthCheck.command",
            1048576,
          ),
    intervalMs: whole(fields["intervalMs"] ?? 10000, "MachineHealthCheck.intervalMs", 100, 86400000),
    timeoutMs: whole(fields["timeoutMs"] ?? 5000, "MachineHealthCheck.timeoutMs", 100, 3600000),
    retries: whole(fields["retries"] ?? 3, "MachineHealthCheck.retries", 1, 1000),
    host:
      fields["host"] === undefined || fields["host"] === null
        ? null
        : matching(fields["host"], "MachineHealthCheck.host", MACHINE_HEALTH_CHECK_HOST_PATTERN),
  };
}

function partMachineSpecImage(value: unknown) {
  const fields = record(value, "MachineSpec.image");
  return {
    reference: matching(fields["reference"], "MachineSpec.image.reference", MACHINE_SPEC_IMAGE_REFERENCE_PATTERN),
    arch:
      fields["arch"] === undefined || fields["arch"] === null
        ? null
        : oneOf(fields["arch"], "MachineSpec.image.arch", MACHINE_SPEC_IMAGE_ARCH),
    ...(fields["isPackage"] === undefined ? undefined : { isPackage: fields["isPackage"] === true }),
  };
}

function partMachineSpecNetwork(value: unknown) {
  const fields = record(value, "MachineSpec.network");
  return {
    mode: oneOf(fields["mode"], "MachineSpec.network.mode", MACHINE_SPEC_NETWORK_MODE),
    ...(fields["cidrs"] === undefined
      ? undefined
      : {
          cidrs: list(fields["cidrs"], "MachineSpec.network.cidrs", 256, (item) =>
            text(item, "MachineSpec.network.cidrs", 253),
          ),
        }),
    ...(fields["hosts"] === undefined
      ? undefined
      : {
          hosts: list(fields["hosts"], "MachineSpec.network.hosts", 256, (item) =>
            text(item, "MachineSpec.network.hosts", 253),
          ),
        }),
  };
}

function partMachineSpecPorts(value: unknown) {
  const fields = record(value, "MachineSpec.ports");
  return {
    port: whole(fields["port"], "MachineSpec.ports.port", 1, 65535),
  };
}

function partMachineSpecPoint(value: unknown) {
  const fields = record(value, "MachineSpec.point");
  return {
    pointId: matching(fields["pointId"], "MachineSpec.point.pointId", MACHINE_SPEC_POINT_POINT_ID_PATTERN),
    hasMemory: fields["hasMemory"] === true,
  };
}

export function readMachineSpec(value: unknown): MachineSpec {
  const fields = record(value, "MachineSpec");
  return {
    machineId: matching(fields["machineId"], "MachineSpec.machineId", MACHINE_SPEC_MACHINE_ID_PATTERN),
    tenantId: text(fields["tenantId"], "MachineSpec.tenantId", 128),
    hostname: matching(fields["hostname"], "MachineSpec.hostname", MACHINE_SPEC_HOSTNAME_PATTERN),
    image: partMachineSpecImage(fields["image"]),
    cpus: whole(fields["cpus"], "MachineSpec.cpus", 1, 64),
    memoryMb: whole(fields["memoryMb"], "MachineSpec.memoryMb", 128, 1048576),
    diskGb: whole(fields["diskGb"], "MachineSpec.diskGb", 1, 16384),
    network: partMachineSpecNetwork(fields["network"]),
    env: environment(fields["env"] ?? {}, "MachineSpec.env", 524288),
    workdir:
      fields["workdir"] === undefined || fields["workdir"] === null
        ? null
        : textFrom(fields["workdir"], "MachineSpec.workdir", "/", 4096),
    command:
      fields["command"] === undefined || fields["command"] === null
        ? null
        : bytesAtMost(
            list(fields["command"], "MachineSpec.command", 100000, (item) => text(item, "MachineSpec.command", 131072)),
            "MachineSpec.command",
            1048576,
          ),
    ports: list(fields["ports"], "MachineSpec.ports", 16, partMachineSpecPorts),
    restart: oneOf(fields["restart"] ?? "always", "MachineSpec.restart", MACHINE_SPEC_RESTART),
    disruption: oneOf(fields["disruption"] ?? "restart", "MachineSpec.disruption", MACHINE_SPEC_DISRUPTION),
    health:
      fields["health"] === undefined || fields["health"] === null ? null : readMachineHealthCheck(fields["health"]),
    ...(fields["point"] === undefined ? undefined : { point: partMachineSpecPoint(fields["point"]) }),
    ...(fields["hooks"] === undefined ? undefined : { hooks: readGuestHooks(fields["hooks"]) }),
  };
}

function partObservedMachineHostPorts(value: unknown) {
  const fields = record(value, "ObservedMachine.hostPorts");
  return {
    port: count(fields["port"], "ObservedMachine.hostPorts.port", 65535),
    hostPort: count(fields["hostPort"], "ObservedMachine.hostPorts.hostPort", 65535),
  };
}

function partObservedMachineTimings(value: unknown) {
  const fields = record(value, "ObservedMachine.timings");
  return {
    ...(fields["vm"] === undefined
      ? undefined
      : { vm: oneOf(fields["vm"], "ObservedMachine.timings.vm", OBSERVED_MACHINE_TIMINGS_VM) }),
    ...(fields["imageMs"] === undefined
      ? undefined
      : { imageMs: measure(fields["imageMs"], "ObservedMachine.timings.imageMs", 2000000000) }),
    ...(fields["diskMs"] === undefined
      ? undefined
      : { diskMs: measure(fields["diskMs"], "ObservedMachine.timings.diskMs", 2000000000) }),
    ...(fields["bootMs"] === undefined
      ? undefined
      : { bootMs: measure(fields["bootMs"], "ObservedMachine.timings.bootMs", 2000000000) }),
    ...(fields["configureMs"] === undefined
      ? undefined
      : { configureMs: measure(fields["configureMs"], "ObservedMachine.timings.configureMs", 2000000000) }),
    ...(fields["totalMs"] === undefined
      ? undefined
      : { totalMs: measure(fields["totalMs"], "ObservedMachine.timings.totalMs", 2000000000) }),
  };
}

function partObservedMachineSuspendRefusal(value: unknown) {
  const fields = record(value, "ObservedMachine.suspendRefusal");
  return {
    code: oneOfOr(fields["code"], OBSERVED_MACHINE_SUSPEND_REFUSAL_CODE, "conflict"),
    reason: clipped(fields["reason"], "ObservedMachine.suspendRefusal.reason", 2000),
  };
}

export function readObservedMachine(value: unknown): ObservedMachine {
  const fields = record(value, "ObservedMachine");
  return {
    machineId: matching(fields["machineId"], "ObservedMachine.machineId", OBSERVED_MACHINE_MACHINE_ID_PATTERN),
    generation: count(fields["generation"], "ObservedMachine.generation", 2000000000),
    state: oneOf(fields["state"], "ObservedMachine.state", OBSERVED_MACHINE_STATE),
    bootId:
      fields["bootId"] === undefined || fields["bootId"] === null
        ? null
        : clipped(fields["bootId"], "ObservedMachine.bootId", 4000),
    runningSince:
      fields["runningSince"] === undefined || fields["runningSince"] === null
        ? null
        : measure(fields["runningSince"], "ObservedMachine.runningSince", 8640000000000000),
    readySince:
      fields["readySince"] === undefined || fields["readySince"] === null
        ? null
        : measure(fields["readySince"], "ObservedMachine.readySince", 8640000000000000),
    reason:
      fields["reason"] === undefined || fields["reason"] === null
        ? null
        : clipped(fields["reason"], "ObservedMachine.reason", 2000),
    reasonCode: oneOfOr(fields["reasonCode"], OBSERVED_MACHINE_REASON_CODE, null),
    hasPoweredOff: fields["hasPoweredOff"] === true,
    lastRun: fields["lastRun"] === undefined || fields["lastRun"] === null ? null : readEndedRun(fields["lastRun"]),
    progress:
      fields["progress"] === undefined || fields["progress"] === null
        ? null
        : clipped(fields["progress"], "ObservedMachine.progress", 2000),
    pauseReason:
      fields["pauseReason"] === undefined || fields["pauseReason"] === null
        ? null
        : clipped(fields["pauseReason"], "ObservedMachine.pauseReason", 2000),
    unresponsiveSince:
      fields["unresponsiveSince"] === undefined || fields["unresponsiveSince"] === null
        ? null
        : measure(fields["unresponsiveSince"], "ObservedMachine.unresponsiveSince", 8640000000000000),
    hostPorts: clippedList(fields["hostPorts"] ?? [], "ObservedMachine.hostPorts", 64, partObservedMachineHostPorts),
    timings:
      fields["timings"] === undefined || fields["timings"] === null
        ? null
        : partObservedMachineTimings(fields["timings"]),
    suspendedAt:
      fields["suspendedAt"] === undefined || fields["suspendedAt"] === null
        ? null
        : measure(fields["suspendedAt"], "ObservedMachine.suspendedAt", 8640000000000000),
    isResumed: fields["isResumed"] === true,
    suspendRefusal:
      fields["suspendRefusal"] === undefined || fields["suspendRefusal"] === null
        ? null
        : partObservedMachineSuspendRefusal(fields["suspendRefusal"]),
    isFenced: fields["isFenced"] === true,
    health: fields["health"] === undefined || fields["health"] === null ? null : readMachineHealth(fields["health"]),
  };
}

export function readReplaceAnswer(value: unknown): ReplaceAnswer {
  const fields = record(value, "ReplaceAnswer");
  return {
    outcome: oneOfOr(fields["outcome"], REPLACE_ANSWER_OUTCOME, "refused"),
    pauseMs:
      fields["pauseMs"] === undefined || fields["pauseMs"] === null
        ? null
        : measure(fields["pauseMs"], "ReplaceAnswer.pauseMs", 2000000000),
    reason:
      fields["reason"] === undefined || fields["reason"] === null
        ? null
        : clipped(fields["reason"], "ReplaceAnswer.reason", 2000),
  };
}

export function readReplaceRequest(value: unknown): ReplaceRequest {
  const fields = record(value, "ReplaceRequest");
  return {
    how: oneOf(fields["how"], "ReplaceRequest.how", REPLACE_REQUEST_HOW),
  };
}

export function readSuspendAllRequest(value: unknown): SuspendAllRequest {
  const fields = record(value, "SuspendAllRequest");
  return {
    deadlineMs: whole(fields["deadlineMs"], "SuspendAllRequest.deadlineMs", 1000, 86400000),
  };
}

export function readRun(value: unknown): Run {
  const fields = record(value, "Run");
  return {
    sequence: count(fields["sequence"], "Run.sequence", 9007199254740991),
    bootId: clipped(fields["bootId"], "Run.bootId", 128),
    machineId: matching(fields["machineId"], "Run.machineId", RUN_MACHINE_ID_PATTERN),
    startedAt: measure(fields["startedAt"], "Run.startedAt", 8640000000000000),
    endedAt:
      fields["endedAt"] === undefined || fields["endedAt"] === null
        ? null
        : measure(fields["endedAt"], "Run.endedAt", 8640000000000000),
    cause:
      fields["cause"] === undefined || fields["cause"] === null ? null : oneOfOr(fields["cause"], RUN_CAUSE, "unknown"),
    egressBytes: count(fields["egressBytes"] ?? 0, "Run.egressBytes", 9007199254740991),
  };
}

export function readRunReport(value: unknown): RunReport {
  const fields = record(value, "RunReport");
  return {
    sequence: count(fields["sequence"], "RunReport.sequence", 9007199254740991),
    isComplete: fields["isComplete"] === true,
    runs: list(fields["runs"], "RunReport.runs", 10000, readRun),
  };
}

export function readAbsentMachine(value: unknown): AbsentMachine {
  const fields = record(value, "AbsentMachine");
  return {
    machineId: matching(fields["machineId"], "AbsentMachine.machineId", ABSENT_MACHINE_MACHINE_ID_PATTERN),
    generation: whole(fields["generation"], "AbsentMachine.generation", 1, 9007199254740991),
  };
}

function partHeartbeatLastError(value: unknown) {
  const fields = record(value, "Heartbeat.lastError");
  return {
    at: measure(fields["at"], "Heartbeat.lastError.at", 8640000000000000),
    message: clipped(fields["message"], "Heartbeat.lastError.message", 500),
  };
}

export function readHeartbeat(value: unknown): Heartbeat {
  const fields = record(value, "Heartbeat");
  return {
    bootId: clipped(fields["bootId"], "Heartbeat.bootId", 4000),
    link: readLinkVersions(fields["link"] ?? { version: 1, lowest: 1 }),
    isComplete: fields["isComplete"] === true,
    resources: readNodeResources(fields["resources"]),
    machines: list(fields["machines"], "Heartbeat.machines", 50000, readObservedMachine),
    events: list(fields["events"], "Heartbeat.events", 1000, readNodeEvent),
    runs: fields["runs"] === undefined || fields["runs"] === null ? null : readRunReport(fields["runs"]),
    images: fields["images"] === undefined || fields["images"] === null ? null : readImageReport(fields["images"]),
    sentAt:
      fields["sentAt"] === undefined || fields["sentAt"] === null
        ? null
        : measure(fields["sentAt"], "Heartbeat.sentAt", 8640000000000000),
    release:
      fields["release"] === undefined || fields["release"] === null
        ? null
        : clipped(fields["release"], "Heartbeat.release", 64),
    lastError:
      fields["lastError"] === undefined || fields["lastError"] === null
        ? null
        : partHeartbeatLastError(fields["lastError"]),
    canFence: fields["canFence"] === true,
    outdatedVmms:
      fields["outdatedVmms"] === undefined || fields["outdatedVmms"] === null
        ? null
        : clippedList(fields["outdatedVmms"] ?? [], "Heartbeat.outdatedVmms", 1000, (item) =>
            clipped(item, "Heartbeat.outdatedVmms", 4000),
          ),
    incomingMoves: clippedList(fields["incomingMoves"] ?? [], "Heartbeat.incomingMoves", 1000, (item) =>
      clipped(item, "Heartbeat.incomingMoves", 4000),
    ),
  };
}

export function readHeartbeatAnswer(value: unknown): HeartbeatAnswer {
  const fields = record(value, "HeartbeatAnswer");
  return {
    link: readLinkVersions(fields["link"] ?? { version: 1, lowest: 1 }),
    fleet: fields["fleet"] === undefined || fields["fleet"] === null ? null : readFleetFacts(fields["fleet"]),
    acknowledgedRuns:
      fields["acknowledgedRuns"] === undefined || fields["acknowledgedRuns"] === null
        ? null
        : count(fields["acknowledgedRuns"], "HeartbeatAnswer.acknowledgedRuns", 9007199254740991),
    absentMachines: clippedList(
      fields["absentMachines"] ?? [],
      "HeartbeatAnswer.absentMachines",
      10000,
      readAbsentMachine,
    ),
    endedMoves: clippedList(fields["endedMoves"] ?? [], "HeartbeatAnswer.endedMoves", 1000, (item) =>
      clipped(item, "HeartbeatAnswer.endedMoves", 4000),
    ),
    closedToGuests: clippedList(fields["closedToGuests"] ?? [], "HeartbeatAnswer.closedToGuests", 1000, (item) =>
      clipped(item, "HeartbeatAnswer.closedToGuests", 300),
    ),
  };
}

export function readImageReport(value: unknown): ImageReport {
  const fields = record(value, "ImageReport");
  return {
    sequence: count(fields["sequence"], "ImageReport.sequence", 9007199254740991),
    isComplete: fields["isComplete"] === true,
    held: list(fields["held"], "ImageReport.held", 20000, readReportedImage),
    removed: list(fields["removed"], "ImageReport.removed", 20000, readReportedImage),
  };
}

export function readLinkVersions(value: unknown): LinkVersions {
  const fields = record(value, "LinkVersions");
  return {
    version: whole(fields["version"], "LinkVersions.version", 1, 999999),
    lowest: whole(fields["lowest"], "LinkVersions.lowest", 1, 999999),
  };
}

export function readNodeEvent(value: unknown): NodeEvent {
  const fields = record(value, "NodeEvent");
  return {
    sequence: count(fields["sequence"], "NodeEvent.sequence", 9007199254740991),
    machineId: clipped(fields["machineId"], "NodeEvent.machineId", 4000),
    type: clipped(fields["type"], "NodeEvent.type", 100),
    data: facts(fields["data"] ?? {}, "NodeEvent.data", 32),
    at: measure(fields["at"], "NodeEvent.at", 8640000000000000),
  };
}

function partNodePressureCpu(value: unknown) {
  const fields = record(value, "NodePressure.cpu");
  return {
    some: measure(fields["some"], "NodePressure.cpu.some", 100),
    full: measure(fields["full"], "NodePressure.cpu.full", 100),
  };
}

function partNodePressureMemory(value: unknown) {
  const fields = record(value, "NodePressure.memory");
  return {
    some: measure(fields["some"], "NodePressure.memory.some", 100),
    full: measure(fields["full"], "NodePressure.memory.full", 100),
  };
}

function partNodePressureIo(value: unknown) {
  const fields = record(value, "NodePressure.io");
  return {
    some: measure(fields["some"], "NodePressure.io.some", 100),
    full: measure(fields["full"], "NodePressure.io.full", 100),
  };
}

export function readNodePressure(value: unknown): NodePressure {
  const fields = record(value, "NodePressure");
  return {
    cpu: partNodePressureCpu(fields["cpu"]),
    memory: partNodePressureMemory(fields["memory"]),
    io: partNodePressureIo(fields["io"]),
  };
}

export function readNodeResources(value: unknown): NodeResources {
  const fields = record(value, "NodeResources");
  return {
    totalCpus: count(fields["totalCpus"], "NodeResources.totalCpus", 2000000000),
    totalMemoryMb: count(fields["totalMemoryMb"], "NodeResources.totalMemoryMb", 2000000000),
    availableMemoryMb: count(fields["availableMemoryMb"], "NodeResources.availableMemoryMb", 2000000000),
    totalDiskGb: count(fields["totalDiskGb"], "NodeResources.totalDiskGb", 2000000000),
    availableDiskGb: count(fields["availableDiskGb"], "NodeResources.availableDiskGb", 2000000000),
    usedCpus: measure(fields["usedCpus"], "NodeResources.usedCpus", 2000000000),
    usedMemoryMb: count(fields["usedMemoryMb"], "NodeResources.usedMemoryMb", 2000000000),
    usedDiskGb: count(fields["usedDiskGb"], "NodeResources.usedDiskGb", 2000000000),
    pressure:
      fields["pressure"] === undefined || fields["pressure"] === null ? null : readNodePressure(fields["pressure"]),
  };
}

export function readRegistrationAnswer(value: unknown): RegistrationAnswer {
  const fields = record(value, "RegistrationAnswer");
  return {
    credential:
      fields["credential"] === undefined || fields["credential"] === null
        ? null
        : text(fields["credential"], "RegistrationAnswer.credential", 1000),
    fleet: fields["fleet"] === undefined || fields["fleet"] === null ? null : readFleetFacts(fields["fleet"]),
    link: readLinkVersions(fields["link"] ?? { version: 1, lowest: 1 }),
  };
}

export function readReportedImage(value: unknown): ReportedImage {
  const fields = record(value, "ReportedImage");
  return {
    reference: clipped(fields["reference"], "ReportedImage.reference", 600),
    architecture: clipped(fields["architecture"], "ReportedImage.architecture", 32),
    tenantId:
      fields["tenantId"] === undefined || fields["tenantId"] === null
        ? null
        : clipped(fields["tenantId"], "ReportedImage.tenantId", 128),
  };
}

export function readImageProgress(value: unknown): ImageProgress {
  const fields = record(value, "ImageProgress");
  switch (oneOf(fields["kind"], "ImageProgress.kind", IMAGE_PROGRESS_KIND)) {
    case "progress":
      return {
        kind: "progress",
        message: clipped(fields["message"], "ImageProgress.message", 1000),
        doneBytes: count(fields["doneBytes"], "ImageProgress.doneBytes", 9007199254740991),
        totalBytes: count(fields["totalBytes"], "ImageProgress.totalBytes", 9007199254740991),
      };
    case "done":
      return {
        kind: "done",
        image: readNodeImage(fields["image"]),
      };
    case "failed":
      return {
        kind: "failed",
        message: clipped(fields["message"], "ImageProgress.message", 1000),
        reasonCode: oneOfOr(fields["reasonCode"], IMAGE_PROGRESS_REASON_CODE, null),
      };
  }
}

export function readNodeImage(value: unknown): NodeImage {
  const fields = record(value, "NodeImage");
  return {
    reference: clipped(fields["reference"], "NodeImage.reference", 4000),
    digest: clipped(fields["digest"], "NodeImage.digest", 4000),
    sizeBytes: count(fields["sizeBytes"], "NodeImage.sizeBytes", 9007199254740991),
    architecture: clipped(fields["architecture"], "NodeImage.architecture", 4000),
    os: clipped(fields["os"], "NodeImage.os", 4000),
    layerCount: count(fields["layerCount"], "NodeImage.layerCount", 2000000000),
    exposedPort:
      fields["exposedPort"] === undefined || fields["exposedPort"] === null
        ? null
        : whole(fields["exposedPort"], "NodeImage.exposedPort", 1, 65535),
    lastUsedAt:
      fields["lastUsedAt"] === undefined || fields["lastUsedAt"] === null
        ? null
        : measure(fields["lastUsedAt"], "NodeImage.lastUsedAt", 8640000000000000),
    tenantId:
      fields["tenantId"] === undefined || fields["tenantId"] === null
        ? null
        : clipped(fields["tenantId"], "NodeImage.tenantId", 4000),
  };
}

export function readNodeImages(value: unknown): NodeImage[] {
  return list(value, "NodeImages", 100000, readNodeImage);
}

export function readPullRequest(value: unknown): PullRequest {
  const fields = record(value, "PullRequest");
  return {
    reference: matching(fields["reference"], "PullRequest.reference", PULL_REQUEST_REFERENCE_PATTERN),
    arch:
      fields["arch"] === undefined || fields["arch"] === null
        ? null
        : oneOf(fields["arch"], "PullRequest.arch", PULL_REQUEST_ARCH),
    tenantId:
      fields["tenantId"] === undefined || fields["tenantId"] === null
        ? null
        : text(fields["tenantId"], "PullRequest.tenantId", 128),
    ...(fields["isPackage"] === undefined ? undefined : { isPackage: fields["isPackage"] === true }),
  };
}

export function readConnectionStart(value: unknown): ConnectionStart {
  const fields = record(value, "ConnectionStart");
  return {
    port: whole(fields["port"], "ConnectionStart.port", 1, 65535),
    resumeKey: matching(fields["resumeKey"], "ConnectionStart.resumeKey", CONNECTION_START_RESUME_KEY_PATTERN),
  };
}

export function readExecExit(value: unknown): ExecExit {
  const fields = record(value, "ExecExit");
  return {
    exitCode: whole(fields["exitCode"], "ExecExit.exitCode", -2147483648, 4294967295),
    durationMs: count(fields["durationMs"], "ExecExit.durationMs", 9007199254740991),
    hasTimedOut: fields["hasTimedOut"] === true,
    pid:
      fields["pid"] === undefined || fields["pid"] === null
        ? null
        : count(fields["pid"], "ExecExit.pid", 9007199254740991),
  };
}

export function readExecResume(value: unknown): ExecResume {
  const fields = record(value, "ExecResume");
  return {
    resumeKey: matching(fields["resumeKey"], "ExecResume.resumeKey", EXEC_RESUME_RESUME_KEY_PATTERN),
    stdoutBytes: whole(fields["stdoutBytes"], "ExecResume.stdoutBytes", 0, 9007199254740991),
    stderrBytes: whole(fields["stderrBytes"], "ExecResume.stderrBytes", 0, 9007199254740991),
    elapsedMs: whole(fields["elapsedMs"], "ExecResume.elapsedMs", 0, 9007199254740991),
    timeoutMs:
      fields["timeoutMs"] === undefined || fields["timeoutMs"] === null
        ? null
        : whole(fields["timeoutMs"], "ExecResume.timeoutMs", 1, 86400000),
    hasStdin: fields["hasStdin"] === true,
    terminal:
      fields["terminal"] === undefined || fields["terminal"] === null ? null : readTerminalSize(fields["terminal"]),
  };
}

export function readExecResumed(value: unknown): ExecResumed {
  const fields = record(value, "ExecResumed");
  return {
    stdinBytes: whole(fields["stdinBytes"], "ExecResumed.stdinBytes", 0, 9007199254740991),
    ...(fields["stdoutBytes"] === undefined
      ? undefined
      : { stdoutBytes: whole(fields["stdoutBytes"], "ExecResumed.stdoutBytes", 0, 9007199254740991) }),
    ...(fields["isKept"] === undefined ? undefined : { isKept: fields["isKept"] === true }),
  };
}

export function readExecStart(value: unknown): ExecStart {
  const fields = record(value, "ExecStart");
  return {
    argv: bytesAtMost(
      list(fields["argv"], "ExecStart.argv", 100000, (item) => text(item, "ExecStart.argv", 131072)),
      "ExecStart.argv",
      1048576,
    ),
    cwd: fields["cwd"] === undefined || fields["cwd"] === null ? null : text(fields["cwd"], "ExecStart.cwd", 4096),
    env: environment(fields["env"] ?? {}, "ExecStart.env", 524288),
    user: fields["user"] === undefined || fields["user"] === null ? null : text(fields["user"], "ExecStart.user", 256),
    timeoutMs:
      fields["timeoutMs"] === undefined || fields["timeoutMs"] === null
        ? null
        : whole(fields["timeoutMs"], "ExecStart.timeoutMs", 1, 86400000),
    isBackground: fields["isBackground"] === true,
    hasStdin: fields["hasStdin"] === true,
    terminal:
      fields["terminal"] === undefined || fields["terminal"] === null ? null : readTerminalSize(fields["terminal"]),
    ...(fields["resumeKey"] === undefined
      ? undefined
      : { resumeKey: matching(fields["resumeKey"], "ExecStart.resumeKey", EXEC_START_RESUME_KEY_PATTERN) }),
  };
}

export function readSignalRequest(value: unknown): SignalRequest {
  const fields = record(value, "SignalRequest");
  return {
    signal: whole(fields["signal"], "SignalRequest.signal", 1, 64),
  };
}

export function readTaken(value: unknown): Taken {
  const fields = record(value, "Taken");
  return {
    stdoutBytes: whole(fields["stdoutBytes"], "Taken.stdoutBytes", 0, 9007199254740991),
  };
}

export function readTerminalSize(value: unknown): TerminalSize {
  const fields = record(value, "TerminalSize");
  return {
    cols: whole(fields["cols"], "TerminalSize.cols", 1, 10000),
    rows: whole(fields["rows"], "TerminalSize.rows", 1, 10000),
  };
}

export function readTerminalWatch(value: unknown): TerminalWatch {
  const fields = record(value, "TerminalWatch");
  return {
    resumeKey: matching(fields["resumeKey"], "TerminalWatch.resumeKey", TERMINAL_WATCH_RESUME_KEY_PATTERN),
    stdoutBytes: whole(fields["stdoutBytes"], "TerminalWatch.stdoutBytes", 0, 9007199254740991),
  };
}

export function readFileFacts(value: unknown): FileFacts {
  const fields = record(value, "FileFacts");
  return {
    mode: matching(fields["mode"], "FileFacts.mode", FILE_FACTS_MODE_PATTERN),
    size: count(fields["size"], "FileFacts.size", 9007199254740991),
    modifiedAt: measure(fields["modifiedAt"], "FileFacts.modifiedAt", 8640000000000000),
  };
}

export function readFileListLine(value: unknown): FileListLine {
  const fields = record(value, "FileListLine");
  switch (oneOf(fields["kind"], "FileListLine.kind", FILE_LIST_LINE_KIND)) {
    case "entry":
      return {
        kind: "entry",
        entry: readListedFile(fields["entry"]),
      };
    case "done":
      return {
        kind: "done",
      };
    case "failed":
      return {
        kind: "failed",
        error: readLinkError(fields["error"]),
      };
  }
}

export function readFilePath(value: unknown): FilePath {
  const fields = record(value, "FilePath");
  return {
    path: textFrom(fields["path"], "FilePath.path", "/", 4096),
  };
}

export function readFileRead(value: unknown): FileRead {
  const fields = record(value, "FileRead");
  return {
    path: textFrom(fields["path"], "FileRead.path", "/", 4096),
    offset: whole(fields["offset"], "FileRead.offset", 0, 9007199254740991),
    length:
      fields["length"] === undefined || fields["length"] === null
        ? null
        : whole(fields["length"], "FileRead.length", 0, 9007199254740991),
    isFromEnd: fields["isFromEnd"] === true,
  };
}

export function readFileWrite(value: unknown): FileWrite {
  const fields = record(value, "FileWrite");
  return {
    path: textFrom(fields["path"], "FileWrite.path", "/", 4096),
    sha256:
      fields["sha256"] === undefined || fields["sha256"] === null
        ? null
        : matching(fields["sha256"], "FileWrite.sha256", FILE_WRITE_SHA256_PATTERN),
  };
}

export function readFileWritten(value: unknown): FileWritten {
  const fields = record(value, "FileWritten");
  switch (oneOf(fields["kind"], "FileWritten.kind", FILE_WRITTEN_KIND)) {
    case "written":
      return {
        kind: "written",
        sha256: matching(fields["sha256"], "FileWritten.sha256", FILE_WRITTEN_SHA256_PATTERN),
      };
    case "failed":
      return {
        kind: "failed",
        error: readLinkError(fields["error"]),
      };
  }
}

export function readListedFile(value: unknown): ListedFile {
  const fields = record(value, "ListedFile");
  return {
    name: clipped(fields["name"], "ListedFile.name", 4096),
    kind: oneOf(fields["kind"], "ListedFile.kind", LISTED_FILE_KIND),
    mode: matching(fields["mode"], "ListedFile.mode", LISTED_FILE_MODE_PATTERN),
    size: count(fields["size"], "ListedFile.size", 9007199254740991),
    modifiedAt: measure(fields["modifiedAt"], "ListedFile.modifiedAt", 8640000000000000),
  };
}

export function readAwaitedFile(value: unknown): AwaitedFile {
  const fields = record(value, "AwaitedFile");
  return {
    name: matching(fields["name"], "AwaitedFile.name", AWAITED_FILE_NAME_PATTERN),
    from: whole(fields["from"], "AwaitedFile.from", 0, 9007199254740991),
  };
}

export function readIncomingMachine(value: unknown): IncomingMachine {
  const fields = record(value, "IncomingMachine");
  return {
    generation: whole(fields["generation"], "IncomingMachine.generation", 1, 9007199254740991),
    image: readMovedImage(fields["image"]),
    root: readMovedRoot(fields["root"]),
    files: list(fields["files"], "IncomingMachine.files", 16, readMovedFile),
    memory: fields["memory"] === undefined || fields["memory"] === null ? null : readMovedMemory(fields["memory"]),
    memoryBase:
      fields["memoryBase"] === undefined || fields["memoryBase"] === null ? null : readMovedRoot(fields["memoryBase"]),
  };
}

export function readIncomingState(value: unknown): IncomingState {
  const fields = record(value, "IncomingState");
  return {
    isMachine: fields["isMachine"] === true,
    awaited: list(fields["awaited"], "IncomingState.awaited", 19, readAwaitedFile),
    takesEarly: fields["takesEarly"] === true,
    takesLive: fields["takesLive"] === true,
    point:
      fields["point"] === undefined || fields["point"] === null
        ? null
        : matching(fields["point"], "IncomingState.point", INCOMING_STATE_POINT_PATTERN),
  };
}

export function readMoveProgress(value: unknown): MoveProgress {
  const fields = record(value, "MoveProgress");
  switch (oneOf(fields["kind"], "MoveProgress.kind", MOVE_PROGRESS_KIND)) {
    case "progress":
      return {
        kind: "progress",
        bytes: whole(fields["bytes"], "MoveProgress.bytes", 0, 9007199254740991),
      };
    case "done":
      return {
        kind: "done",
        bytes: whole(fields["bytes"], "MoveProgress.bytes", 0, 9007199254740991),
        sha256: clipped(fields["sha256"], "MoveProgress.sha256", 64),
        pausedAt:
          fields["pausedAt"] === undefined || fields["pausedAt"] === null
            ? null
            : measure(fields["pausedAt"], "MoveProgress.pausedAt", 8640000000000000),
      };
    case "failed":
      return {
        kind: "failed",
        error: readLinkError(fields["error"]),
      };
  }
}

export function readMovedFile(value: unknown): MovedFile {
  const fields = record(value, "MovedFile");
  return {
    name: matching(fields["name"], "MovedFile.name", MOVED_FILE_NAME_PATTERN),
    bytes: whole(fields["bytes"], "MovedFile.bytes", 0, 9007199254740991),
  };
}

export function readMovedImage(value: unknown): MovedImage {
  const fields = record(value, "MovedImage");
  return {
    digest: matching(fields["digest"], "MovedImage.digest", MOVED_IMAGE_DIGEST_PATTERN),
    source: text(fields["source"], "MovedImage.source", 600),
    architecture: text(fields["architecture"], "MovedImage.architecture", 32),
    os: text(fields["os"], "MovedImage.os", 32),
    layerCount: whole(fields["layerCount"], "MovedImage.layerCount", 0, 10000),
    env: bytesAtMost(
      list(fields["env"], "MovedImage.env", 100000, (item) => text(item, "MovedImage.env", 131072)),
      "MovedImage.env",
      2097152,
    ),
    workdir: text(fields["workdir"], "MovedImage.workdir", 4096),
    user: text(fields["user"], "MovedImage.user", 1000),
    entrypoint: bytesAtMost(
      list(fields["entrypoint"], "MovedImage.entrypoint", 100000, (item) =>
        text(item, "MovedImage.entrypoint", 131072),
      ),
      "MovedImage.entrypoint",
      1048576,
    ),
    command: bytesAtMost(
      list(fields["command"], "MovedImage.command", 100000, (item) => text(item, "MovedImage.command", 131072)),
      "MovedImage.command",
      1048576,
    ),
  };
}

export function readMovedMemory(value: unknown): MovedMemory {
  const fields = record(value, "MovedMemory");
  return {
    memoryId: matching(fields["memoryId"], "MovedMemory.memoryId", MOVED_MEMORY_MEMORY_ID_PATTERN),
    format: text(fields["format"], "MovedMemory.format", 64),
    suspendedAt: measure(fields["suspendedAt"], "MovedMemory.suspendedAt", 8640000000000000),
    guestBootId: text(fields["guestBootId"], "MovedMemory.guestBootId", 128),
    workload:
      fields["workload"] === undefined || fields["workload"] === null
        ? null
        : bytesAtMost(
            list(fields["workload"], "MovedMemory.workload", 100000, (item) =>
              text(item, "MovedMemory.workload", 131072),
            ),
            "MovedMemory.workload",
            1048576,
          ),
    ...(fields["keepsCommands"] === undefined ? undefined : { keepsCommands: fields["keepsCommands"] === true }),
    bytes: whole(fields["bytes"], "MovedMemory.bytes", 0, 9007199254740991),
    base: fields["base"] === undefined || fields["base"] === null ? null : readMovedRoot(fields["base"]),
  };
}

export function readMovedRoot(value: unknown): MovedRoot {
  const fields = record(value, "MovedRoot");
  return {
    bytes: whole(fields["bytes"], "MovedRoot.bytes", 0, 9007199254740991),
    size: whole(fields["size"], "MovedRoot.size", 0, 9007199254740991),
    sha256:
      fields["sha256"] === undefined || fields["sha256"] === null
        ? null
        : matching(fields["sha256"], "MovedRoot.sha256", MOVED_ROOT_SHA256_PATTERN),
  };
}

export function readOutgoingMachine(value: unknown): OutgoingMachine {
  const fields = record(value, "OutgoingMachine");
  return {
    isStopped: fields["isStopped"] === true,
    image: fields["image"] === undefined || fields["image"] === null ? null : readMovedImage(fields["image"]),
    root: fields["root"] === undefined || fields["root"] === null ? null : readMovedRoot(fields["root"]),
    files: list(fields["files"], "OutgoingMachine.files", 16, readMovedFile),
    memory: fields["memory"] === undefined || fields["memory"] === null ? null : readMovedMemory(fields["memory"]),
    memoryFormat:
      fields["memoryFormat"] === undefined || fields["memoryFormat"] === null
        ? null
        : text(fields["memoryFormat"], "OutgoingMachine.memoryFormat", 64),
    canSendEarly: fields["canSendEarly"] === true,
    canMoveLive: fields["canMoveLive"] === true,
    memoryBase:
      fields["memoryBase"] === undefined || fields["memoryBase"] === null ? null : readMovedRoot(fields["memoryBase"]),
    points: clippedList(fields["points"] ?? [], "OutgoingMachine.points", 8, (item) =>
      matching(item, "OutgoingMachine.points", OUTGOING_MACHINE_POINTS_PATTERN),
    ),
  };
}

export function readMadePoint(value: unknown): MadePoint {
  const fields = record(value, "MadePoint");
  return {
    pointId: matching(fields["pointId"], "MadePoint.pointId", MADE_POINT_POINT_ID_PATTERN),
    machineId: matching(fields["machineId"], "MadePoint.machineId", MADE_POINT_MACHINE_ID_PATTERN),
    madeAt: measure(fields["madeAt"], "MadePoint.madeAt", 8640000000000000),
    bytes: measure(fields["bytes"], "MadePoint.bytes", 9007199254740991),
    memoryBytes: measure(fields["memoryBytes"], "MadePoint.memoryBytes", 9007199254740991),
    pausedMs: measure(fields["pausedMs"], "MadePoint.pausedMs", 2000000000),
    format:
      fields["format"] === undefined || fields["format"] === null
        ? null
        : clipped(fields["format"], "MadePoint.format", 128),
    imageDigest: clipped(fields["imageDigest"], "MadePoint.imageDigest", 128),
    layers: clippedList(fields["layers"] ?? [], "MadePoint.layers", 64, (item) =>
      matching(item, "MadePoint.layers", MADE_POINT_LAYERS_PATTERN),
    ),
  };
}

export function readMemoryUse(value: unknown): MemoryUse {
  const fields = record(value, "MemoryUse");
  return {
    ownBytes: measure(fields["ownBytes"], "MemoryUse.ownBytes", 9007199254740991),
    sharedBytes: measure(fields["sharedBytes"], "MemoryUse.sharedBytes", 9007199254740991),
  };
}

export function readOutgoingPoint(value: unknown): OutgoingPoint {
  const fields = record(value, "OutgoingPoint");
  return {
    facts: readPointFacts(fields["facts"]),
    image: readMovedImage(fields["image"]),
    root: readMovedRoot(fields["root"]),
    files: list(fields["files"], "OutgoingPoint.files", 1, readMovedFile),
    memory: fields["memory"] === undefined || fields["memory"] === null ? null : readMovedMemory(fields["memory"]),
  };
}

function partPointFactsSize(value: unknown) {
  const fields = record(value, "PointFacts.size");
  return {
    cpus: whole(fields["cpus"], "PointFacts.size.cpus", 1, 10000),
    memoryMb: whole(fields["memoryMb"], "PointFacts.size.memoryMb", 1, 9007199254740991),
  };
}

export function readPointFacts(value: unknown): PointFacts {
  const fields = record(value, "PointFacts");
  return {
    machineId: matching(fields["machineId"], "PointFacts.machineId", POINT_FACTS_MACHINE_ID_PATTERN),
    madeAt: measure(fields["madeAt"], "PointFacts.madeAt", 8640000000000000),
    pausedMs: measure(fields["pausedMs"], "PointFacts.pausedMs", 2000000000),
    diskGb: whole(fields["diskGb"], "PointFacts.diskGb", 1, 9007199254740991),
    size: fields["size"] === undefined || fields["size"] === null ? null : partPointFactsSize(fields["size"]),
  };
}

export function readPointRequest(value: unknown): PointRequest {
  const fields = record(value, "PointRequest");
  return {
    machineId: matching(fields["machineId"], "PointRequest.machineId", POINT_REQUEST_MACHINE_ID_PATTERN),
    hasMemory: fields["hasMemory"] === true,
    ...(fields["isKept"] === undefined ? undefined : { isKept: fields["isKept"] === true }),
  };
}

export function readExportLine(value: unknown): ExportLine {
  const fields = record(value, "ExportLine");
  switch (oneOf(fields["kind"], "ExportLine.kind", EXPORT_LINE_KIND)) {
    case "progress":
      return {
        kind: "progress",
        message: clipped(fields["message"], "ExportLine.message", 1000),
        doneBytes: count(fields["doneBytes"], "ExportLine.doneBytes", 9007199254740991),
        totalBytes: count(fields["totalBytes"], "ExportLine.totalBytes", 9007199254740991),
      };
    case "done":
      return {
        kind: "done",
        digest: matching(fields["digest"], "ExportLine.digest", EXPORT_LINE_DIGEST_PATTERN),
        sizeBytes: count(fields["sizeBytes"], "ExportLine.sizeBytes", 9007199254740991),
        sentBytes: count(fields["sentBytes"], "ExportLine.sentBytes", 9007199254740991),
        layers: count(fields["layers"], "ExportLine.layers", 512),
        sentLayers: count(fields["sentLayers"], "ExportLine.sentLayers", 512),
        platforms: clippedList(fields["platforms"] ?? [], "ExportLine.platforms", 8, (item) =>
          clipped(item, "ExportLine.platforms", 64),
        ),
      };
    case "failed":
      return {
        kind: "failed",
        message: clipped(fields["message"], "ExportLine.message", 1000),
        code: oneOfOr(fields["code"], EXPORT_LINE_CODE, null),
      };
  }
}

function partExportRequestImage(value: unknown) {
  const fields = record(value, "ExportRequest.image");
  return {
    reference: matching(fields["reference"], "ExportRequest.image.reference", EXPORT_REQUEST_IMAGE_REFERENCE_PATTERN),
    digest:
      fields["digest"] === undefined || fields["digest"] === null
        ? null
        : matching(fields["digest"], "ExportRequest.image.digest", EXPORT_REQUEST_IMAGE_DIGEST_PATTERN),
  };
}

export function readExportRequest(value: unknown): ExportRequest {
  const fields = record(value, "ExportRequest");
  return {
    operationId: text(fields["operationId"], "ExportRequest.operationId", 128),
    repository: matching(fields["repository"], "ExportRequest.repository", EXPORT_REQUEST_REPOSITORY_PATTERN),
    tag:
      fields["tag"] === undefined || fields["tag"] === null
        ? null
        : matching(fields["tag"], "ExportRequest.tag", EXPORT_REQUEST_TAG_PATTERN),
    image: fields["image"] === undefined || fields["image"] === null ? null : partExportRequestImage(fields["image"]),
    configuration: readPackageConfiguration(fields["configuration"]),
    ports: list(fields["ports"], "ExportRequest.ports", 16, (item) => whole(item, "ExportRequest.ports", 1, 65535)),
    labels: environment(fields["labels"] ?? {}, "ExportRequest.labels", 65536),
    architecture:
      fields["architecture"] === undefined || fields["architecture"] === null
        ? null
        : oneOf(fields["architecture"], "ExportRequest.architecture", EXPORT_REQUEST_ARCHITECTURE),
  };
}

export function readPackageConfiguration(value: unknown): PackageConfiguration {
  const fields = record(value, "PackageConfiguration");
  return {
    entrypoint:
      fields["entrypoint"] === undefined || fields["entrypoint"] === null
        ? null
        : bytesAtMost(
            list(fields["entrypoint"], "PackageConfiguration.entrypoint", 100000, (item) =>
              text(item, "PackageConfiguration.entrypoint", 131072),
            ),
            "PackageConfiguration.entrypoint",
            1048576,
          ),
    command:
      fields["command"] === undefined || fields["command"] === null
        ? null
        : bytesAtMost(
            list(fields["command"], "PackageConfiguration.command", 100000, (item) =>
              text(item, "PackageConfiguration.command", 131072),
            ),
            "PackageConfiguration.command",
            1048576,
          ),
    env:
      fields["env"] === undefined || fields["env"] === null
        ? null
        : environment(fields["env"] ?? {}, "PackageConfiguration.env", 524288),
    workdir:
      fields["workdir"] === undefined || fields["workdir"] === null
        ? null
        : textFrom(fields["workdir"], "PackageConfiguration.workdir", "/", 4096),
    user:
      fields["user"] === undefined || fields["user"] === null
        ? null
        : text(fields["user"], "PackageConfiguration.user", 4096),
  };
}

export function readLinkError(value: unknown): LinkError {
  const fields = record(value, "LinkError");
  return {
    code: oneOfOr(fields["code"], LINK_ERROR_CODE, "internal"),
    message: clipped(fields["message"], "LinkError.message", 500),
  };
}
