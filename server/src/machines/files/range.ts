/**
 * Which part of a file a request asks for. Pure.
 *
 * Always: a header that is not a single range of bytes is ignored, as the standard requires; the whole file
 * is answered then.
 */
import type { FilePart } from "@flotilla/contract/link/file-parts";

/** The header `Range`; undefined when it is missing or ignored. */
export function parseRange(header: string | undefined): FilePart | undefined {
  const [, first = "", last = ""] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header?.replaceAll(" ", "") ?? "") ?? [];
  if (first === "") return last === "" ? undefined : { offset: Number(last), length: null, isFromEnd: true };
  if (last === "") return { offset: Number(first), length: null, isFromEnd: false };
  const length = Number(last) - Number(first) + 1;
  return length > 0 ? { offset: Number(first), length, isFromEnd: false } : undefined;
}
