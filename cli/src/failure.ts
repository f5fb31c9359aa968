/**
 * Why a command failed, in two lines: what happened, and what to do about it.
 *
 * Always: a Failure and a refusal by the server end the command with exit code 1, a usage error with 2. Any other
 * thrown error is a bug of ours and keeps its stack.
 */
import { errorOf } from "@flotilla/base/errors";
import { FlotillaError } from "@flotilla/sdk";

export const EXIT_REFUSED = 1;
export const EXIT_USAGE = 2;

export class Failure extends Error {
  /** One line: what to do. */
  readonly advice: string | null;
  readonly exitCode: number;

  constructor(what: string, advice: string | null = null, exitCode: number = EXIT_REFUSED) {
    super(what);
    this.name = "Failure";
    this.advice = advice;
    this.exitCode = exitCode;
  }
}

/** A usage error, such as an option whose value cannot be read. */
export const usage = (what: string, advice: string | null = null): Failure => new Failure(what, advice, EXIT_USAGE);

const FILE_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: "no such file or directory",
  EACCES: "this user may not access it",
  EPERM: "this user may not do that",
  ENOSPC: "the disk is full",
  EDQUOT: "this user's share of the disk is used up",
  EFBIG: "a file would be too large",
  EIO: "the disk reports an error",
  ELOOP: "its links lead in a circle",
  ENAMETOOLONG: "the name is too long",
  ENOTDIR: "a part of the path is not a directory",
  EISDIR: "it is a directory",
  EROFS: "the file system is read-only",
};

/** What an error of the local file system means; undefined for any other error. */
export function fileErrorText(error: unknown): string | undefined {
  const { code } = error as NodeJS.ErrnoException;
  return code === undefined ? undefined : FILE_ERRORS[code];
}

/** An error of the local file system is not a bug of ours. */
export function localFailure(error: unknown, path: string): Error {
  const text = fileErrorText(error);
  return text === undefined ? errorOf(error) : new Failure(`${path}: ${text}`);
}

/** Facts about the connection of the call that failed. */
export interface ConnectionFacts {
  readonly url: string;
  /** Where the key came from, as text; null when there was none. */
  readonly keySource: string | null;
}

/** Any error as a Failure; null when it is a bug of ours. */
export function failureOf(error: unknown, connection: ConnectionFacts | null): Failure | null {
  if (error instanceof Failure) return error;
  if (!(error instanceof FlotillaError)) return null;
  // With a status there was an answer that broke off: its own text says what that means.
  if (error.code === "unreachable" && error.status === 0) {
    const reason = /ECONNREFUSED/.test(error.text) ? "nothing listens there" : lastPart(error.text);
    return new Failure(
      `cannot reach Flotilla at ${connection?.url ?? "its address"}: ${reason}`,
      "start one with `npm start`, or say where it is with --url or FLOTILLA_URL",
    );
  }
  const id = error.status >= 500 && error.requestId !== null ? ` [request id: ${error.requestId}]` : "";
  return new Failure(error.text + id, adviceFor(error, connection));
}

function adviceFor(error: FlotillaError, connection: ConnectionFacts | null): string | null {
  const source = connection?.keySource ?? "nowhere";
  switch (error.code) {
    case "missing_key":
      return "`flotilla login` saves a key; FLOTILLA_API_KEY or --api-key-file names one for a single call";
    case "unknown_key":
    case "expired_key":
      return `the key came from ${source}; save another with \`flotilla login\``;
    case "missing_scope":
      return `the key came from ${source}; \`flotilla key create --scope …\` with a key of wider scope makes another`;
    case "not_implemented":
      return "this Flotilla does not serve that yet";
    case "internal":
      return "the server's log has more under this request id";
    case "timeout":
      return "try again, or allow more time";
    default:
      return null;
  }
}

const lastPart = (text: string): string => text.slice(text.lastIndexOf(": ") + 2);
