/**
 * Targets that did not accept a connection lately, and are passed over for a moment (passive detection).
 * Pure: the time is a parameter.
 *
 * Always: each says at most when its own connections failed here; whether it is healthy is for its node to
 * say.
 */

/** How long a target that refused is passed over, if there are others. */
export const PASSED_OVER_MS = 1_000;

/** Until when each is passed over, by the id of its machine. */
export type Failures = ReadonlyMap<string, number>;

export const NO_FAILURES: Failures = new Map();

/** The target refused. What has passed is dropped, so that there are no more than refused in a second. */
export const withFailure = (failures: Failures, machineId: string, now: number): Failures => {
  const left = new Map([...failures].filter(([, until]) => until > now));
  return left.set(machineId, now + PASSED_OVER_MS);
};

/** The target accepted. */
export function withoutFailure(failures: Failures, machineId: string): Failures {
  if (!failures.has(machineId)) return failures;
  const left = new Map(failures);
  left.delete(machineId);
  return left;
}

export const isPassedOver = (failures: Failures, machineId: string, now: number): boolean =>
  (failures.get(machineId) ?? Number.NEGATIVE_INFINITY) > now;
