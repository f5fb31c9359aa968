/**
 * The patterns that names in requests must match, and what each means, for refusals that people read.
 */

export const NO_NUL = "^[^\\u0000]*$";
/** Printable characters without spaces. */
export const IDEMPOTENCY_KEY_FORM = "^[\\x21-\\x7e]{1,255}$";
/** Not an option of a program that a script passes it to. */
export const MACHINE_NAME = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,62}$";
export const LABEL_NAME = "^[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?$";
export const SESSION_ID = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$";
/** Drawn by its client: 128 random bits. */
export const TERMINAL_ID = "^[0-9a-f]{32}$";
export const NODE_ID = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$";
export const NODE_LABEL_NAME = "^[^\\u0000]+$";
/** Ids of tenants and plans. */
export const RECORD_ID = "^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$";
/** What the lines of an invoice are grouped by. */
export const INVOICE_GROUP = "^(machine|app|key|label:[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?)$";
/** A type of events or of recorded calls, or all that begin with its first part. */
export const TYPE_PATTERN = "^[a-z]+\\.([A-Za-z]+|\\*)$";

const MEANINGS: Readonly<Record<string, string>> = {
  [NO_NUL]: "text without NUL characters",
  [MACHINE_NAME]: "1 to 63 letters, digits, `-`, `_` or `.`, the first of them not `.` or `-`",
  [LABEL_NAME]: "1 to 63 lower-case letters, digits, `-`, `_`, `.` or `/`, the first and the last a letter or digit",
  [SESSION_ID]: "1 to 128 letters, digits, `-`, `_` or `.`, the first of them not `.` or `-`",
  [TERMINAL_ID]: "32 hexadecimal digits in lower case",
  [NODE_ID]: "1 to 128 letters, digits, `-`, `_` or `.`, the first of them a letter or digit",
  [NODE_LABEL_NAME]: "at least one character, and no NUL",
  [RECORD_ID]: "1 to 64 letters, digits, `-` or `_`, the first of them not `-`",
  [TYPE_PATTERN]: "a type such as machine.failed, or machine.* for all that begin so",
  [INVOICE_GROUP]: "machine, app, key or label:NAME",
};

/** What text must be to match the pattern. */
export const patternMeaning = (pattern: string): string => MEANINGS[pattern] ?? `text that matches ${pattern}`;
