/**
 * How the content of a file goes over the bulk disk: pieces that lie on it, and the records that tell of them over the
 * channel. GUEST-PROTOCOL.md says the same in prose, under files; guest/bulk.c is the other side.
 */
import { GuestProtocolError } from "./frame.ts";

/** A place on the bulk disk: what offset and size of a file's window are multiples of. */
export const BULK_PIECE_BYTES = 1024 * 1024;
/** Places in one window. */
export const BULK_PIECES_MAX = 64;
/** A record: length (4), place (4). */
export const BULK_RECORD_BYTES = 8;
/** As a place: the bytes follow the record. */
export const BULK_INLINE = 0xffff_ffff;
/** What a side that keeps to this protocol sends behind a record. */
export const BULK_INLINE_BYTES_MAX = 64 * 1024;
/** What the reader of a piece says when its place is free again. */
export const BULK_TAKEN = "+";

export interface BulkRecord {
  /** At least one byte. */
  readonly length: number;
  /** Of the window; BULK_INLINE when the bytes follow. */
  readonly place: number;
}

export function encodeBulkRecord({ length, place }: BulkRecord): Buffer {
  const bytes = Buffer.allocUnsafe(BULK_RECORD_BYTES);
  bytes.writeUInt32LE(length, 0);
  bytes.writeUInt32LE(place, 4);
  return bytes;
}

/** Throws GuestProtocolError when there is no such piece in a window of so many places. */
export function decodeBulkRecord(bytes: Buffer, places: number): BulkRecord {
  const length = bytes.readUInt32LE(0);
  const place = bytes.readUInt32LE(4);
  const bytesMax = place === BULK_INLINE ? BULK_INLINE_BYTES_MAX : BULK_PIECE_BYTES;
  if (length === 0 || length > bytesMax || (place >= places && place !== BULK_INLINE))
    throw new GuestProtocolError(`a piece of ${length} bytes in place ${place}`);
  return { length, place };
}
