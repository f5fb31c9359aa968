/**
 * When the memory of a guest that runs has been sent in enough rounds: the rest is sent while it is paused.
 * Pure.
 */
import type { Extent } from "../images/blocks.ts";

export const ROUNDS_MAX = 12;
/** How much is left for the last rounds. */
const ROUND_BYTES_ENOUGH = 4 * 2 ** 20;
/**
 * A round that is not this much smaller than the one before says that the guest writes as fast as it is sent.
 */
const ROUND_SHRINKS = 0.8;

export const bytesOf = (parts: readonly Extent[]): number =>
  parts.reduce((sum, { start, end }) => sum + end - start, 0);

/** Whether no round follows one of `bytes`. `before`: of the round before it. */
export const isLastRound = (bytes: number, before: number): boolean =>
  bytes <= ROUND_BYTES_ENOUGH || bytes > before * ROUND_SHRINKS;
