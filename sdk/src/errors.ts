/**
 * The error that every method of the SDK throws when a call fails.
 *
 * Always: `code` is for programs, `text` is the server's sentence for people. A call that got no answer has
 * status 0 and a NoAnswerCode.
 */
import { ADVICE, type ErrorCode } from "./advice.ts";
import type { RefusalDetails } from "./generated.ts";

/**
 * Codes of calls without an answer: nothing listens or the connection broke; the timeout passed; the caller
 * cancelled.
 */
export type NoAnswerCode = "unreachable" | "timeout" | "aborted";

/**
 * What a `switch` over `code` may meet. Servers of later releases have further codes, and what is between
 * caller and server its own statuses.
 */
export type FailureCode = ErrorCode | NoAnswerCode | "exec_failed" | (string & {});

export class FlotillaError extends Error {
  /** The HTTP status; 0 when there was no answer. */
  readonly status: number;
  /**
   * The server's code of the refusal (header `x-error-code`), such as `not_found`; or a NoAnswerCode; or
   * `http_<status>`.
   */
  readonly code: FailureCode;
  /** One sentence for people: what was refused, why, and what to do. */
  readonly text: string;
  /** The call's id in the server's log; null when there was no answer. */
  readonly requestId: string | null;
  /** The call, such as `POST /v1/machines`. */
  readonly call: string;
  /**
   * What the refusal says to programs: the field, limit, resource or call that it is about. Empty when it
   * says nothing.
   */
  readonly details: RefusalDetails;

  constructor(
    facts: {
      status: number;
      code: string;
      text: string;
      requestId: string | null;
      call: string;
      details?: RefusalDetails;
    },
    options: ErrorOptions = {},
  ) {
    super(facts.requestId === null ? facts.text : `${facts.text} [request id: ${facts.requestId}]`, options);
    this.name = "FlotillaError";
    this.status = facts.status;
    this.code = facts.code;
    this.text = facts.text;
    this.requestId = facts.requestId;
    this.call = facts.call;
    this.details = facts.details ?? {};
  }

  /** What the caller of any call with this code can do; null for a code that this release does not know. */
  get advice(): string | null {
    const advice: Readonly<Record<string, string>> = { ...ADVICE, ...NO_ANSWER_ADVICE };
    return Object.hasOwn(advice, this.code) ? (advice[this.code] ?? null) : null;
  }
}

const NO_ANSWER_ADVICE: Readonly<Record<NoAnswerCode, string>> = {
  unreachable: "check the address, and whether the server runs",
  timeout: "allow more time; the call may have been done",
  aborted: "its caller cancelled it; it may have been done",
};

/** Max bytes of a refusal's body; more is not read. */
const BODY_BYTES_MAX = 64 * 1024;
const TEXT_CHARACTERS_MAX = 10_000;

/** Reads a refusal in any of its forms: plain text, RFC 9457 (`detail`) or the key errors' JSON (`error`). */
export async function errorOfAnswer(answer: Response, call: string): Promise<FlotillaError> {
  const raw = (await beginningOf(answer).catch(() => "")).slice(0, TEXT_CHARACTERS_MAX).trim();
  const json = parseObject(raw);
  const stated = json["detail"] ?? json["error"] ?? json["title"];
  const status = answer.status;
  const text = typeof stated === "string" ? stated : raw;
  const code = answer.headers.get("x-error-code") ?? json["code"];
  return new FlotillaError({
    status,
    code: typeof code === "string" ? code : status === 401 ? "missing_key" : `http_${status}`,
    text: text !== "" ? text : status === 401 ? "the call needs an API key" : `the server answered ${status}`,
    requestId: answer.headers.get("x-request-id"),
    call,
    details: detailsOf(json["details"]),
  });
}

/** An answer of something else than Flotilla may have any value there. */
const detailsOf = (value: unknown): RefusalDetails => (typeof value === "object" && value !== null ? value : {});

/** What is in between the caller and the server may answer with anything, and without an end. */
async function beginningOf(answer: Response): Promise<string> {
  if (answer.body === null) return "";
  const decoder = new TextDecoder();
  const reader = (answer.body as ReadableStream<Uint8Array>).getReader();
  let text = "";
  for (let bytes = 0; bytes < BODY_BYTES_MAX; ) {
    const { value, done } = await reader.read();
    if (done) return text + decoder.decode();
    text += decoder.decode(value, { stream: true });
    bytes += value.byteLength;
  }
  await reader.cancel().catch(() => undefined);
  return text;
}

function parseObject(raw: string): Readonly<Record<string, unknown>> {
  if (!raw.startsWith("{")) return {};
  try {
    return JSON.parse(raw) as Record<string, unknown>;
  } catch {
    return {};
  }
}
