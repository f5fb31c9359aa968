/**
 * Why a command failed, in two lines: what happened, and what to do about it, in terms of commands and
 * options.
 *
 * Always:
 * - A Failure and a refusal by the server end the command with exit code 1, a usage error with 2. Any other
 *   thrown error is a bug of ours and keeps its stack.
 * - No text shows a key.
 */
import { errorOf } from "@flotilla/base/errors";
import { FlotillaError } from "@flotilla/sdk";
import { inCommandTerms } from "./terms.ts";

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
  ENXIO: "it is a socket or a device that is not there",
};

/** What an error of the local file system means; undefined for any other error. */
export function fileErrorText(error: unknown): string | undefined {
  const { code } = error as NodeJS.ErrnoException;
  return code === undefined ? undefined : FILE_ERRORS[code];
}

/**
 * No file is found by a name that was read from a directory and was not UTF-8: parts of it are replaced.
 * Empty for another path.
 */
export const undecodedText = (path: string): string =>
  path.includes("\ufffd") ? "its name is not UTF-8, and such a file cannot be copied" : "";

/** An error of the local file system is not a bug of ours. */
export function localFailure(error: unknown, path: string): Error {
  const isMissing = (error as NodeJS.ErrnoException).code === "ENOENT";
  const text = (isMissing && undecodedText(path)) || fileErrorText(error);
  return text === undefined ? errorOf(error) : new Failure(`${path}: ${text}`);
}

/** Facts about the connection of the call that failed. */
export interface ConnectionFacts {
  readonly url: string;
  /** Where the key came from, as text; null when there was none. */
  readonly keySource: string | null;
}

/**
 * Any error as a Failure; null when it is a bug of ours. `names`: the options and operands of the command,
 * for texts of the server that name fields.
 */
export function failureOf(
  error: unknown,
  connection: ConnectionFacts | null,
  names: readonly string[] = [],
): Failure | null {
  if (error instanceof Failure) return error;
  if (!(error instanceof FlotillaError)) return null;
  // What was to be sent could not be read.
  const cause = innermostCause(error);
  if (cause instanceof Failure) return cause;
  // With a status there was an answer that broke off: its own text says what that means.
  if (error.code === "unreachable" && error.status === 0) return unreachable(error, connection);
  if (/^\s*</.test(error.text))
    return new Failure(
      `${connection?.url ?? "the server"} answered ${error.status} with a page that is not Flotilla's`,
      NOT_FLOTILLA,
    );
  const id = error.status >= 500 && error.requestId !== null ? ` [request id: ${error.requestId}]` : "";
  return new Failure(inCommandTerms(error.text, error.details, names) + id, adviceFor(error, connection));
}

const ADDRESS_ADVICE = "start one with `npm start`, or say where it is with --url or FLOTILLA_URL";

const NOT_FLOTILLA = "check the address, which --url or FLOTILLA_URL names, and any proxy in between";

/** Every call of this program is one that servers of its release serve. */
const EARLIER_RELEASE =
  "this server is probably of an earlier release than this program, and has no such call: `flotilla version` shows both";

function unreachable(error: FlotillaError, connection: ConnectionFacts | null): Failure {
  const url = connection?.url ?? "its address";
  const fails = (reason: string, advice: string): Failure =>
    new Failure(`cannot reach Flotilla at ${url}: ${reason}`, advice);
  const cause = innermostCause(error);
  const code = "code" in cause ? String(cause.code) : "";
  if (code === "ECONNREFUSED") return fails("nothing listens there", ADDRESS_ADVICE);
  if (code === "ENOTFOUND" || code === "EAI_AGAIN")
    return fails("the host is unknown", "check its name in the address");
  if (cause instanceof SyntaxError) return fails("what answers there is not Flotilla", NOT_FLOTILLA);
  const isTls = url.startsWith("https:");
  if (isTls && /^(EPROTO|ERR_SSL_WRONG_VERSION_NUMBER|ERR_SSL_PACKET_LENGTH_TOO_LONG)$/.test(code))
    return fails("what listens there does not use TLS", "try the address with http:// instead of https://");
  if (isTls && /CERT|SIGNATURE/.test(code))
    return fails(
      `its certificate is not accepted: ${cause.message}`,
      "if its authority is your own, name that authority's certificate with NODE_EXTRA_CA_CERTS=FILE",
    );
  const isHttps = "if it uses TLS, its address begins with https://";
  if (!isTls && code.startsWith("HPE_")) return fails("what listens there does not answer in HTTP", isHttps);
  if (!isBroken(cause, code)) return fails(cause.message, ADDRESS_ADVICE);
  const mayUseTls = !isTls && (code === "UND_ERR_SOCKET" || code === "ECONNRESET") ? `; ${isHttps}` : "";
  if (/^(GET|HEAD) /.test(error.call))
    return fails("the connection broke before its answer came", `try again${mayUseTls}`);
  return new Failure(
    `the connection to Flotilla at ${url} broke before its answer came; the result is unknown`,
    `check it before you try again${mayUseTls}`,
  );
}

/** Whether there was a connection, so that the server may have done what the call requested. */
const isBroken = (cause: Error, code: string): boolean =>
  /^(ECONNRESET|EPIPE|ETIMEDOUT|UND_ERR_(SOCKET|HEADERS_TIMEOUT|BODY_TIMEOUT))$/.test(code) &&
  (cause as NodeJS.ErrnoException).syscall !== "connect";

/** `fetch` wraps what happened in its own error. */
function innermostCause(error: Error): Error {
  const cause = error.cause instanceof AggregateError ? (error.cause.errors[0] as unknown) : error.cause;
  return cause instanceof Error ? innermostCause(cause) : error;
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
    case "method_not_allowed":
      return EARLIER_RELEASE;
    case "not_found":
      return error.details.resource?.kind === "path" ? EARLIER_RELEASE : null;
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
