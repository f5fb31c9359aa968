/**
 * The first bytes of what a guest has said, as text that can be shown in a line. Pure.
 */

/** How much of it is shown. */
export const FIRST_BYTES = 200;

/** Without control characters; bytes that are not text are U+FFFD, as is a character that was cut. */
export const firstLine = (bytes: Uint8Array): string =>
  Buffer.from(bytes.subarray(0, FIRST_BYTES))
    .toString("utf8")
    .replace(/[\p{C}\s]+/gu, " ")
    .trim();
