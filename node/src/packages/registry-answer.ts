/**
 * What the answers of a registry mean for a push.
 *
 * Pure. Their bodies are untrusted: at most the beginning of a message is shown.
 */

/** No repetition can succeed. The message is for the machine's owner. */
export class PushRefused extends Error {}

/** The manifest names blobs that the registry does not have any more. */
export class UnknownBlobs extends Error {
  /** Empty: it does not say which. */
  readonly digests: readonly string[];

  constructor(digests: readonly string[]) {
    super("the registry does not have a layer any more that it had a moment ago");
    this.digests = digests;
  }
}

/** What to do about an answer that is not the expected one. */
export type Meaning =
  /** Wait this long, and repeat; null: as long as usual. */
  | { readonly kind: "wait"; readonly ms: number | null }
  /** The upload is at another byte: ask it. */
  | { readonly kind: "offset" }
  /** The upload is gone or spoiled: begin another. */
  | { readonly kind: "begin" }
  | { readonly kind: "unknown-blobs"; readonly digests: readonly string[] }
  | { readonly kind: "refused"; readonly text: string };

export interface RegistryAnswer {
  readonly status: number;
  readonly retryAfter: string | null;
  /** The beginning of the body. */
  readonly body: string;
}

const WAIT_MS_MAX = 60_000;
const TEXT_CHARACTERS_MAX = 300;
const UNKNOWN_CODES = new Set(["MANIFEST_BLOB_UNKNOWN", "BLOB_UNKNOWN"]);
const SPOILED_CODES = new Set(["DIGEST_INVALID", "BLOB_UPLOAD_INVALID", "BLOB_UPLOAD_UNKNOWN", "SIZE_INVALID"]);
const WRONG_RANGE_CODES = new Set(["RANGE_INVALID"]);

/** `isManifest`: the answer to a manifest, and not to an upload. */
export function meaningOf(answer: RegistryAnswer, isManifest: boolean, now: number): Meaning {
  const { status } = answer;
  const errors = errorsIn(answer.body);
  const codes = errors.map(({ code }) => code);
  if (status === 429 || status === 503) return { kind: "wait", ms: waitMs(answer.retryAfter, now) };
  if (isManifest && (status === 400 || status === 404) && codes.some((code) => UNKNOWN_CODES.has(code)))
    return { kind: "unknown-blobs", digests: errors.flatMap(({ digest }) => (digest === null ? [] : [digest])) };
  const isUpload = !isManifest;
  if (isUpload && (status === 416 || codes.some((code) => WRONG_RANGE_CODES.has(code)))) return { kind: "offset" };
  if (isUpload && (status === 404 || codes.some((code) => SPOILED_CODES.has(code)))) return { kind: "begin" };
  if (status >= 500 && status !== 507) return { kind: "wait", ms: null };
  if (status === 408) return { kind: "wait", ms: null };
  const said = errors.map(({ message }) => message).find((message) => message !== "");
  return { kind: "refused", text: `the registry refuses it (${status})${said === undefined ? "" : `: ${said}`}` };
}

/** The byte at which an upload continues, from its `Range`; null: it does not say. */
export function offsetIn(range: string | null): number | null {
  const last = /^(?:bytes=)?0-(\d{1,15})$/.exec(range ?? "")?.[1];
  // An empty upload has the same range as one of one byte, which no part of ours has.
  return last === undefined ? null : last === "0" ? 0 : Number(last) + 1;
}

/** The path of a `Location`, which may have a host; null: it is not one below `/v2/`. */
export function locationIn(location: string | undefined, base: string): string | null {
  const url = location === undefined || location.length > 8192 ? null : URL.parse(location, `http://registry${base}`);
  return url === null || !url.pathname.startsWith("/v2/") ? null : `${url.pathname}${url.search}`;
}

function waitMs(retryAfter: string | null, now: number): number | null {
  if (retryAfter === null) return null;
  const ms = /^\d{1,6}$/.test(retryAfter) ? Number(retryAfter) * 1000 : Date.parse(retryAfter) - now;
  return Number.isNaN(ms) ? null : Math.min(Math.max(ms, 0), WAIT_MS_MAX);
}

interface RegistryProblem {
  readonly code: string;
  readonly message: string;
  readonly digest: string | null;
}

function errorsIn(body: string): readonly RegistryProblem[] {
  let document: unknown;
  try {
    document = JSON.parse(body);
  } catch {
    return [];
  }
  const errors = (document as { readonly errors?: unknown } | null)?.errors;
  if (!Array.isArray(errors)) return [];
  return errors.slice(0, 1000).map((error: unknown) => {
    const { code, message, detail } = (error ?? {}) as Readonly<Record<string, unknown>>;
    const named = typeof detail === "object" && detail !== null ? (detail as { digest?: unknown }).digest : detail;
    return {
      code: typeof code === "string" ? code : "",
      message: typeof message === "string" ? shown(message) : "",
      digest: typeof named === "string" && /^sha256:[0-9a-f]{64}$/.test(named) ? named : null,
    };
  });
}

const shown = (text: string): string =>
  text
    .replace(/[\p{Cc}\p{Cs}]+/gu, " ")
    .trim()
    .slice(0, TEXT_CHARACTERS_MAX);
