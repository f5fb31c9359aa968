/**
 * What results of health checks mean: every combination of facts, and histories of results.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type CheckResult, counted, type CountedHealth, MEANINGS, meaningOf, NOTHING_CHECKED } from "./counter.ts";

const SUCCESS: CheckResult = { isHealthy: true };
const failure = (reason = "no"): CheckResult => ({ isHealthy: false, reason });

const STATUSES = ["unknown", "healthy", "unhealthy"] as const;

test("every combination of facts has the meaning that the table says", () => {
  const seen = new Set<string>();
  for (const isHealthy of [true, false])
    for (const status of STATUSES)
      for (const isEarly of [true, false])
        for (const failures of [1, 2, 3, 4]) {
          const { meaning, why } = meaningOf({ isHealthy, status, isEarly, failures, retries: 3 });
          seen.add(meaning);
          const expected = isHealthy
            ? "healthy"
            : isEarly
              ? "ignored"
              : status === "unhealthy" || failures >= 3
                ? "unhealthy"
                : "counted";
          assert.equal(meaning, expected, JSON.stringify({ isHealthy, status, isEarly, failures, why }));
        }
  assert.deepEqual([...seen].toSorted(), [...MEANINGS].toSorted());
});

interface Step {
  readonly result: CheckResult;
  readonly isEarly: boolean;
}

/** The health after these results, one in each second. */
const after = (steps: readonly Step[], retries = 3, before: CountedHealth = NOTHING_CHECKED): CountedHealth =>
  steps.reduce<CountedHealth>(
    (health, { result, isEarly }, index) => counted(health, result, { isEarly, retries, now: (index + 1) * 1000 }),
    before,
  );

const due = (...results: readonly CheckResult[]): Step[] => results.map((result) => ({ result, isEarly: false }));

test("the first success makes it healthy, whatever was before", () => {
  assert.deepEqual(after(due(SUCCESS)).health, { status: "healthy", since: 1000, reason: null });
  const early = [failure("a"), failure("b")].map((result) => ({ result, isEarly: true }));
  assert.deepEqual(after([...early, ...due(SUCCESS)]).health, { status: "healthy", since: 3000, reason: null });
  assert.deepEqual(after(due(failure(), failure(), failure(), SUCCESS)).health.since, 4000);
});

test("a server that takes long to start is unknown with the reason, then unhealthy, and one success ends that", () => {
  assert.deepEqual(after([{ result: failure("early"), isEarly: true }]), { ...NOTHING_CHECKED, meaning: "ignored" });
  assert.deepEqual(after(due(failure("refused"))).health, { status: "unknown", since: null, reason: "refused" });
  const unhealthy = after(due(failure("a"), failure("b"), failure("c"), failure("d")));
  assert.deepEqual(unhealthy.health, { status: "unhealthy", since: 3000, reason: "d" });
});

test("failures in a row make a healthy one unhealthy, and a success in between begins the count again", () => {
  const flap = after(due(SUCCESS, failure(), failure(), SUCCESS, failure(), failure()));
  assert.deepEqual(flap.health, { status: "healthy", since: 1000, reason: null });
  assert.deepEqual(after(due(SUCCESS, failure(), failure(), failure("last"))).health, {
    status: "unhealthy",
    since: 4000,
    reason: "last",
  });
  assert.equal(after(due(SUCCESS, failure("once")), 1).health.status, "unhealthy");
});

test("after any results the last success or the failures that count decide, and since is when the status began", () => {
  const step = fc.record({
    result: fc.oneof(fc.constant(SUCCESS), fc.string().map(failure)),
    isEarly: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), fc.integer({ min: 1, max: 5 }), (steps, retries) => {
      const lastSuccess = steps.findLastIndex(({ result }) => result.isHealthy);
      const since = steps.slice(lastSuccess + 1).filter(({ isEarly }) => !isEarly);
      const { health } = after(steps, retries);
      const expected = since.length >= retries ? "unhealthy" : lastSuccess >= 0 ? "healthy" : "unknown";
      assert.equal(health.status, expected);
      assert.equal(health.since === null, expected === "unknown");
      const states = steps.map((_, index) => after(steps.slice(0, index + 1), retries).health);
      for (const [index, state] of states.entries()) {
        const { status, since: at } = states[index - 1] ?? NOTHING_CHECKED.health;
        if (state.status === status) assert.equal(state.since, at);
        else assert.equal(state.since, (index + 1) * 1000);
      }
    }),
  );
});
