/**
 * The id under which a request is found in the log: the caller's own when it is safe to print, else a new one. Pure.
 */

const SAFE = /^[A-Za-z0-9._-]{1,128}$/;

export function requestIdOf(header: string | string[] | undefined, randomBytes: (size: number) => Buffer): string {
  return typeof header === "string" && SAFE.test(header) ? header : `req-${randomBytes(16).toString("hex")}`;
}
