/**
 * Each request in each situation, row by row.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { APP_REQUESTS, DECISIONS, type Effect, SITUATIONS } from "./requests.ts";

/** In the order of SITUATIONS: none, settled, the phases of a rollout, switched. */
const EXPECTED: Readonly<Record<(typeof APP_REQUESTS)[number], string>> = {
  deploy: "create begin supersede supersede supersede supersede supersede supersede supersede",
  redeploy: "refuse begin supersede supersede supersede supersede supersede supersede supersede",
  rollback: "refuse begin supersede supersede supersede supersede supersede supersede supersede",
  promote: "refuse refuse refuse refuse refuse refuse promote refuse refuse",
  scale: "refuse resize resize resize resize resize resize resize resize",
  destroy: "refuse destroy destroy destroy destroy destroy destroy destroy destroy",
};

for (const request of APP_REQUESTS)
  test(`${request} has an effect in each situation`, () => {
    const effects: readonly Effect[] = SITUATIONS.map((situation) => DECISIONS[request][situation].effect);
    assert.equal(effects.join(" "), EXPECTED[request]);
    for (const situation of SITUATIONS) assert.ok(DECISIONS[request][situation].why.length > 0);
  });

test("each refusal has its own reason, and no other effect has one of them", () => {
  const all = APP_REQUESTS.flatMap((request) => SITUATIONS.map((situation) => DECISIONS[request][situation]));
  const refusals = new Set(all.filter(({ effect }) => effect === "refuse").map(({ why }) => why));
  assert.equal(refusals.size, 4);
  assert.ok(!all.some(({ effect, why }) => effect !== "refuse" && refusals.has(why)));
});
