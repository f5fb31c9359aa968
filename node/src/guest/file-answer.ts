/**
 * What the guest's agent answers about a file, as GUEST-PROTOCOL.md describes it under files. Pure.
 *
 * Always: a guest is not trusted. An answer that does not fit is a FileFailure, numbers and names are
 * bounded, and no text of a guest is longer than DETAIL_CHARACTERS_MAX.
 */
import type { LinkError } from "@flotilla/contract/link/link";
import type { FileFacts, ListedFile } from "@flotilla/contract/link/files";

/** Why an operation on a file failed. `code` is for programs, `message` for people. */
export class FileFailure extends Error {
  readonly code: LinkError["code"];

  constructor(code: LinkError["code"], message: string) {
    super(message);
    this.name = "FileFailure";
    this.code = code;
  }
}

export interface FileStatus extends FileFacts {
  readonly kind: ListedFile["kind"];
}

const KINDS = { f: "file", d: "directory", l: "link", o: "other" } as const;
/** Sizes and times are as large as a file system of the guest allows: some have 64 bits. */
const STATUS = /^([fdlo]) ([0-7]{4}) (\d{1,20}) (-?\d{1,20})$/;
/** The latest instant that a Date can hold. */
const TIME_MS_MAX = 8.64e15;
const SIZE_MAX = Number.MAX_SAFE_INTEGER;
const DETAIL_CHARACTERS_MAX = 300;
/** An entry of a directory: its status, its name and two zero bytes. */
const ENTRY_BYTES_MAX = 8 * 1024;

/** The answer violates the protocol. */
export const garbage = (): FileFailure =>
  new FileFailure("guest_unreachable", "the machine's agent gave an invalid answer; stop and start the machine");

/** Parses the first line, without its line break. Throws FileFailure. */
export function parseStatus(line: string): FileStatus {
  const [, kind, mode = "", size, modified] = STATUS.exec(line) ?? [];
  if (kind === undefined) throw garbage();
  const modifiedAt = Math.max(0, Math.min(Number(modified), TIME_MS_MAX));
  return { kind: KINDS[kind as keyof typeof KINDS], mode, size: Math.min(Number(size), SIZE_MAX), modifiedAt };
}

/** Parses the complete entries of a directory. `rest` belongs before the next bytes. Throws FileFailure. */
export function parseEntries(bytes: Buffer): { readonly entries: readonly ListedFile[]; readonly rest: Buffer } {
  const entries: ListedFile[] = [];
  let at = 0;
  for (;;) {
    const statusEnd = bytes.indexOf(0, at);
    const nameEnd = statusEnd < 0 ? -1 : bytes.indexOf(0, statusEnd + 1);
    if ((nameEnd < 0 ? bytes.byteLength : nameEnd) - at > ENTRY_BYTES_MAX) throw garbage();
    if (nameEnd < 0) return { entries, rest: bytes.subarray(at) };
    const { kind, mode, size, modifiedAt } = parseStatus(bytes.toString("latin1", at, statusEnd));
    entries.push({ name: bytes.toString("utf8", statusEnd + 1, nameEnd), kind, mode, size, modifiedAt });
    at = nameEnd + 1;
  }
}

interface Meaning {
  readonly code: LinkError["code"];
  readonly text: string;
}

const MEANINGS: ReadonlyMap<string, Meaning> = new Map([
  ["not_found", { code: "no_such_file", text: "it does not exist" }],
  ["is_directory", { code: "is_directory", text: "it is a directory" }],
  ["not_directory", { code: "not_directory", text: "it is not in a directory, or is none itself" }],
  ["not_empty", { code: "not_empty", text: "the directory is not empty" }],
  ["not_regular", { code: "not_regular", text: "it is not a regular file" }],
  ["name_too_long", { code: "name_too_long", text: "the path or a name in it is too long" }],
  ["no_space", { code: "no_space", text: "no space is left on the machine's disk" }],
  ["changed", { code: "file_refused", text: "it became shorter while it was read" }],
]);

const MEMORY_IS_FULL =
  "no space is left in the machine's memory, where /tmp, /run and /dev/shm are; write to a directory on its disk";

/** The failure that the agent's text on stderr means: a code, a space and a reason. */
export function parseFailure(said: string): FileFailure {
  const [word = ""] = said.split(" ", 1);
  const detail = said.slice(word.length + 1, word.length + 1 + DETAIL_CHARACTERS_MAX).trim();
  if (word === "no_space" && detail === "memory") return new FileFailure("no_space", MEMORY_IS_FULL);
  if (word === "memory") return new FileFailure("in_memory", detail);
  const meaning = MEANINGS.get(word);
  if (meaning !== undefined) return new FileFailure(meaning.code, meaning.text);
  return new FileFailure("file_refused", detail || said.slice(0, DETAIL_CHARACTERS_MAX) || "it was interrupted");
}
