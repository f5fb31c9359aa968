/**
 * The sentences of a plan: each strategy tells its rollout, and ends.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { rehearse } from "./rehearse.ts";
import type { AppFacts, Instance, Strategy } from "./rollout/facts.ts";

const NOW = 1_000_000;

const serving = (id: string): Instance => ({
  id,
  release: 1,
  nodeId: "node-a",
  state: "running",
  health: "healthy",
  healthSince: 1,
  reason: null,
  isHopeless: false,
  madeAt: 1,
  isRouted: true,
  isConfirmed: true,
  unroutedAt: null,
  openRequests: 0,
  isDrained: false,
  retiredAt: null,
  isRemoved: false,
});

const facts = (strategy: Strategy, count: number, before: number): AppFacts => ({
  ...{ count, isDestroyed: false, current: before === 0 ? null : 1, surge: 1, graceMs: 0, unhealthyMs: 60_000 },
  ...{ retryAt: null, instances: Array.from({ length: before }, (_, at) => serving(`old-${at}`)) },
  rollout: { to: 2, strategy, isPromoted: false, progress: null, placingMs: 60_000, checkingMs: 60_000 },
});

const ROLLING = { type: "rolling", batchSize: 1, waitMs: 5_000 } as const;

test("the first release of an app is made, gets requests and is done", () => {
  const sentences = rehearse(facts(ROLLING, 3, 0), NOW);
  assert.match(sentences[0] ?? "", /^make 3 instances: /);
  assert.match(sentences.at(-1) ?? "", /^end: release 2 serves with 3 instances/);
});

test("a rolling update tells each batch; blue-green tells one switch", () => {
  const rolling = rehearse(facts(ROLLING, 3, 3), NOW);
  assert.equal(rolling.filter((each) => each.startsWith("make ")).length, 3);
  assert.match(rolling.at(-1) ?? "", /^end: /);
  const blueGreen = rehearse(facts({ type: "blueGreen" }, 3, 3), NOW);
  assert.deepEqual(
    blueGreen.filter((each) => /^(make|promote)/.test(each)).map((each) => each.split(":")[0]),
    ["make 3 instances", "promote"],
  );
});

test("a canary without promotion ends where a person is needed", () => {
  const canary = { type: "canary", canaryCount: 1, autoPromote: false } as const;
  assert.match(rehearse(facts(canary, 3, 3), NOW).at(-1) ?? "", /^then it waits: .*promote/);
});

test("the rehearsal of a large app is cut, and says so", () => {
  const sentences = rehearse(facts(ROLLING, 500, 500), NOW);
  assert.ok(sentences.length <= 101, `${sentences.length} sentences`);
  assert.match(sentences.at(-1) ?? "", /^and so on: 500 /);
});
