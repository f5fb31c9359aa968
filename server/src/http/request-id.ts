/**
 * The id of a request in the log: the caller's own if it is safe to print, otherwise a new one.
 *
 * A new id is random bytes of this process and a count, so that one request costs no call for randomness
 * (which was a twentieth of the time of a small request) and two servers never make the same.
 */

export type RequestIds = (header: string | string[] | undefined) => string;

const SAFE = /^[A-Za-z0-9._-]{1,128}$/;
/** A credential by mistake would be in every log. */
const CREDENTIAL = /(?:sm[kcs]|whsec)_/;

export function requestIds(randomBytes: (size: number) => Buffer): RequestIds {
  const prefix = `req-${randomBytes(12).toString("hex")}`;
  let count = 0;
  return (header) => {
    if (typeof header === "string" && SAFE.test(header) && !CREDENTIAL.test(header)) return header;
    count = (count + 1) % 0x1_0000_0000;
    return prefix + count.toString(16).padStart(8, "0");
  };
}
