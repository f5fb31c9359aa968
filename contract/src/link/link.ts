/**
 * The link between server and node: what each may ask of the other, as HTTP with JSON bodies.
 *
 * Server → node (on a Unix socket; on another host over TLS, as fleet.ts says):
 *
 *     PUT    /v1/machines/{id}?waitMs=N       DesiredMachine → ObservedMachine; 409 with ObservedMachine when stale
 *     POST   /v1/machines/{id}/exec           frames both ways (frames.ts); 404, 409 not running
 *     POST   /v1/machines/{id}/files/{operation}   as files.ts says; 404, 409 not running
 *     POST   /v1/machines/{id}/dial/{port}    a TCP connection to a port of the guest, both ways, the request's bytes after
 *                                             DIAL_PREAMBLE; 404, 409 not running, 502 it takes none, 503 too
 *                                             many.; on …/connections as frames, it outlives the node's agent
 *     GET    /v1/machines/{id}/logs?…         as logs.ts says → LogMessage, one JSON value a line; 404
 *     …      /v1/machines/{id}/outgoing…, …/incoming/…   a move to another node, as moves.ts says; …/vmm: ReplaceRequest → ReplaceAnswer; …/memory, /v1/points: points.ts; …/export: packages.ts
 *     POST   /v1/agent                        RestartRequest → RestartAnswer, before the agent restarts in place; 409 it cannot
 *     GET    /v1/images?tenantId=…            → NodeImage[]: that tenant's and local ones; without it all
 *     PUT    /v1/images                       PullRequest → ImageProgress, one a line; POST /v1/images/import?reference=…: an archive → the same
 *     DELETE /v1/images?reference=…           204, whether or not the node had that local image
 *
 * Node → server: `POST /v1/nodes/register` and `POST /v1/nodes/{id}/heartbeat` with Heartbeat.
 *
 * The messages are schemas beside this file; generated.ts reads them on both sides, without packages. Always:
 * - One idempotent verb, `PUT` of a desired state with a generation, starts, stops and removes a machine.
 * - The node refuses a generation lower than one it has seen, and answers what it observes in any case.
 * - A report carries the generation that the node acted on, so late and repeated reports are harmless.
 */
export * from "./states.ts";
export type {
  DesiredMachine,
  EndedRun,
  GuestHook,
  MachineHealth,
  MachineHealthCheck,
  MachineSpec,
  ObservedMachine,
  SuspendRefusalCode,
} from "./machines.ts";
export type {
  AbsentMachine,
  Heartbeat,
  ImageReport,
  NodeEvent,
  NodePressure,
  NodeResources,
  ReportedImage,
} from "./reports.ts";
export type { Run, RunReport } from "./runs.ts";
export type { ImageProgress, NodeImage } from "./images.ts";
export type { ConnectionStart, ExecExit, ExecResume, ExecResumed, ExecStart } from "./streams.ts";
export type { LinkError } from "./errors.ts";

export type { LogLine, LogMark, LogMessage } from "./logs.ts";

/** What became of the machines of a node whose host goes down: their ids. */
export interface SuspendedMachines {
  /** With their memory. */
  readonly suspended: readonly string[];
  /** Without it; they boot when the host is back. */
  readonly stopped: readonly string[];
  /** Still running at the deadline. They end with the host, as at a loss of power. */
  readonly running: readonly string[];
}

/** The Unix socket in the server's data directory, on which it listens for the node of its host. */
export const NODE_SOCKET_NAME = "nodes.sock";

export const HEARTBEAT_PERIOD_MS = 5_000;
/** A node that was silent for this long is `unreachable`. */
export const HEARTBEAT_LOST_MS = 30_000;
/**
 * A fenced VM has ended this long after its node sent the last heartbeat that a server acknowledged (decision
 * 63). Less than HEARTBEAT_LOST_MS by what clocks of servers may differ, and by the time in which a killed
 * VMM ends.
 */
export const FENCE_MS = 21_000;

/** What an agent says of itself when it registers. */
export interface NodeFacts {
  readonly nodeId: string;
  readonly driver: string;
  readonly accelerator: string;
  readonly acceleratorReason: string;
  readonly runtime: string;
  readonly arch: string;
  /** What the memory of its VMs depends on: a node with the same can load it. null: it keeps none. */
  readonly memoryFormat: string | null;
}

/**
 * Where the body of a dial begins; not for the guest. Clients hold the head of a request back until its body
 * begins, and a guest may have the first word.
 */
export const DIAL_PREAMBLE = new Uint8Array([0]);
