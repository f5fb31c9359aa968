/**
 * Transfer of file contents over the bulk disk: pieces on the disk, and records on the channel that announce
 * them. GUEST-PROTOCOL.md describes it under files; guest/bulk.c is the other side.
 */
import { GuestProtocolError } from "./frame.ts";

/** The size of a slot on the bulk disk; offset and size of a window are multiples of it. */
export const BULK_PIECE_BYTES = 1024 * 1024;
/** Slots in one window. */
export const BULK_PIECES_MAX = 64;
/** A record: length (4), slot (4). */
export const BULK_RECORD_BYTES = 8;
/** Instead of a slot number: the bytes follow the record. */
export const BULK_INLINE = 0xffff_ffff;
/** The limit for bytes that follow a record. */
export const BULK_INLINE_BYTES_MAX = 64 * 1024;
/** Sent by the reader of a piece when its slot may be reused. */
export const BULK_ACKNOWLEDGED = "+";

export interface BulkRecord {
  /** At least one byte. */
  readonly length: number;
  /** In the window; BULK_INLINE when the bytes follow. */
  readonly slot: number;
}

export function encodeBulkRecord({ length, slot }: BulkRecord): Buffer {
  const bytes = Buffer.allocUnsafe(BULK_RECORD_BYTES);
  bytes.writeUInt32LE(length, 0);
  bytes.writeUInt32LE(slot, 4);
  return bytes;
}

/** Throws GuestProtocolError when the record is invalid for a window of `slots`. */
export function decodeBulkRecord(bytes: Buffer, slots: number): BulkRecord {
  const length = bytes.readUInt32LE(0);
  const slot = bytes.readUInt32LE(4);
  const bytesMax = slot === BULK_INLINE ? BULK_INLINE_BYTES_MAX : BULK_PIECE_BYTES;
  if (length === 0 || length > bytesMax || (slot >= slots && slot !== BULK_INLINE))
    throw new GuestProtocolError(`a piece of ${length} bytes in slot ${slot}`);
  return { length, slot };
}
