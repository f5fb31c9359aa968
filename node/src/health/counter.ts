/**
 * What the results of checks mean: the health of a boot → one result → its health after it. Pure.
 *
 * Always:
 * - One success makes it healthy, in every state; nothing else does.
 * - It becomes unhealthy by failures in a row, which count when they are about an interval apart: a server
 *   that is starting is asked more often than that, and has the same time as any other.
 * - `since` changes with the status, and only then.
 */
import type { MachineHealth } from "@flotilla/contract/link/link";

export type CheckResult = { readonly isHealthy: true } | { readonly isHealthy: false; readonly reason: string };

/** The health of a boot, and how many failures in a row have counted. */
export interface CountedHealth {
  readonly health: MachineHealth;
  readonly failures: number;
}

/** No check of the boot has counted yet. */
export const NOTHING_CHECKED: CountedHealth = {
  health: { status: "unknown", since: null, reason: null },
  failures: 0,
};

export interface ResultFacts {
  readonly isHealthy: boolean;
  readonly status: MachineHealth["status"];
  /** A failure before has counted, or the boot began, less than an interval ago. */
  readonly isEarly: boolean;
  /** Failures in a row that count, with this one. */
  readonly failures: number;
  /** This many make it unhealthy. */
  readonly retries: number;
}

/** `ignored`: nothing changes. `counted`: the status stays, for now. */
export const MEANINGS = ["healthy", "ignored", "counted", "unhealthy"] as const;
export type Meaning = (typeof MEANINGS)[number];

interface Rule {
  readonly why: string;
  readonly test: (facts: ResultFacts) => boolean;
  readonly then: Meaning;
}

/**
 * First match wins.
 *
 *     result   apart     in a row   status     → meaning
 *     success                                  → healthy
 *     failure  too soon                        → ignored
 *     failure                       unhealthy  → unhealthy
 *     failure            too few               → counted
 *     failure            enough                → unhealthy
 */
const RULES: readonly Rule[] = [
  { why: "one success is enough", test: ({ isHealthy }) => isHealthy, then: "healthy" },
  { why: "it is the same failure as the last one", test: ({ isEarly }) => isEarly, then: "ignored" },
  { why: "it has not succeeded since", test: ({ status }) => status === "unhealthy", then: "unhealthy" },
  { why: "the next one may succeed", test: ({ failures, retries }) => failures < retries, then: "counted" },
  { why: "it has failed too often in a row", test: () => true, then: "unhealthy" },
];

export function meaningOf(facts: ResultFacts): { readonly meaning: Meaning; readonly why: string } {
  const rule = RULES.find(({ test }) => test(facts));
  // The last rule matches everything.
  return { meaning: rule?.then ?? "unhealthy", why: rule?.why ?? "" };
}

/** Its health after one more result. `now`: epoch milliseconds. */
export function counted(
  before: CountedHealth,
  result: CheckResult,
  { isEarly, retries, now }: Pick<ResultFacts, "isEarly" | "retries"> & { readonly now: number },
): CountedHealth & { readonly meaning: Meaning } {
  const { status, since } = before.health;
  const failures = before.failures + 1;
  const { meaning } = meaningOf({ isHealthy: result.isHealthy, status, isEarly, failures, retries });
  const reason = result.isHealthy ? null : result.reason;
  switch (meaning) {
    case "ignored":
      return { ...before, meaning };
    case "counted":
      return { health: { ...before.health, reason: status === "healthy" ? null : reason }, failures, meaning };
    default:
      return {
        health: { status: meaning, since: status === meaning ? since : now, reason },
        failures: result.isHealthy ? 0 : failures,
        meaning,
      };
  }
}
