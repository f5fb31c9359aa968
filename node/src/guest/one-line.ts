/**
 * What a guest has said, as text that can be shown in a line. Pure.
 *
 * Always: no control characters, and no line breaks. Bytes that are not text are U+FFFD, as is a character
 * that was cut.
 */
export const oneLine = (bytes: Uint8Array): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    .toString("utf8")
    .replace(/[\p{C}\s]+/gu, " ")
    .trim();
