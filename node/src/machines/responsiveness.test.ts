/**
 * Tests of the table that tells a guest that hangs from one that is busy, slow or held: all pairs of facts.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  countedMs,
  EXCUSES,
  type Excuse,
  type GuestFacts,
  judge,
  LOOK_MS,
  type Verdict,
  VERDICTS,
} from "./responsiveness.ts";

const ASKED = [null, 0, 29_999, 30_000, 119_999, 120_000, 179_999, 180_000, 719_999, 720_000, 10_000_000] as const;
/** The VM has had a processor for these parts of the time. */
const SHARES = [0, 0.1, 0.49, 0.5, 1, 4] as const;
const QUIET = [0, 19_999, 20_000, 600_000] as const;
const EXCUSED: readonly (Excuse | null)[] = [null, ...(Object.keys(EXCUSES) as Excuse[])];

const ALL: readonly GuestFacts[] = EXCUSED.flatMap((excuse) =>
  ASKED.flatMap((askedMs) =>
    SHARES.flatMap((share) => QUIET.map((quietMs) => ({ excuse, askedMs, quietMs, ranMs: (askedMs ?? 0) * share }))),
  ),
);
const SEVERITY: readonly Verdict[] = ["answers", "ask", "wait", "silent", "hung"];
const severity = (facts: GuestFacts): number => SEVERITY.indexOf(judge(facts).verdict);

test("every pair of facts has a verdict and a reason, and each verdict is reached", () => {
  for (const facts of ALL) assert.notEqual(judge(facts).why, "", JSON.stringify(facts));
  assert.deepEqual(new Set(ALL.map((facts) => judge(facts).verdict)), new Set(VERDICTS));
});

test("a guest that is moved, suspended, paused, replaced or ended is never judged, however long it is silent", () => {
  for (const facts of ALL) {
    const { verdict, why } = judge(facts);
    assert.equal(verdict === "notJudged", facts.excuse !== null, JSON.stringify(facts));
    if (facts.excuse !== null) assert.equal(why, EXCUSES[facts.excuse]);
  }
});

test("no guest is silent that was not asked half a minute ago, and none is hung that was not asked three minutes ago", () => {
  for (const facts of ALL) {
    const { verdict } = judge(facts);
    if (verdict === "silent") assert.ok((facts.askedMs ?? 0) >= 30_000, JSON.stringify(facts));
    if (verdict === "hung") assert.ok((facts.askedMs ?? 0) >= 180_000, JSON.stringify(facts));
    if (facts.askedMs === null && facts.excuse === null)
      assert.equal(verdict, facts.quietMs < 20_000 ? "answers" : "ask", JSON.stringify(facts));
  }
});

test("a guest that computes has four times as long, and one that does not is found within three minutes", () => {
  const at = (askedMs: number, share: number): Verdict =>
    judge({ excuse: null, quietMs: askedMs, askedMs, ranMs: askedMs * share }).verdict;
  assert.deepEqual([at(30_000, 0), at(180_000, 0)], ["silent", "hung"]);
  assert.deepEqual(
    [at(119_999, 1), at(120_000, 1), at(719_999, 1), at(720_000, 1)],
    ["wait", "silent", "silent", "hung"],
  );
});

test("longer silence is never a milder verdict, and more computing never a harder one", () => {
  for (const facts of ALL.filter(({ excuse, askedMs }) => excuse === null && askedMs !== null)) {
    const { askedMs, ranMs } = facts;
    const share = askedMs === null || askedMs === 0 ? 0 : ranMs / askedMs;
    const longer = { ...facts, askedMs: (askedMs ?? 0) * 2, ranMs: (askedMs ?? 0) * 2 * share };
    assert.ok(severity(longer) >= severity(facts), JSON.stringify(facts));
    assert.ok(severity({ ...facts, ranMs: ranMs * 2 }) <= severity(facts), JSON.stringify(facts));
  }
});

test("time in which a VM had to wait for a processor counts less, but counts", () => {
  assert.equal(countedMs(null), LOOK_MS);
  assert.equal(countedMs({ waitedMs: 0 }), LOOK_MS, "a VMM that is stopped");
  assert.equal(countedMs({ waitedMs: 20 }), LOOK_MS - 20, "one that does little, on a host that is busy");
  assert.equal(countedMs({ waitedMs: 2_000 }), LOOK_MS - 2_000);
  assert.equal(countedMs({ waitedMs: 40_000 }), LOOK_MS / 4, "several threads that wait");
});
