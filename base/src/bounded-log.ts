/**
 * Bounds a log file to which running programs append.
 *
 * Always: the file stays the same one, because the programs keep it open (with O_APPEND). What it had becomes
 * `<path>.1`, in place of an earlier one. Lines that are written during that moment may be lost.
 */
import { copyFile, rm, stat, truncate } from "node:fs/promises";
import { type Clock, every } from "./clock.ts";

export const LOG_BYTES_MAX = 16 * 1024 * 1024;
const LOOK_MS = 10_000;

/** Begins the log again if it is too large. */
export async function boundLog(path: string): Promise<void> {
  const size = (await stat(path).catch(() => null))?.size ?? 0;
  if (size <= LOG_BYTES_MAX) return;
  const previous = `${path}.1`;
  // On a full disk its lines are lost, which makes room.
  await copyFile(path, previous).catch(() => rm(previous, { force: true }));
  await truncate(path);
}

/** Does so periodically until the returned function is called. */
export const keepBounded = (clock: Clock, path: string): (() => void) =>
  // A file that cannot be changed now may be later.
  every(clock, LOOK_MS, () => void boundLog(path).catch(() => undefined));
