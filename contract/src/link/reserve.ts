/**
 * The reserve: VMs without an owner that nodes keep prepared for shared pools, of an image and a size.
 *
 * In the answer to each heartbeat a server says what the node's share is, and in each heartbeat the node says what it has.
 * Always: a share replaces the one before, and an empty list ends the reserve.
 */
import { clipped, count, type Message, nullable, text, Type, whole } from "./vocabulary.ts";

/** Kinds of one node. */
export const RESERVED_KINDS_MAX = 64;
const REFERENCE_CHARACTERS_MAX = 600;
const ERROR_CHARACTERS_MAX = 300;
/** More than any machine has. */
const SIZE_MAX = 1_000_000_000;

/** What a node is to keep prepared of one kind. */
export const ReserveShare = Type.Object({
  reference: text(REFERENCE_CHARACTERS_MAX),
  cpus: whole(1, SIZE_MAX),
  memoryMb: whole(1, SIZE_MAX),
  diskGb: whole(1, SIZE_MAX),
  count: whole(0, SIZE_MAX),
});
export type ReserveShare = Message<typeof ReserveShare>;

/** What a node has of one kind. */
export const HeldReserve = Type.Object({
  reference: clipped(REFERENCE_CHARACTERS_MAX),
  cpus: count(),
  memoryMb: count(),
  diskGb: count(),
  /** VMs that wait. */
  waiting: count(),
  /** Why there are fewer than its share. null: there are not, or they are being prepared. */
  error: nullable(clipped(ERROR_CHARACTERS_MAX)),
});
export type HeldReserve = Message<typeof HeldReserve>;
