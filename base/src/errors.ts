/**
 * Any thrown value, as an Error or as text.
 */

/** The thrown value when it is an Error, else an Error with its text. */
export const errorOf = (thrown: unknown): Error => (thrown instanceof Error ? thrown : new Error(String(thrown)));

/**
 * The message of a thrown value, without its cause. For texts that users see: a cause may contain internals.
 */
export const ownMessageOf = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown));

/** The message of a thrown value and those of its causes: `image is damaged: no such file`. */
export function messageOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown);
  // Connecting to a name with several addresses fails with all their errors, and without a message.
  const errors = thrown.message === "" && thrown instanceof AggregateError ? thrown.errors : [];
  const message = errors.length > 0 ? errors.map(messageOf).join(", ") : thrown.message;
  return thrown.cause === undefined ? message : `${message}: ${messageOf(thrown.cause)}`;
}
