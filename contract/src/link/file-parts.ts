/**
 * What both ends of the link need for files besides the messages of files.ts: names, bounds, and which bytes
 * a part of a file has.
 *
 * Pure, and without packages: the node agent has none.
 */

/** The last segment of the path of a file request. */
export const LINK_FILE_OPERATIONS = ["read", "write", "list", "remove"] as const;
export type FileOperation = (typeof LINK_FILE_OPERATIONS)[number];

/** The answer to a read has FileFacts in this header, as JSON. */
export const FILE_FACTS_HEADER = "flotilla-file";

/** A directory with more entries cannot be listed over the link. */
export const FILE_ENTRIES_MAX = 100_000;

/**
 * How long a guest may make no progress with a file although it could: not answer, not take bytes that are
 * there, send none that are expected. Generous, because a guest may wait for a slow disk.
 */
export const FILE_SILENCE_MAX_MS = 120_000;

/** A part of a file, before the file's size is known. */
export interface FilePart {
  /** Bytes from the beginning, or from the end with `isFromEnd`. */
  readonly offset: number;
  /** In bytes; null: to the end. */
  readonly length: number | null;
  readonly isFromEnd: boolean;
}

export const WHOLE_FILE: FilePart = { offset: 0, length: null, isFromEnd: false };

/**
 * The first byte and the number of bytes of the part in a file of `size` bytes; undefined when the part is
 * outside of it.
 */
export function locateInFile(
  { offset, length, isFromEnd }: FilePart,
  size: number,
): { readonly first: number; readonly count: number } | undefined {
  const first = isFromEnd ? Math.max(0, size - offset) : offset;
  if (first >= size) return undefined;
  return { first, count: Math.min(length ?? Number.POSITIVE_INFINITY, size - first) };
}
