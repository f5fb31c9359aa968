/**
 * Refusals in the form that clients of registries know: `{"errors":[{"code":…,"message":…}]}`.
 *
 * Always: the text says what to do, because clients show it unchanged; it names nothing that the caller may
 * not see.
 */
import type { Refusal } from "@flotilla/contract/errors";
import type { Outgoing } from "../http/answer.ts";

/** Codes of the OCI distribution specification, and of Docker's registry. */
export type OciCode =
  | "BLOB_UNKNOWN"
  | "BLOB_UPLOAD_INVALID"
  | "BLOB_UPLOAD_UNKNOWN"
  | "DENIED"
  | "DIGEST_INVALID"
  | "MANIFEST_BLOB_UNKNOWN"
  | "MANIFEST_INVALID"
  | "MANIFEST_UNKNOWN"
  | "NAME_INVALID"
  | "NAME_UNKNOWN"
  | "SIZE_INVALID"
  | "TAG_INVALID"
  | "TOOMANYREQUESTS"
  | "UNAUTHORIZED"
  | "UNAVAILABLE"
  | "UNKNOWN"
  | "UNSUPPORTED";

type Headers = Readonly<Record<string, string>>;

/** Refuses a call of a client of registries. */
export class OciError extends Error {
  readonly status: number;
  readonly code: OciCode;
  readonly headers: Headers;

  constructor(status: number, code: OciCode, text: string, headers: Headers = {}) {
    super(text);
    this.name = "OciError";
    this.status = status;
    this.code = code;
    this.headers = headers;
  }
}

export const nameUnknown = (repository: string): OciError =>
  new OciError(404, "NAME_UNKNOWN", `repository ${repository} was not found`);

export const manifestUnknown = (repository: string, target: string): OciError =>
  new OciError(404, "MANIFEST_UNKNOWN", `${repository} has no manifest ${target}`);

export const blobUnknown = (repository: string, digest: string): OciError =>
  new OciError(404, "BLOB_UNKNOWN", `${repository} has no blob ${digest}`);

export const uploadUnknown = (): OciError =>
  new OciError(404, "BLOB_UPLOAD_UNKNOWN", "the upload was not found, or has ended; begin it again");

export const denied = (text: string): OciError => new OciError(403, "DENIED", text);

/** `seconds`: when to try again. */
export const unavailable = (text: string, seconds = 5): OciError =>
  new OciError(503, "UNAVAILABLE", text, { "retry-after": String(seconds) });

/** The answer for an error of either kind. */
export function answerOfError({ status, code, message, headers }: OciError): Outgoing {
  const body = JSON.stringify({ errors: [{ code, message }] });
  return { status, headers: { ...headers, "content-type": "application/json" }, body };
}

const CODES: Readonly<Record<number, OciCode>> = {
  401: "UNAUTHORIZED",
  402: "DENIED",
  403: "DENIED",
  429: "TOOMANYREQUESTS",
  503: "UNAVAILABLE",
};

/** A refusal of the pipeline. A suspended tenant is denied: clients do not know 402. */
export function ofRefusal(refusal: Refusal): OciError {
  const status = refusal.status === 402 ? 403 : refusal.status;
  const headers = { ...refusal.headers, "x-error-code": refusal.code };
  return new OciError(status, CODES[refusal.status] ?? "UNKNOWN", refusal.message, headers);
}
