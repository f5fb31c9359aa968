/**
 * The text with which a program ends that could not start or could not do its work: for a full disk with what
 * to do.
 */
import { ownMessageOf } from "@flotilla/base/errors";
import { DatabaseFull } from "./database.ts";
import { isDiskFull } from "./postgres.ts";

const ADVICE = "make room there (`df -h` and `df -i` show it) and repeat this: nothing that was stored is lost";

export function failureText(error: unknown): string {
  const text = ownMessageOf(error);
  if (error instanceof DatabaseFull) return `${text}; ${ADVICE}`;
  const { code } = (error ?? {}) as NodeJS.ErrnoException;
  const isFull = code === "ENOSPC" || code === "EDQUOT" || isDiskFull(error);
  return isFull ? `the disk is full: ${text}; ${ADVICE}` : text;
}
