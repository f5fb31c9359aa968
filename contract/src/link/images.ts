/**
 * Images on a node: which it has, and how getting one goes.
 */
import { IMAGE_FAULTS } from "../errors.ts";
import { PORT_MAX } from "../limits.ts";
import { imageArch, imageReference } from "./machines.ts";
import { clipped, count, instant, type Message, nullable, list, Type, text, oneOfOr, whole } from "./vocabulary.ts";

const BYTES_MAX = Number.MAX_SAFE_INTEGER;
const IMAGES_MAX = 100_000;
/** What an owner reads of how an image went. */
const MESSAGE_CHARACTERS_MAX = 1_000;

export const NodeImage = Type.Object({
  reference: clipped(),
  digest: clipped(),
  sizeBytes: count(BYTES_MAX),
  architecture: clipped(),
  os: clipped(),
  layerCount: count(),
  /** The lowest TCP port that its configuration exposes; null: none, or its node does not know. */
  exposedPort: nullable(whole(1, PORT_MAX)),
  /** Epoch milliseconds. */
  lastUsedAt: nullable(instant()),
  /**
   * The tenant that fetched it under this reference; null: the operator, or a local image, which every tenant
   * may use.
   */
  tenantId: nullable(clipped()),
});
export type NodeImage = Message<typeof NodeImage>;

/** The answer to `GET /v1/images`. */
export const NodeImages = list(NodeImage, IMAGES_MAX);

/** The body of `PUT /v1/images`. */
export const PullRequest = Type.Object({
  reference: imageReference(),
  arch: imageArch(),
  /** null: the operator. */
  tenantId: nullable(text(128)),
  /** Whether the reference names a package. Absent: an image. */
  isPackage: Type.Optional(Type.Boolean()),
});
export type PullRequest = Message<typeof PullRequest>;

/** A line of the answer to `PUT /v1/images`; the last one is `done` or `failed`. */
export const ImageProgress = Type.Union([
  Type.Object({
    kind: Type.Literal("progress"),
    message: clipped(MESSAGE_CHARACTERS_MAX),
    doneBytes: count(BYTES_MAX),
    totalBytes: count(BYTES_MAX),
  }),
  Type.Object({ kind: Type.Literal("done"), image: NodeImage }),
  Type.Object({
    kind: Type.Literal("failed"),
    message: clipped(MESSAGE_CHARACTERS_MAX),
    /** `no_space`: the node's disk is full. null: the next attempt may succeed. */
    reasonCode: oneOfOr([...IMAGE_FAULTS, "no_space"], null),
  }),
]);
export type ImageProgress = Message<typeof ImageProgress>;
