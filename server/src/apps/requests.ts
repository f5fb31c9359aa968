/**
 * What a request about an app does, by what is under way. Pure: one row for each pair.
 *
 * Always: the last accepted request wins. What it supersedes ends with that reason.
 */
import type { Phase } from "./rollout/facts.ts";

export const APP_REQUESTS = ["deploy", "redeploy", "rollback", "promote", "scale", "destroy"] as const;
export type AppRequest = (typeof APP_REQUESTS)[number];

/**
 * What is under way. `none`: the app was never deployed, or its name is free. `settled`: no rollout.
 * `switched`: a rollout whose canaries are promoted, or whose traffic was switched. Otherwise the phase of a
 * rollout before that.
 */
export const SITUATIONS = [
  "none",
  "settled",
  "placing",
  "checking",
  "routing",
  "pausing",
  "awaitingPromotion",
  "retiring",
  "switched",
] as const satisfies readonly ("none" | "settled" | "switched" | Phase)[];
export type Situation = (typeof SITUATIONS)[number];

/**
 * `create`: a new app with its first rollout. `begin`: a rollout. `supersede`: the one under way ends, and
 * another begins. `resize`: the number changes, also for a rollout under way. `promote`: it continues.
 * `destroy`: a rollout under way ends, and every instance goes. `refuse`: 404 for `none`, else 409.
 */
export type Effect = "create" | "begin" | "supersede" | "resize" | "promote" | "destroy" | "refuse";

export interface Decision {
  readonly effect: Effect;
  readonly why: string;
}

const is = (effect: Effect, why: string): Decision => ({ effect, why });

const NOT_FOUND = is("refuse", "there is no such app");
const BEGINS = is("begin", "no rollout is under way");
const SUPERSEDES = is(
  "supersede",
  "the last request wins: instances of the rollout before serve until it replaces them",
);
const RESIZES = is("resize", "a release does not say how many instances there are");
const DESTROYS = is("destroy", "a deletion always wins");
const NOTHING_TO_PROMOTE = is("refuse", "no rollout waits for a promotion");
const NOT_YET = is("refuse", "its new instances do not all serve yet");
const PROMOTED = is("refuse", "it is promoted already");

const rollouts = (decision: Decision): Omit<Record<Situation, Decision>, "none" | "settled"> => ({
  placing: decision,
  checking: decision,
  routing: decision,
  pausing: decision,
  awaitingPromotion: decision,
  retiring: decision,
  switched: decision,
});

export const DECISIONS: Readonly<Record<AppRequest, Readonly<Record<Situation, Decision>>>> = {
  deploy: { none: is("create", "the name is free"), settled: BEGINS, ...rollouts(SUPERSEDES) },
  redeploy: { none: NOT_FOUND, settled: BEGINS, ...rollouts(SUPERSEDES) },
  rollback: { none: NOT_FOUND, settled: BEGINS, ...rollouts(SUPERSEDES) },
  promote: {
    none: NOT_FOUND,
    settled: NOTHING_TO_PROMOTE,
    ...rollouts(NOT_YET),
    awaitingPromotion: is("promote", "its new instances serve, and a person decides"),
    switched: PROMOTED,
  },
  scale: { none: NOT_FOUND, settled: RESIZES, ...rollouts(RESIZES) },
  destroy: { none: NOT_FOUND, settled: DESTROYS, ...rollouts(DESTROYS) },
};
