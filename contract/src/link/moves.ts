/**
 * Messages of a move of a machine between two nodes. The server relays every byte: nodes do not connect.
 *
 * Source:
 *     GET    /v1/machines/{id}/outgoing                        → OutgoingMachine; `?content=1` adds the root's hash
 *     GET    /v1/machines/{id}/outgoing/{part}                 → the part's stream; 409 if the machine is in another state
 *     POST   /v1/machines/{id}/outgoing/rest                   the same, and pauses the machine
 *     DELETE /v1/machines/{id}/outgoing                        forgets all points
 *
 * Target, where `{move}` is the id of the operation:
 *     PUT    /v1/machines/{id}/incoming/{move}                 IncomingMachine → IncomingState; 409 `older_copy`, 507
 *     POST   /v1/machines/{id}/incoming/{move}/{part}          the stream → MoveProgress, one JSON value a line
 *     POST   /v1/machines/{id}/incoming/{move}/commit          makes the copy a stopped machine → ObservedMachine
 *     DELETE /v1/machines/{id}/incoming/{move}                 removes what has arrived, unless it is a machine already
 *
 * `{part}` (moved-parts.ts) is `files/{file}`, `rounds/disk`, `rounds/memory` or `rest`, and `{file}` is
 * `disk`, `root`, `log-<number>`, `memory` or `memory-base`. A stream of blocks is a sequence of records:
 * offset (8 bytes), length (4), data. Holes are left out. The last record has the file's size as offset,
 * BLOCKS_END (blocks.ts) as length and then the content's hash. Numbers are big-endian.
 *
 * Always:
 * - The hash is that of the content, not of the allocation. The target compares before a file gets its name.
 * - Every request may be repeated. An interrupted stream continues at the byte that IncomingState names.
 * - Memory is sent only to a node with the same `memoryFormat`. A commit with `?memory=0` leaves it out.
 */
import { ARGUMENT_BYTES_MAX, ENV_BYTES_MAX } from "../limits.ts";
import { LinkError } from "./errors.ts";
import { PATH_CHARACTERS_MAX, argv } from "./machines.ts";
import {
  clipped,
  clippedList,
  flag,
  instant,
  list,
  matching,
  type Message,
  nullable,
  Type,
  text,
  whole,
} from "./vocabulary.ts";

/** Schema of an offset or a number of bytes in a file. */
const bytes = () => whole(0, Number.MAX_SAFE_INTEGER);
const sha256 = () => matching(/^[0-9a-f]{64}$/);
/**
 * The id of a point: a moment of a running machine's disk, since which the source knows what was written to
 * it. `rounds/disk?point=P` sends the disk while its machine runs, and P is known from then on. With
 * `?since=Q` only what changed since Q is sent, blocks of zeros too, and the hash is that of these blocks;
 * `files/disk?since=Q` sends the same of a stopped machine. A point that is not known is answered with 409
 * `not_stopped`.
 */
const point = () => matching(/^[0-9a-f]{32}$/);
/*
 * `rounds/memory?point=P` is the memory of a machine that runs, for which the target starts a VM.
 * `rest?point=P&disk=Q&generation=N` has the source pause the machine: what has changed in its memory since P
 * and on its disk since the point Q, and its devices. Their streams are those of
 * node/src/memory/move-stream.ts. After `rest` the machine is one of the target, and paused on both nodes. It
 * runs again only where a request with a generation above N says `running`; `stopped` with N saves its memory
 * on the source instead.
 */
const FILES_MAX = 16;
const POINTS_MAX = 8;

/** What a node must know of the image of a machine's disk, also if it never had the image. */
export const MovedImage = Type.Object({
  digest: matching(/^sha256:[0-9a-f]{64}$/),
  source: text(600),
  architecture: text(32),
  os: text(32),
  layerCount: whole(0, 10_000),
  env: list(text(ARGUMENT_BYTES_MAX), 100_000, { bytesMax: ENV_BYTES_MAX * 4 }),
  workdir: text(PATH_CHARACTERS_MAX),
  user: text(1_000),
  entrypoint: argv(),
  command: argv(),
});
export type MovedImage = Message<typeof MovedImage>;

/** A file of a machine. */
export const MovedFile = Type.Object({
  name: matching(/^(disk|log-[0-9]{1,15})$/),
  /** Allocated on the source's disk. */
  bytes: bytes(),
});
export type MovedFile = Message<typeof MovedFile>;

/** The file that the disk is based on. A disk is valid only on a file with exactly this content. */
export const MovedRoot = Type.Object({
  /** Allocated on the source's disk. */
  bytes: bytes(),
  size: bytes(),
  /** null: not requested. */
  sha256: nullable(sha256()),
});
export type MovedRoot = Message<typeof MovedRoot>;

/** The kept memory of a suspended machine, and what its new node must know to load it. */
export const MovedMemory = Type.Object({
  memoryId: matching(/^[0-9a-f]{32}$/),
  /** Only a node with this format can load it. */
  format: text(64),
  /** Epoch milliseconds at which the guest was paused. */
  suspendedAt: instant(),
  /** The boot in which the guest booted. */
  guestBootId: text(128),
  /** The workload's command; null when there is none, or it is not known. */
  workload: nullable(argv()),
  /** Its commands wait for their callers. */
  keepsCommands: Type.Optional(Type.Boolean()),
  /** Allocated on the source's disk. */
  bytes: bytes(),
  /** The file of the pages that the memory leaves out, which many machines share; null: there is none. */
  base: nullable(MovedRoot),
});
export type MovedMemory = Message<typeof MovedMemory>;

/**
 * What a node has of a machine. `isStopped`: nothing of the machine runs there, so its files do not change.
 */
export const OutgoingMachine = Type.Object({
  isStopped: flag(),
  /** null: it has no disk yet, or the image is unknown. */
  image: nullable(MovedImage),
  root: nullable(MovedRoot),
  files: list(MovedFile, FILES_MAX),
  /** null: the machine is not suspended, or its memory cannot be loaded any more. */
  memory: nullable(MovedMemory),
  /**
   * The format of the memory that the machine has, running or suspended; null: it has none that can be kept.
   */
  memoryFormat: nullable(text(64)),
  /**
   * It runs, and what it writes to its disk can be watched, so its files may be sent before it is stopped.
   */
  canSendEarly: flag(),
  /** Its memory can be sent while it runs too. */
  canMoveLive: flag(),
  /** The base that the memory of a running machine will have; null: it has none, or it was not asked for. */
  memoryBase: nullable(MovedRoot),
  /** The points since which it is known what has changed on the disk, to the end of its last run. */
  points: clippedList(point(), POINTS_MAX),
});
export type OutgoingMachine = Message<typeof OutgoingMachine>;

export const IncomingMachine = Type.Object({
  /** Generation of the machine's row. The target refuses every request about the machine that is older. */
  generation: whole(1, Number.MAX_SAFE_INTEGER),
  image: MovedImage,
  root: MovedRoot,
  files: list(MovedFile, FILES_MAX),
  /** null: the machine comes without memory, or it still runs. */
  memory: nullable(MovedMemory),
  /** The base that the memory of a machine that still runs will have. */
  memoryBase: nullable(MovedRoot),
});
export type IncomingMachine = Message<typeof IncomingMachine>;

/** A file that the target needs. */
export const AwaitedFile = Type.Object({
  name: matching(/^(disk|root|memory|memory-base|log-[0-9]{1,15})$/),
  /** From which byte on. */
  from: bytes(),
});
export type AwaitedFile = Message<typeof AwaitedFile>;

export const IncomingState = Type.Object({
  /** The copy is a machine of the node already. */
  isMachine: flag(),
  /** In the order in which they are to be sent. */
  awaited: list(AwaitedFile, FILES_MAX + 3),
  /** This node takes files of a machine that still runs, and points. */
  takesEarly: flag(),
  /** A VM of this node can wait for a machine that runs. */
  takesLive: flag(),
  /** The last point whose stream is complete here: only what changed since then is needed of the disk. */
  point: nullable(point()),
});
export type IncomingState = Message<typeof IncomingState>;

/** A line while a file arrives; the last one is `done` or `failed`. */
export const MoveProgress = Type.Union([
  Type.Object({ kind: Type.Literal("progress"), bytes: bytes() }),
  Type.Object({
    kind: Type.Literal("done"),
    bytes: bytes(),
    sha256: clipped(64),
    /**
     * Epoch milliseconds at which the source paused the machine, of which the rest has arrived; null: a file
     * has.
     */
    pausedAt: nullable(instant()),
  }),
  Type.Object({ kind: Type.Literal("failed"), error: LinkError }),
]);
export type MoveProgress = Message<typeof MoveProgress>;
