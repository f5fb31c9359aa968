/**
 * Messages of branch points: instants of machines on a node, from which it starts clones.
 *
 *     PUT    /v1/points/{point}   PointRequest → MadePoint; 404 no such machine, 409 `not_running`, `refused` or
 *                                 `interrupted` (an attempt was, and the point needs another id), 507 `no_space`
 *     DELETE /v1/points/{point}   200 {}, also of a point that the node does not have
 *     GET    /v1/machines/{id}/memory   → MemoryUse; 404, 409 not running
 *
 * A copy on another node, with another id: its files travel as those of a machine that moves (moves.ts).
 *     GET    /v1/points/{point}/outgoing                       → OutgoingPoint
 *     GET    /v1/points/{point}/outgoing/files/{file}          → the file's stream
 *     PUT    /v1/points/{point}/incoming/{move}                IncomingMachine → IncomingState
 *     POST   /v1/points/{point}/incoming/{move}/files/{file}   the stream → MoveProgress, one JSON value a line
 *     POST   /v1/points/{point}/incoming/{move}/commit         PointFacts → {}: the copy is a point
 *
 * Always:
 * - A point that exists is answered again, whatever the request says: its id names one instant.
 * - A machine from a point (`MachineSpec.point`) has what it needs of it when it has run once; the point may
 *   be deleted then.
 */
import { MovedFile, MovedImage, MovedMemory, MovedRoot } from "./moves.ts";
import {
  clipped,
  clippedList,
  instant,
  list,
  machineId,
  measure,
  type Message,
  nullable,
  pointId,
  Type,
  whole,
} from "./vocabulary.ts";

const LAYERS_MAX = 64;

/** The body of `PUT /v1/points/{point}`. */
export const PointRequest = Type.Object({
  machineId: machineId(),
  /** Whether its memory is kept, so that clones continue its programs. */
  hasMemory: Type.Boolean(),
  /** Machines are to boot from its disk too: with memory, what programs have written is on it as well. */
  isKept: Type.Optional(Type.Boolean()),
});
export type PointRequest = Message<typeof PointRequest>;

export const MadePoint = Type.Object({
  pointId: pointId(),
  machineId: machineId(),
  madeAt: instant(),
  /** What the files of the point take. */
  bytes: measure(Number.MAX_SAFE_INTEGER),
  memoryBytes: measure(Number.MAX_SAFE_INTEGER),
  /** How long the machine was paused; 0: it did not run. */
  pausedMs: measure(),
  /** What its memory depends on, as NodeFacts has it; null: it has none. */
  format: nullable(clipped(128)),
  imageDigest: clipped(128),
  /** The points of which it needs the disks as well, nearest first. */
  layers: clippedList(pointId(), LAYERS_MAX),
});
export type MadePoint = Message<typeof MadePoint>;

/** What a point is, besides its files. */
export const PointFacts = Type.Object({
  machineId: machineId(),
  madeAt: instant(),
  pausedMs: measure(),
  diskGb: whole(1, Number.MAX_SAFE_INTEGER),
  /** The size of the machine with the memory; null: only the disk was kept. */
  size: nullable(Type.Object({ cpus: whole(1, 10_000), memoryMb: whole(1, Number.MAX_SAFE_INTEGER) })),
});
export type PointFacts = Message<typeof PointFacts>;

/** What another node needs for a copy of a point: its disk without layers, and its memory. */
export const OutgoingPoint = Type.Object({
  facts: PointFacts,
  image: MovedImage,
  root: MovedRoot,
  files: list(MovedFile, 1),
  /** null: only the disk was kept. */
  memory: nullable(MovedMemory),
});
export type OutgoingPoint = Message<typeof OutgoingPoint>;

/** The memory of its host that a running machine's VMM takes. */
export const MemoryUse = Type.Object({
  /** What would be free if the machine ended. */
  ownBytes: measure(Number.MAX_SAFE_INTEGER),
  /** What it has of the memory that others use too: templates, programs. */
  sharedBytes: measure(Number.MAX_SAFE_INTEGER),
});
export type MemoryUse = Message<typeof MemoryUse>;
