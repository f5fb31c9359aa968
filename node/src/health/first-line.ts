/**
 * The first bytes of what a guest has said, as text that can be shown in a line. Pure.
 */
import { oneLine } from "../guest/one-line.ts";

/** How much of it is shown. */
export const FIRST_BYTES = 200;

export const firstLine = (bytes: Uint8Array): string => oneLine(bytes.subarray(0, FIRST_BYTES));
