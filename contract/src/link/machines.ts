/**
 * The desired state of a machine, and the state that a node observes.
 */
import { type ErrorCode, IMAGE_FAULTS } from "../errors.ts";
import {
  ARGUMENT_BYTES_MAX,
  CPUS_MAX,
  DISK_GB_MAX,
  ENV_BYTES_MAX,
  HEALTH_INTERVAL_MS_DEFAULT,
  HEALTH_RETRIES_DEFAULT,
  HEALTH_TIMEOUT_MS_DEFAULT,
  HOOK_TIMEOUT_MAX_SECONDS,
  MEMORY_MB_MAX,
  MEMORY_MB_MIN,
  PORTS_PER_MACHINE_MAX,
} from "../limits.ts";
import { DISRUPTIONS, RESTARTS, VM_ORIGINS } from "../machines.ts";
import { RUN_END_CAUSES } from "../runs.ts";
import { DESIRED_STATES, OBSERVED_STATES } from "./states.ts";
import {
  clipped,
  clippedList,
  count,
  environment,
  flag,
  instant,
  type Message,
  machineId,
  matching,
  measure,
  nullable,
  pointId,
  list,
  Type,
  text,
  whole,
  oneOf,
  oneOfOr,
} from "./vocabulary.ts";

/** The kernel's own limit of argv and environment together is 2 MiB. */
const ARGV_BYTES_MAX = 1024 * 1024;
/** What the server keeps of a text for people. */
const TEXT_CHARACTERS_MAX = 2_000;
export const PATH_CHARACTERS_MAX = 4096;

/** Characters of a reference; it never looks like an option of a program. */
export const imageReference = () => matching(/^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}$/);
export const imageArch = () => nullable(oneOf(["amd64", "arm64"]));
export const argv = () => list(text(ARGUMENT_BYTES_MAX), 100_000, { bytesMax: ARGV_BYTES_MAX });
export const absolutePath = () => Type.String({ maxLength: PATH_CHARACTERS_MAX, startsWith: "/" });

/** Refusals of the API for a machine that cannot be suspended. */
export const SUSPEND_REFUSAL_CODES = ["no_space", "conflict"] as const satisfies readonly ErrorCode[];
export type SuspendRefusalCode = (typeof SUSPEND_REFUSAL_CODES)[number];

export const HEALTH_CHECK_TYPES = ["http", "tcp", "exec"] as const;

/**
 * How a node checks whether a machine does its work; see `health` of ObservedMachine. `http`: a GET is
 * answered 2xx or 3xx. `tcp`: the port takes a connection. `exec`: the command exits with 0.
 */
export const MachineHealthCheck = Type.Object({
  type: oneOf(HEALTH_CHECK_TYPES),
  /** What `http` gets, with its query; null: `/`. */
  path: nullable(matching(/^\/[\x21-\x7e]{0,2047}$/)),
  /** The port of the guest; null only with `exec`. */
  port: nullable(whole(1, 65_535)),
  /** What `exec` runs; null otherwise. */
  command: nullable(argv()),
  /** From the end of a check to the beginning of the next. */
  intervalMs: whole(100, 24 * 3_600_000, { default: HEALTH_INTERVAL_MS_DEFAULT }),
  timeoutMs: whole(100, 3_600_000, { default: HEALTH_TIMEOUT_MS_DEFAULT }),
  /** This many failures in a row mean that it does not do its work. */
  retries: whole(1, 1_000, { default: HEALTH_RETRIES_DEFAULT }),
  /** The `Host` that `http` sends, such as `web.example.com`; null: `localhost`. */
  host: nullable(matching(/^[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?$/)),
});
export type MachineHealthCheck = Message<typeof MachineHealthCheck>;

/** A command that the guest runs at a moment of its machine; it is killed when its time is over. */
export const GuestHook = Type.Object({ command: argv(), timeoutMs: whole(1, HOOK_TIMEOUT_MAX_SECONDS * 1000) });
export type GuestHook = Message<typeof GuestHook>;

export const GuestHooks = Type.Object({
  fork: Type.Optional(GuestHook),
  resume: Type.Optional(GuestHook),
  suspend: Type.Optional(GuestHook),
  stop: Type.Optional(GuestHook),
});
export type GuestHooks = Message<typeof GuestHooks>;

/** Everything a node needs to run a machine. A change needs no more than a restart. */
export const MachineSpec = Type.Object({
  machineId: machineId(),
  tenantId: text(128),
  /** The guest's host name. */
  hostname: matching(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}$/),
  image: Type.Object({
    reference: imageReference(),
    arch: imageArch(),
    /** Whether the reference names a package, whose disk the machine's is made from. Absent: an image. */
    isPackage: Type.Optional(Type.Boolean()),
  }),
  cpus: whole(1, CPUS_MAX),
  memoryMb: whole(MEMORY_MB_MIN, MEMORY_MB_MAX),
  diskGb: whole(1, DISK_GB_MAX),
  network: Type.Object({
    mode: oneOf(["open", "blocked", "allowCidrs"]),
    cidrs: Type.Optional(list(text(253), 256)),
    hosts: Type.Optional(list(text(253), 256)),
  }),
  env: environment(ENV_BYTES_MAX),
  workdir: nullable(absolutePath()),
  command: nullable(argv()),
  ports: list(Type.Object({ port: whole(1, 65_535) }), PORTS_PER_MACHINE_MAX),
  /** Whether the node starts it again when it ends without being asked to. */
  restart: oneOf(RESTARTS, { default: "always" }),
  /** Whether it is suspended before its host goes down: with `migrate`. */
  disruption: oneOf(DISRUPTIONS, { default: "restart" }),
  /** null: it is not checked. */
  health: nullable(MachineHealthCheck),
  /**
   * The point of this node from which its disk is made at its first start, and with `hasMemory` its memory.
   * Absent: it is made from its image.
   */
  point: Type.Optional(Type.Object({ pointId: pointId(), hasMemory: Type.Boolean() })),
  /** Absent: it has none. */
  hooks: Type.Optional(GuestHooks),
});
export type MachineSpec = Message<typeof MachineSpec>;

/** The body of `PUT /v1/machines/{id}`. */
export const DesiredMachine = Type.Object({
  /** Grows with every change of the desired state. */
  generation: whole(1, Number.MAX_SAFE_INTEGER),
  state: oneOf(DESIRED_STATES),
  /** null only when `state` is `absent`. */
  spec: nullable(MachineSpec),
  /**
   * With `stopped`: a machine that runs is suspended, and a suspended one keeps its memory. Otherwise memory
   * is discarded.
   */
  keepsMemory: Type.Optional(Type.Boolean()),
  /**
   * With `keepsMemory`: the machine moves, so its commands wait in its memory for their callers (decision
   * 53).
   */
  keepsCommands: Type.Optional(Type.Boolean()),
  /**
   * Another machine may replace it while its node is silent, so its VM ends before (decision 63). Without it
   * a fence is lifted, for as long as the node has the machine.
   */
  isFenced: Type.Optional(Type.Boolean()),
  /**
   * The node had the machine's disk. One that does not have the machine makes no other disk: it answers that
   * the machine is absent.
   */
  hasDisk: Type.Optional(Type.Boolean()),
});
export type DesiredMachine = Message<typeof DesiredMachine>;

/** The body of `POST /v1/machines/{id}/vmm`. */
export const ReplaceRequest = Type.Object({
  /** `live`: while its guest runs. `restart`: it is shut down and boots. */
  how: oneOf(["live", "restart"]),
});
export type ReplaceRequest = Message<typeof ReplaceRequest>;

export const ReplaceAnswer = Type.Object({
  /**
   * `current`: it ran the installed program already. `ended`: it does not run. `refused`: it runs on as
   * before.
   */
  outcome: oneOfOr(["replaced", "current", "ended", "refused"], "refused"),
  /** How long its guest was paused; null: it was not. */
  pauseMs: nullable(measure()),
  /** Why it was refused, or ended in the middle. */
  reason: nullable(clipped(TEXT_CHARACTERS_MAX)),
});
export type ReplaceAnswer = Message<typeof ReplaceAnswer>;

/** The body of `POST /v1/suspended`: the host goes down. */
export const SuspendAllRequest = Type.Object({
  /** Until then, in milliseconds, machines are suspended or shut down. */
  deadlineMs: whole(1_000, 24 * 3_600_000),
});
export type SuspendAllRequest = Message<typeof SuspendAllRequest>;

/** A boot that ran and has ended. Epoch milliseconds of the node's clock. */
export const EndedRun = Type.Object({
  bootId: clipped(),
  startedAt: instant(),
  /** When its VM ended; if the end was not observed, when it was last known to run. */
  endedAt: instant(),
  /** `unknown`: a cause that this version does not know. */
  cause: oneOfOr(RUN_END_CAUSES, "unknown"),
  /** What the machine has sent in this run. */
  egressBytes: count(Number.MAX_SAFE_INTEGER, { default: 0 }),
});
export type EndedRun = Message<typeof EndedRun>;

/** Where the time of the last start went; milliseconds. */
const ReportedTimings = Type.Object({
  vm: Type.Optional(oneOf(VM_ORIGINS)),
  imageMs: Type.Optional(measure()),
  diskMs: Type.Optional(measure()),
  bootMs: Type.Optional(measure()),
  configureMs: Type.Optional(measure()),
  totalMs: Type.Optional(measure()),
});

/** `unknown`: no check of this boot has succeeded yet, and not enough have failed. */
export const HEALTH_STATUSES = ["unknown", "healthy", "unhealthy"] as const;

export const MachineHealth = Type.Object({
  status: oneOfOr(HEALTH_STATUSES, "unknown"),
  /** Epoch milliseconds since which the status is that; null while it is unknown. */
  since: nullable(instant()),
  /** How the last check failed; null: it is healthy, or no check has failed. */
  reason: nullable(clipped(TEXT_CHARACTERS_MAX)),
});
export type MachineHealth = Message<typeof MachineHealth>;

/** What a node observes of one machine. */
export const ObservedMachine = Type.Object({
  machineId: machineId(),
  /** The newest generation that the node has accepted; 0 when it knows none. */
  generation: count(),
  state: oneOf(OBSERVED_STATES),
  /** One incarnation of the machine; null while none runs. */
  bootId: nullable(clipped()),
  /** Epoch milliseconds of the boot's `running`; null otherwise. */
  runningSince: nullable(instant()),
  /**
   * Epoch milliseconds since which the running machine is ready; null otherwise. See MachineInfo's `ready`.
   */
  readySince: nullable(instant()),
  /** Why the state is `failed`, or how the last boot ended without being asked to. */
  reason: nullable(clipped(TEXT_CHARACTERS_MAX)),
  /** The code of `reason`, when the state is `failed` because of the machine's image. */
  reasonCode: oneOfOr(IMAGE_FAULTS, null),
  /** The guest ended by itself (`poweroff` inside it), so it is not restarted. */
  hasPoweredOff: flag(),
  /** The boot before `bootId` that ran; null while the node knows of none. */
  lastRun: nullable(EndedRun),
  /** Progress as a text while `preparing`, such as `pulling layer 2 of 3, 41 %`. */
  progress: nullable(clipped(TEXT_CHARACTERS_MAX)),
  /** Why the VMM has paused the guest of a running machine, which continues by itself; null: it has not. */
  pauseReason: nullable(clipped(TEXT_CHARACTERS_MAX)),
  /** Epoch milliseconds since which the agent of a running machine does not answer; null: it does. */
  unresponsiveSince: nullable(instant()),
  /** Published ports that are open on the node's loopback: none unless its operator wants them there. */
  hostPorts: clippedList(Type.Object({ port: count(65_535), hostPort: count(65_535) }), 64),
  timings: nullable(ReportedTimings),
  /** Epoch milliseconds at which the machine was suspended; null: it is not, or its memory is not kept. */
  suspendedAt: nullable(instant()),
  /** The guest of this boot was suspended before: its processes continue. */
  isResumed: flag(),
  /** Why the machine could not be suspended in this generation, and runs on; null otherwise. */
  suspendRefusal: nullable(
    Type.Object({ code: oneOfOr(SUSPEND_REFUSAL_CODES, "conflict"), reason: clipped(TEXT_CHARACTERS_MAX) }),
  ),
  /**
   * Its VM, if there is one, ends when no server acknowledges the node's heartbeats; none is started then.
   */
  isFenced: flag(),
  /** Whether the running machine does its work; null: it does not run, or is not checked. */
  health: nullable(MachineHealth),
});
export type ObservedMachine = Message<typeof ObservedMachine>;
