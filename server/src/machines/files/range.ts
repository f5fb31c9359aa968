/**
 * Which part of a file a request asks for. Pure.
 *
 * Always: what is no single range of bytes is ignored, as the standard asks for; the whole file is answered then.
 */

/** As it is sent to the machine, before the file's size is known. */
export interface Part {
  readonly offset: number;
  /** null: to the end. */
  readonly length: number | null;
  readonly isFromEnd: boolean;
}

export const WHOLE: Part = { offset: 0, length: null, isFromEnd: false };

/** The header `Range`; undefined when there is none that counts. */
export function parseRange(header: string | undefined): Part | undefined {
  const [, first = "", last = ""] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header?.replaceAll(" ", "") ?? "") ?? [];
  if (first === "") return last === "" ? undefined : { offset: Number(last), length: null, isFromEnd: true };
  if (last === "") return { offset: Number(first), length: null, isFromEnd: false };
  const length = Number(last) - Number(first) + 1;
  return length > 0 ? { offset: Number(first), length, isFromEnd: false } : undefined;
}

/** First byte and number of bytes of the part in a file of this size; undefined when it has none of them. */
export function locate(
  { offset, length, isFromEnd }: Part,
  size: number,
): { readonly first: number; readonly count: number } | undefined {
  const first = isFromEnd ? Math.max(0, size - offset) : offset;
  if (first >= size) return undefined;
  return { first, count: Math.min(length ?? Number.POSITIVE_INFINITY, size - first) };
}
