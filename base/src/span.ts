/**
 * Durations as people read them. Pure.
 */
const SPANS: readonly (readonly [seconds: number, unit: string])[] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
];

/** A duration in its largest unit that leaves at least 2: `95 s`, `3 min`, `2 d`. */
export function renderSpan(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  for (const [length, unit] of SPANS) if (seconds >= 2 * length) return `${Math.floor(seconds / length)} ${unit}`;
  return `${seconds} s`;
}
