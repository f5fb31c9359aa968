/**
 * Whether a request that an instance did not answer is sent to another one. Pure.
 *
 * Always: a request is sent again only if no byte of it can have been acted upon.
 */

/**
 * How an attempt ended without an answer. `unconnected`: there was no connection, so nothing was sent.
 * `unanswered`: a request that is safe and has no body was sent, and the connection was closed without a byte
 * of an answer. `failed`: anything else. `left`: its caller has disconnected, or has no right any more.
 */
export const ENDS = ["unconnected", "unanswered", "failed", "left"] as const;
export type End = (typeof ENDS)[number];

export interface Attempts {
  /** How many were made. */
  readonly made: number;
  /** How many of them ended `unanswered`. */
  readonly unanswered: number;
  /** Whether there is an instance that was not tried. */
  readonly isAnyLeft: boolean;
}

/** How many instances one request is tried on. */
const MADE_MAX = 5;
/** A request that ends its instance must not end all of them. */
const UNANSWERED_MAX = 1;

const IS_SENT_AGAIN: Readonly<Record<End, (attempts: Attempts) => boolean>> = {
  unconnected: ({ made, isAnyLeft }) => isAnyLeft && made < MADE_MAX,
  unanswered: ({ unanswered, isAnyLeft }) => isAnyLeft && unanswered <= UNANSWERED_MAX,
  failed: () => false,
  left: () => false,
};

/** `attempts`: with the one that has ended. */
export const isSentAgain = (end: End, attempts: Attempts): boolean => IS_SENT_AGAIN[end](attempts);
