/**
 * From a Refusal to the answer on the wire: the only place where refusals become HTTP. Pure.
 *
 * Always:
 * - An answer is one plain sentence; RFC 9457 JSON for callers that accept JSON.
 * - 401 has the fixed forms that clients know: empty without a key, a small JSON object for an invalid key.
 * - Every answer has `x-error-code`.
 * - `unavailable` says when to try again.
 */
import { ERRORS, type Refusal } from "@flotilla/contract/errors";

const UNAVAILABLE_SECONDS = 1;

export interface ErrorAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export function errorAnswer(refusal: Refusal, accept: string | undefined, requestId: string): ErrorAnswer {
  const { status } = refusal;
  const headers: Record<string, string> = { ...refusal.headers, "x-error-code": refusal.code };
  if (refusal.code === "unavailable") headers["retry-after"] ??= String(UNAVAILABLE_SECONDS);
  if (status === 401) {
    headers["www-authenticate"] = "Bearer";
    if (refusal.code === "missing_key") return { status, headers, body: "" };
    headers["content-type"] = "application/json";
    return { status, headers, body: JSON.stringify({ code: refusal.code, error: refusal.message }) };
  }
  const form = /application\/(problem\+json|json)/i.exec(accept ?? "")?.[0].toLowerCase();
  if (form === undefined) {
    headers["content-type"] = "text/plain; charset=utf-8";
    return { status, headers, body: refusal.message };
  }
  headers["content-type"] = form;
  const body = {
    type: "about:blank",
    title: ERRORS[refusal.code].meaning,
    status,
    detail: refusal.message,
    code: refusal.code,
    requestId,
    ...(Object.keys(refusal.details).length === 0 ? {} : { details: refusal.details }),
  };
  return { status, headers, body: JSON.stringify(body) };
}
