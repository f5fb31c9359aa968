/**
 * How file content is transferred over the bulk disk: pieces on the disk, and the records on the channel that
 * announce them. GUEST-PROTOCOL.md describes the same, under files; guest/bulk.c implements the guest's side.
 */
import { GuestProtocolError } from "./frame.ts";

/** The size of a slot on the bulk disk: offset and size of a file's window are multiples of it. */
export const BULK_PIECE_BYTES = 1024 * 1024;
/** Slots in one window. */
export const BULK_PIECES_MAX = 64;
/** A record: length (4), slot (4). */
export const BULK_RECORD_BYTES = 8;
/** As a slot: the bytes follow the record. */
export const BULK_INLINE = 0xffff_ffff;
/** The most that a conforming side sends after a record. */
export const BULK_INLINE_BYTES_MAX = 64 * 1024;
/** The reader's acknowledgement of a piece: its slot is free again. */
export const BULK_TAKEN = "+";

export interface BulkRecord {
  /** At least one byte. */
  readonly length: number;
  /** In the window; BULK_INLINE when the bytes follow. */
  readonly place: number;
}

export function encodeBulkRecord({ length, place }: BulkRecord): Buffer {
  const bytes = Buffer.allocUnsafe(BULK_RECORD_BYTES);
  bytes.writeUInt32LE(length, 0);
  bytes.writeUInt32LE(place, 4);
  return bytes;
}

/** Throws GuestProtocolError when a window of this many slots has no such piece. */
export function decodeBulkRecord(bytes: Buffer, places: number): BulkRecord {
  const length = bytes.readUInt32LE(0);
  const place = bytes.readUInt32LE(4);
  const bytesMax = place === BULK_INLINE ? BULK_INLINE_BYTES_MAX : BULK_PIECE_BYTES;
  if (length === 0 || length > bytesMax || (place >= places && place !== BULK_INLINE))
    throw new GuestProtocolError(`a piece of ${length} bytes in place ${place}`);
  return { length, place };
}
