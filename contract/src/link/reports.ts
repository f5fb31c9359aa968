/**
 * What a node reports of itself: its resources, its machines and what happened to them.
 */
import { EVENTS_PER_REPORT_MAX } from "../runs.ts";
import { FleetFacts } from "./membership.ts";
import { ObservedMachine } from "./machines.ts";
import { RunReport } from "./runs.ts";
import {
  clipped,
  clippedList,
  count,
  facts,
  flag,
  instant,
  list,
  machineId,
  type Message,
  measure,
  nullable,
  text,
  Type,
  whole,
} from "./vocabulary.ts";

/** Bytes of a heartbeat. */
export const REPORT_BYTES_MAX = 8 * 1024 * 1024;
/** Bytes of one that is not complete. A node whose report is refused sends a complete one. */
export const CHANGES_BYTES_MAX = 1024 * 1024;
/** More than REPORT_BYTES_MAX holds. */
const MACHINES_MAX = 50_000;
const REPORTED_IMAGES_MAX = 20_000;
/** Others are removed by separate calls. */
export const ABSENT_MAX = 10_000;
const RELEASE_CHARACTERS_MAX = 64;
const ERROR_CHARACTERS_MAX = 500;
const OUTDATED_VMMS_MAX = 1_000;
/** Others are named when these are gone. */
export const INCOMING_MOVES_MAX = 1_000;
/** Places of the fleet that guests must not reach. */
export const CLOSED_MAX = 1_000;

/** Something that happened on a node and belongs on a machine's timeline. */
export const NodeEvent = Type.Object({
  /** Unique per incarnation of the agent and grows; the server ignores one it has already seen. */
  sequence: count(Number.MAX_SAFE_INTEGER),
  machineId: clipped(),
  /** A type of contract/src/event-types.ts, of a machine. The server drops one that it does not know. */
  type: clipped(100),
  /** As the type says. */
  data: facts(),
  at: instant(),
});
export type NodeEvent = Message<typeof NodeEvent>;

/** The versions of the link that a side works with; see version.ts. */
export const LinkVersions = Type.Object(
  { version: whole(1, 999_999), lowest: whole(1, 999_999) },
  { default: { version: 1, lowest: 1 } },
);
export type LinkVersions = Message<typeof LinkVersions>;

/** Percent of the last minute in which some, or all, of the active processes waited for a resource. */
const Waits = Type.Object({ some: measure(100), full: measure(100) });

/** Pressure on the host, as its kernel measures it (pressure stall information, avg60). */
export const NodePressure = Type.Object({ cpu: Waits, memory: Waits, io: Waits });
export type NodePressure = Message<typeof NodePressure>;

export const NodeResources = Type.Object({
  totalCpus: count(),
  totalMemoryMb: count(),
  availableMemoryMb: count(),
  totalDiskGb: count(),
  availableDiskGb: count(),
  /** Processors busy with machines, as a mean over the last seconds. */
  usedCpus: measure(),
  usedMemoryMb: count(),
  usedDiskGb: count(),
  /** null: the kernel does not measure it. */
  pressure: nullable(NodePressure),
});
export type NodeResources = Message<typeof NodeResources>;

/** An image that a node has, as far as placement needs it. */
export const ReportedImage = Type.Object({
  reference: clipped(600),
  architecture: clipped(32),
  /** The tenant that fetched it; null: the operator, or a local image. */
  tenantId: nullable(clipped(128)),
});
export type ReportedImage = Message<typeof ReportedImage>;

/** The images of a node, or what has changed of them since the last accepted report. */
export const ImageReport = Type.Object({
  /** Counts the reports of one incarnation of the agent; the server ignores one that comes late. */
  sequence: count(Number.MAX_SAFE_INTEGER),
  /** Whether `held` is every image of the node. */
  isComplete: flag(),
  held: list(ReportedImage, REPORTED_IMAGES_MAX),
  removed: list(ReportedImage, REPORTED_IMAGES_MAX),
});
export type ImageReport = Message<typeof ImageReport>;

/**
 * A node's report. `machines` holds every machine when `isComplete`, else those that changed since the last
 * accepted report. Sent every HEARTBEAT_PERIOD_MS, and at once when something changed.
 */
export const Heartbeat = Type.Object({
  /** One incarnation of the node agent. */
  bootId: clipped(),
  link: LinkVersions,
  isComplete: flag(),
  resources: NodeResources,
  machines: list(ObservedMachine, MACHINES_MAX),
  events: list(NodeEvent, EVENTS_PER_REPORT_MAX),
  /** null: they are as last reported. */
  runs: nullable(RunReport),
  /** null: they are as last reported. */
  images: nullable(ImageReport),
  /** By the node's clock. null: it is not compared with the server's. */
  sentAt: nullable(instant()),
  /** The version of the agent. null: it does not say. */
  release: nullable(clipped(RELEASE_CHARACTERS_MAX)),
  /** The last error that the agent has logged. null: none since it started. */
  lastError: nullable(Type.Object({ at: instant(), message: clipped(ERROR_CHARACTERS_MAX) })),
  /** Whether VMs of the node can be fenced. */
  canFence: flag(),
  /** Machines that run in a VMM of another program than the installed one. null: it does not say. */
  outdatedVmms: nullable(clippedList(clipped(), OUTDATED_VMMS_MAX)),
  /** Moves of which the node has, or may have, parts that are not a machine yet. */
  incomingMoves: clippedList(clipped(), INCOMING_MOVES_MAX),
});
export type Heartbeat = Message<typeof Heartbeat>;

/** What a node reads of the answer to its registration. */
export const RegistrationAnswer = Type.Object({
  /** null: it called with its credential. */
  credential: nullable(text(1_000)),
  /** null: it is a node of the server's host. */
  fleet: nullable(FleetFacts),
  link: LinkVersions,
});
export type RegistrationAnswer = Message<typeof RegistrationAnswer>;

/** A machine that the node is to remove, with the generation of that. */
export const AbsentMachine = Type.Object({ machineId: machineId(), generation: whole(1, Number.MAX_SAFE_INTEGER) });
export type AbsentMachine = Message<typeof AbsentMachine>;

/** What a node reads of the answer to a heartbeat. */
export const HeartbeatAnswer = Type.Object({
  link: LinkVersions,
  /** null: it is a node of the server's host. */
  fleet: nullable(FleetFacts),
  /** Runs up to this sequence need not be reported again. null: none were reported. */
  acknowledgedRuns: nullable(count(Number.MAX_SAFE_INTEGER)),
  /** Machines of the node to be removed. They end before the acknowledgement frees any fenced VM. */
  absentMachines: clippedList(AbsentMachine, ABSENT_MAX),
  /** Moves of the reported `incomingMoves` that have ended: the node removes what it has of them. */
  endedMoves: clippedList(clipped(), INCOMING_MOVES_MAX),
  /** Where servers and ingresses listen for nodes, and the database (`host:port`), closed to guests. */
  closedToGuests: clippedList(clipped(300), CLOSED_MAX),
});
export type HeartbeatAnswer = Message<typeof HeartbeatAnswer>;
