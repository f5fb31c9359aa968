/**
 * A node's failure of an operation on a file, as the refusal that the caller reads. Pure.
 */
import { type ErrorCode, Refusal } from "@flotilla/contract/errors";
import type { LinkError } from "@flotilla/contract/link/link";
import { FILE_ENTRIES_MAX } from "@flotilla/contract/link/file-parts";

interface Meaning {
  readonly code: ErrorCode;
  /** What the path is, where the code says so. `file`: anything but a directory. */
  readonly kind?: "file" | "directory";
  readonly text: (path: string, message: string) => string;
}

const PATH_SHOWN_CHARACTERS = 64;

const MEANINGS: Partial<Record<LinkError["code"], Meaning>> = {
  no_such_file: { code: "not_found", kind: "file", text: (path) => `file not found: ${path}` },
  is_directory: {
    code: "conflict",
    kind: "directory",
    text: (path) => `${path} is a directory; read its list with GET and ?list=true, write to a file in it`,
  },
  not_directory: { code: "conflict", kind: "file", text: (path) => `${path} is not in a directory, or is none itself` },
  not_empty: {
    code: "conflict",
    kind: "directory",
    text: (path) => `directory ${path} is not empty; remove what is in it first`,
  },
  not_regular: { code: "conflict", kind: "file", text: (path) => `${path} is not a regular file` },
  name_too_long: {
    code: "invalid_request",
    text: (path) => `the path ${path.slice(0, PATH_SHOWN_CHARACTERS)}… or a name in it is too long`,
  },
  no_space: {
    code: "no_space",
    text: (path, message) => `nothing was written to ${path}: ${message}`,
  },
  in_memory: {
    code: "conflict",
    text: (path, target) =>
      `a link leads ${path} to ${target} in memory, where it would be lost at a stop; write to that path itself if you mean it`,
  },
  hash_differs: { code: "invalid_request", text: (_, message) => `${message}, not the one sent; nothing was written` },
  too_many_entries: {
    code: "conflict",
    kind: "directory",
    text: (path) => `${path} has more than ${FILE_ENTRIES_MAX} entries; list it with a command, such as ls -f`,
  },
  file_refused: {
    code: "conflict",
    text: (path, message) => `the machine refuses to do that with ${path}: ${message}`,
  },
  busy: {
    code: "conflict",
    text: (path, message) => `${path} was not accessed: ${message}; try again when one of them has ended`,
  },
  paused: {
    code: "unavailable",
    text: (path, message) => `the machine is paused, so ${path} was not accessed: ${message}`,
  },
  interrupted: {
    code: "unavailable",
    text: (path) =>
      `the machine got a new VMM while it ran, which interrupted the transfer of ${path}; repeat it: an incomplete upload changes nothing`,
  },
  invalid: { code: "invalid_request", text: (path, message) => `${path} was not accessed: ${message}` },
  guest_unreachable: {
    code: "guest_unreachable",
    text: (path, message) =>
      `${path} could not be accessed, the machine's agent does not answer: ${message}; stop and start the machine if it still runs`,
  },
};

/** `path` as the caller wrote it. undefined: a failure of the node, not of the operation. */
export function fileRefusal({ code, message }: Pick<LinkError, "code" | "message">, path: string): Refusal | undefined {
  const meaning = MEANINGS[code];
  if (meaning === undefined) return undefined;
  const about = meaning.kind === undefined ? {} : { resource: { kind: meaning.kind, id: path } };
  return new Refusal(meaning.code, meaning.text(path, message), about);
}
