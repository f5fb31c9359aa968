/**
 * What the agent says of a path, as GUEST-PROTOCOL.md describes it under files. Pure.
 *
 * Always: a guest is not trusted: what does not fit is an error, numbers are bounded, names are text.
 */
import { type ErrorCode, Refusal } from "@flotilla/contract/errors";
import type { FileEntry } from "@flotilla/contract/files";

export interface FileStatus {
  readonly kind: FileEntry["kind"];
  /** Four octal digits. */
  readonly mode: string;
  readonly size: number;
  /** Epoch milliseconds. */
  readonly modifiedAt: number;
}

const KINDS = { f: "file", d: "directory", l: "link", o: "other" } as const;
const STATUS = /^([fdlo]) ([0-7]{4}) (\d{1,15}) (-?\d{1,15})$/;
const TIME_MS_MAX = 8.64e15;
const DETAIL_CHARACTERS_MAX = 300;

/** The first line, without its end. */
export function parseStatus(line: string): FileStatus {
  const [, kind, mode = "", size, modified] = STATUS.exec(line) ?? [];
  if (kind === undefined)
    throw new Refusal("guest_unreachable", "the machine's agent gave an answer about a file that is none");
  const modifiedAt = Math.max(0, Math.min(Number(modified), TIME_MS_MAX));
  return { kind: KINDS[kind as keyof typeof KINDS], mode, size: Number(size), modifiedAt };
}

/** Takes the entries of a directory out of what came so far; the rest belongs in front of what comes next. */
export function parseEntries(bytes: Buffer): { readonly entries: readonly FileEntry[]; readonly rest: Buffer } {
  const entries: FileEntry[] = [];
  let at = 0;
  for (;;) {
    const statusEnd = bytes.indexOf(0, at);
    const nameEnd = statusEnd < 0 ? -1 : bytes.indexOf(0, statusEnd + 1);
    if (nameEnd < 0) return { entries, rest: bytes.subarray(at) };
    const { kind, mode, size, modifiedAt } = parseStatus(bytes.toString("latin1", at, statusEnd));
    const name = bytes.toString("utf8", statusEnd + 1, nameEnd);
    entries.push({ name, kind, size, mode, modifiedAt: new Date(modifiedAt).toISOString() });
    at = nameEnd + 1;
  }
}

interface Meaning {
  readonly code: ErrorCode;
  readonly text: (path: string, detail: string) => string;
}

const MEANINGS: Readonly<Record<string, Meaning>> = {
  not_found: { code: "not_found", text: (path) => `file not found: ${path}` },
  is_directory: {
    code: "conflict",
    text: (path) => `${path} is a directory; read its list with GET and ?list=true, write to a file in it`,
  },
  not_directory: { code: "conflict", text: (path) => `${path} is not in a directory, or is none itself` },
  not_empty: { code: "conflict", text: (path) => `directory ${path} is not empty; remove what is in it first` },
  not_regular: { code: "conflict", text: (path) => `${path} is not a regular file` },
  name_too_long: {
    code: "invalid_request",
    text: (path) => `the path ${path.slice(0, 64)}… or a name in it is too long`,
  },
  no_space: {
    code: "no_space",
    text: (path) => `no space is left for ${path} on the machine's disk; nothing was written`,
  },
  memory: {
    code: "conflict",
    text: (path, detail) =>
      `a link leads ${path} to ${detail} in memory, where it would be lost at a stop; write to that path itself if you mean it`,
  },
  changed: { code: "conflict", text: (path) => `${path} became shorter while it was read` },
};

/** The agent's word and reason as a refusal. */
export function fileRefusal(said: string, path: string): Refusal {
  const [word = ""] = said.split(" ", 1);
  const detail = said.slice(word.length + 1, word.length + 1 + DETAIL_CHARACTERS_MAX).trim();
  const meaning = Object.hasOwn(MEANINGS, word) ? MEANINGS[word] : undefined;
  if (meaning !== undefined) return new Refusal(meaning.code, meaning.text(path, detail));
  return new Refusal(
    "conflict",
    `the machine refuses to do that with ${path}: ${detail || said.slice(0, 100) || "it was interrupted"}`,
  );
}
