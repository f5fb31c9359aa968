/**
 * When the waiting for a change of an app ends, and with what result: a row for each way.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { AppInfo } from "@flotilla/sdk";
import { hasEnded, judge } from "./wait.ts";

const app = (more: Partial<AppInfo>): AppInfo => ({
  ...{ id: "app-1", name: "web", image: "i", replicas: 1, status: "running", port: 80, domain: null, instances: [] },
  ...{ createdAt: "2026-01-01T00:00:00Z", updatedAt: "2026-01-01T00:00:00Z", url: "http://web.localhost/" },
  ...{ release: 1, createdBy: "key-1", message: null, rollout: null },
  ...more,
});

const rollout = (operationId: string, to: number, phase: NonNullable<AppInfo["rollout"]>["phase"] = "checking") => ({
  ...{ operationId, to, phase, strategy: "canary" as const, from: 1, message: "release 2 was rolled back: too slow" },
  ...{ waitingFor: null, startedAt: "2026-01-01T00:00:00Z", deadline: null },
});

const begun = app({ status: "deploying", rollout: rollout("op-1", 2) });
const scaled = app({ status: "deploying", replicas: 2 });

for (const [what, first, now, isEnded, refusal] of [
  ["a rollout under way", begun, begun, false, null],
  ["a rollout that succeeded", begun, app({ release: 2 }), true, null],
  ["a rollout that failed", begun, app({ rollout: rollout("op-1", 2, "failed") }), true, /rolled back: too slow/],
  ["canaries that wait", begun, app({ status: "awaitingPromotion", rollout: rollout("op-1", 2) }), true, null],
  ["another rollout", begun, app({ status: "deploying", rollout: rollout("op-2", 3) }), true, /superseded/],
  ["another rollout that has ended", begun, app({ release: 3 }), true, /superseded/],
  ["another app of the name", begun, app({ id: "app-2", release: 2 }), true, /destroyed/],
  ["a new number that is not reached", scaled, scaled, false, null],
  ["a new number that is reached", scaled, app({ replicas: 2 }), true, null],
  ["instances that fail", scaled, app({ status: "degraded", message: "one fails" }), true, /one fails/],
  ["a failed rollout before it", app({ rollout: rollout("op-1", 2, "failed") }), app({}), true, null],
] as const)
  test(`${what} ${isEnded ? "ends" : "continues"} the waiting${refusal === null ? "" : ", with a reason"}`, () => {
    assert.equal(hasEnded(first, now), isEnded);
    if (refusal === null) {
      if (isEnded) judge(first, now);
    } else assert.throws(() => judge(first, now), refusal);
  });
