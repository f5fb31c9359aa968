/**
 * Recognises sums that are too large for PostgreSQL's types. Pure.
 */
const NUMERIC_VALUE_OUT_OF_RANGE = "22003";

/** Whether a statement failed because a number is too large for its type, such as a sum beyond 2^63. */
export const isOutOfRange = (error: unknown): error is Error =>
  error instanceof Error && "code" in error && error.code === NUMERIC_VALUE_OUT_OF_RANGE;
