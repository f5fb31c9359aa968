/**
 * Messages of file operations in a machine.
 *
 *     POST /v1/machines/{id}/files/{operation}
 *
 * | operation | request body                            | answer 200                                                        |
 * |-----------|-----------------------------------------|-------------------------------------------------------------------|
 * | `read`    | FileRead                                | FileFacts in the header FILE_FACTS_HEADER; the bytes as body      |
 * | `write`   | FileWrite, a line break, then the bytes | begins when the guest accepts bytes; the body ends with a FileWritten |
 * | `list`    | FilePath                                  | FileListLine, one a line; the last is `done` or `failed`          |
 * | `remove`  | FilePath                                  | empty                                                             |
 *
 * Always:
 * - A failure before the answer's head is a LinkError.
 * - A read has a `content-length`. One that cannot be completed breaks the connection, so a part is never
 *   taken for all.
 * - A write changes the file at once, after the request's body has ended, and only if its SHA-256 is the
 *   requested one. A request whose body breaks off changes nothing.
 * - A line of white space in an answer shows that the node is alive.
 */
import { LinkError } from "./errors.ts";
import { absolutePath } from "./machines.ts";
import { clipped, count, type Message, matching, measure, nullable, oneOf, Type, flag, whole } from "./vocabulary.ts";

const SIZE_MAX = Number.MAX_SAFE_INTEGER;
/** The latest instant that a Date can hold, in epoch milliseconds. */
const INSTANT_MAX = 8.64e15;
/** A guest's file systems may have longer names than Linux itself permits. */
const NAME_CHARACTERS_MAX = 4_096;

/** Which part of a file to read. */
export const FileRead = Type.Object({
  path: absolutePath(),
  /** The first byte, counted from the end with `isFromEnd`. */
  offset: whole(0, SIZE_MAX),
  /** null: to the end. */
  length: nullable(whole(0, SIZE_MAX)),
  isFromEnd: flag(),
});
export type FileRead = Message<typeof FileRead>;

export const FileWrite = Type.Object({
  path: absolutePath(),
  /** What the content's SHA-256 must be, in lower-case hexadecimal; null: anything. */
  sha256: nullable(matching(/^[0-9a-f]{64}$/)),
});
export type FileWrite = Message<typeof FileWrite>;

/** The request to list a directory, or to remove a file, a link or an empty directory. */
export const FilePath = Type.Object({ path: absolutePath() });
export type FilePath = Message<typeof FilePath>;

/** What a node knows of a file before its first byte. */
export const FileFacts = Type.Object({
  /** Four octal digits. */
  mode: matching(/^[0-7]{4}$/),
  /** Size of the whole file, in bytes. */
  size: count(SIZE_MAX),
  /** Epoch milliseconds. */
  modifiedAt: measure(INSTANT_MAX),
});
export type FileFacts = Message<typeof FileFacts>;

/** How a write ended. */
export const FileWritten = Type.Union([
  /** `sha256`: of the content, in hexadecimal. */
  Type.Object({ kind: Type.Literal("written"), sha256: matching(/^[0-9a-f]{64}$/) }),
  Type.Object({ kind: Type.Literal("failed"), error: LinkError }),
]);
export type FileWritten = Message<typeof FileWritten>;

/** An entry of a directory. */
export const ListedFile = Type.Object({
  name: clipped(NAME_CHARACTERS_MAX),
  kind: oneOf(["file", "directory", "link", "other"]),
  mode: matching(/^[0-7]{4}$/),
  size: count(SIZE_MAX),
  /** Epoch milliseconds. */
  modifiedAt: measure(INSTANT_MAX),
});
export type ListedFile = Message<typeof ListedFile>;

/** A line of the answer to `list`. */
export const FileListLine = Type.Union([
  Type.Object({ kind: Type.Literal("entry"), entry: ListedFile }),
  Type.Object({ kind: Type.Literal("done") }),
  Type.Object({ kind: Type.Literal("failed"), error: LinkError }),
]);
export type FileListLine = Message<typeof FileListLine>;
