/**
 * The link between server and node: what each may ask of the other, as HTTP with JSON bodies.
 *
 * Server → node (the node agent listens on a Unix socket that only its own user may open; a TCP address with mutual
 * authentication serves fleets):
 *
 *     GET    /v1/machines                     → NodeMachines
 *     GET    /v1/machines/{id}                → ObservedMachine, 404
 *     PUT    /v1/machines/{id}?waitMs=N       DesiredMachine → ObservedMachine; 409 with ObservedMachine when stale
 *     POST   /v1/machines/{id}/exec           link-stream frames both ways (link-stream.ts); 404, 409 not running
 *     POST   /v1/machines/{id}/dial/{port}    a TCP connection to a port of the guest, both ways, the request's bytes after
 *                                             DIAL_PREAMBLE; 404, 409 not running, 502 it takes none, 503 too many
 *     GET    /v1/machines/{id}/logs?tail=N&after=P&follow=1   LogMessage, one JSON value a line; 404
 *     GET    /v1/images?tenantId=…            → NodeImage[]: that tenant's and local ones; without it all
 *     PUT    /v1/images                       {reference, arch, tenantId} → progress lines of JSON, the last one an ImageResult
 *     POST   /v1/images/import?reference=…    an archive as body → the same
 *     DELETE /v1/images?reference=…           → 204, 404, 409 in use
 *     GET    /v1/facts                        → NodeFacts
 *
 * Node → server: `POST /v1/nodes/register` and `POST /v1/nodes/{id}/heartbeat` (contract/src/nodes.ts) with Heartbeat.
 *
 * Always: one verb, `PUT` of a desired state with a generation, starts, stops and removes a machine; it is idempotent.
 * The node refuses a generation lower than one it has seen, and answers what it observes in any case. What the node
 * reports carries the generation it acted on, so late and repeated reports are harmless.
 */
import type { ImageFault } from "./errors.ts";
import type { EventLevel, MachineNetwork, Restart, StartTimings } from "./machines.ts";

/** What the server wants of a machine on a node. `absent` removes the machine and its disk for good. */
export const DESIRED_STATES = ["running", "stopped", "absent"] as const;
export type DesiredState = (typeof DESIRED_STATES)[number];

/**
 * What a node sees of a machine.
 * `absent`: no trace. `stopped`: disk or nothing yet, no VMM. `preparing`: image or disk is being made.
 * `booting`: a VMM runs, its agent has not answered. `running`: the agent has answered and is configured.
 * `stopping`: being shut down. `failed`: the last attempt to run it ended; `reason` says why.
 */
export const OBSERVED_STATES = ["absent", "stopped", "preparing", "booting", "running", "stopping", "failed"] as const;
export type ObservedState = (typeof OBSERVED_STATES)[number];

/** States in which nothing moves until something is asked. */
export const SETTLED_STATES = ["absent", "stopped", "running", "failed"] as const satisfies readonly ObservedState[];

/** Everything a node needs to run a machine. It never changes in a way that needs more than a restart. */
export interface MachineSpec {
  readonly machineId: string;
  readonly tenantId: string;
  /** The guest's host name. */
  readonly hostname: string;
  readonly image: { readonly reference: string; readonly arch: string | null };
  readonly cpus: number;
  readonly memoryMb: number;
  readonly diskGb: number;
  readonly network: MachineNetwork;
  readonly env: Readonly<Record<string, string>>;
  readonly workdir: string | null;
  readonly command: readonly string[] | null;
  readonly ports: readonly { readonly port: number }[];
  /** Whether it is started again when it ends without being asked. */
  readonly restart: Restart;
}

export interface DesiredMachine {
  /** Grows with every change of what is wanted. */
  readonly generation: number;
  readonly state: DesiredState;
  /** Absent only when `state` is `absent`. */
  readonly spec: MachineSpec | null;
}

/** A boot that ran and has ended. Epoch milliseconds of the node's clock. */
export interface EndedRun {
  readonly bootId: string;
  readonly startedAt: number;
  /** When its VM ended; of one that ended unseen, when it was last known to run. */
  readonly endedAt: number;
}

export interface ObservedMachine {
  readonly machineId: string;
  /** The generation that the node has taken up; 0 when it knows none. */
  readonly generation: number;
  readonly state: ObservedState;
  /** One incarnation of the machine; null while none runs. */
  readonly bootId: string | null;
  /** Epoch milliseconds of the boot's `running`; null otherwise. */
  readonly runningSince: number | null;
  /** Epoch milliseconds since which the running machine is ready; null otherwise. See MachineInfo's `ready`. */
  readonly readySince: number | null;
  /** Why the state is `failed`, or how the last boot ended when nobody asked for it. */
  readonly reason: string | null;
  /** What `reason` says, for programs, when it is `failed` for its image's sake. Absent: none, or an old node. */
  readonly reasonCode?: ImageFault | null;
  /** The guest ended by itself (`poweroff` inside it), so it is not to be started again. */
  readonly hasPoweredOff: boolean;
  /** The boot before `bootId` that ran; null while the node knows of none. */
  readonly lastRun: EndedRun | null;
  /** Progress in words while `preparing`, such as `pulling layer 2 of 3, 41 %`. */
  readonly progress: string | null;
  /** Published ports that are open on the node's loopback: none unless its operator wants them there. */
  readonly hostPorts: readonly { readonly port: number; readonly hostPort: number }[];
  readonly timings: StartTimings | null;
}

/** A line of a machine's log. */
export interface LogLine {
  /** Epoch milliseconds at which the node heard it. */
  readonly at: number;
  /** `node`: the node's own remark, such as how the workload ended. */
  readonly source: "workload" | "node";
  /** Without its line break; what was no text is U+FFFD. */
  readonly text: string;
}

/** `next` stands behind some lines: `after=<next>` goes on from there, nothing lost and nothing twice. */
export type LogMessage = LogLine | { readonly next: string };

/** Something that happened on a node and belongs on a machine's timeline. */
export interface NodeEvent {
  /** Unique per node and grows; the server ignores one it has already seen. */
  readonly sequence: number;
  readonly machineId: string;
  readonly level: EventLevel;
  readonly message: string;
  /** Epoch milliseconds. */
  readonly at: number;
}

export interface NodeResources {
  readonly totalCpus: number;
  readonly totalMemoryMb: number;
  readonly availableMemoryMb: number;
  readonly totalDiskGb: number;
  readonly availableDiskGb: number;
  /** Processors busy with machines, as a mean over the last seconds. */
  readonly usedCpus: number;
  readonly usedMemoryMb: number;
  readonly usedDiskGb: number;
}

/**
 * A node's report. `machines` holds everything when `isComplete`, else what changed since the last accepted report.
 * Sent every 5 s, and at once when something changed.
 */
export interface Heartbeat {
  readonly bootId: string;
  readonly isComplete: boolean;
  readonly resources: NodeResources;
  readonly machines: readonly ObservedMachine[];
  readonly events: readonly NodeEvent[];
}

/** In the server's data directory: the Unix socket on which it listens for the node of its host. */
export const NODE_SOCKET_NAME = "nodes.sock";

export const HEARTBEAT_PERIOD_MS = 5_000;
/** A node that was silent for this long is `unreachable`. */
export const HEARTBEAT_LOST_MS = 20_000;

export interface NodeMachines {
  readonly machines: readonly ObservedMachine[];
}

export interface NodeImage {
  readonly reference: string;
  readonly digest: string;
  readonly sizeBytes: number;
  readonly architecture: string;
  readonly os: string;
  readonly layerCount: number;
  readonly lastUsedAt: number | null;
  /** Who fetched it under this reference; null: the operator, or a local image, which is everybody's. Old nodes: absent. */
  readonly tenantId?: string | null;
}

/** A line of the answer to PUT /v1/images. */
export type ImageProgress =
  | { readonly kind: "progress"; readonly message: string; readonly doneBytes: number; readonly totalBytes: number }
  | { readonly kind: "done"; readonly image: NodeImage }
  | { readonly kind: "failed"; readonly message: string; readonly reasonCode?: ImageFault | null };

export interface NodeFacts {
  readonly nodeId: string;
  readonly driver: string;
  readonly accelerator: string;
  readonly acceleratorReason: string;
  readonly runtime: string;
  readonly arch: string;
}

/** The first frame of an exec on the link. Sizes and names were checked by the server; the node checks them again. */
export interface ExecStart {
  readonly argv: readonly string[];
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string>>;
  readonly user: string | null;
  /** null: no limit. */
  readonly timeoutMs: number | null;
  /** Answer with the pid as soon as the command runs, and let it live on. */
  readonly isBackground: boolean;
  readonly hasStdin: boolean;
  readonly terminal: { readonly cols: number; readonly rows: number } | null;
  /** In place of a command: argv is empty then. The channel's streams are as GUEST-PROTOCOL.md says of files. */
  readonly file?: FileRequest;
}

export const FILE_OPERATIONS = ["read", "write", "stat", "list", "remove"] as const;

/** What is to be done with one path in a machine. */
export interface FileRequest {
  readonly operation: (typeof FILE_OPERATIONS)[number];
  /** Absolute. */
  readonly path: string;
  /** Of read: the first byte, counted from the end with `isFromEnd`. */
  readonly offset: number;
  /** Of read: at most so many bytes; null: to the end. */
  readonly length: number | null;
  readonly isFromEnd: boolean;
}

/** The last frame of an exec that ran. */
export interface ExecExit {
  readonly exitCode: number;
  /** Epoch-independent: measured by the node from the guest's start to the guest's exit. */
  readonly durationMs: number;
  readonly hasTimedOut: boolean;
  /** With `isBackground`. */
  readonly pid: number | null;
}

/** `busy`: as many commands run in the machine as it can run at once. */
export interface ExecFailure {
  readonly code: "not_running" | "guest_unreachable" | "busy" | "invalid";
  readonly message: string;
}

/**
 * Where the body of a dial begins; not for the guest. Clients hold the head of a request back until its body begins, and
 * a guest may have the first word.
 */
export const DIAL_PREAMBLE = new Uint8Array([0]);

/** Why a connection to a port was not made. */
export interface DialRefusal {
  readonly code: "not_running" | "refused" | "busy" | "invalid";
  readonly message: string;
}
