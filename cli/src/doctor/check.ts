/**
 * What the doctor says of one thing. Types only.
 */

export interface Check {
  readonly name: string;
  readonly status: "ok" | "warn" | "bad";
  /** What was found. */
  readonly value: string;
  /** What it means, and what to do about it. */
  readonly meaning: string;
}
