/**
 * What a deploy would do if everything goes well, in sentences: the plans of a rollout whose machines start,
 * whose checks succeed and whose requests end. Pure.
 */
import type { AppFacts, Instance, Plan } from "./rollout/facts.ts";
import { plan } from "./rollout/plan.ts";

/** The rollout of an app of some hundred instances has more turns than people read. */
const TURNS_MAX = 1_000;
const TURN_MS = 1_000;
const SENTENCES_MAX = 100;

type World = { -readonly [Key in keyof AppFacts]: AppFacts[Key] };

export function rehearse(facts: AppFacts, now: number): readonly string[] {
  const world: World = { ...facts };
  const sentences: string[] = [];
  const say = (sentence: string): void => {
    if (sentences.at(-1) !== sentence) sentences.push(sentence);
  };
  for (let turn = 0; turn < TURNS_MAX; turn += 1) {
    const at = now + turn * TURN_MS;
    const planned = plan(world, at);
    for (const sentence of sentencesOf(planned)) say(sentence);
    apply(world, planned, at, turn);
    if (planned.end !== null || world.rollout === null) return sentences;
    if (planned.progress?.phase === "awaitingPromotion") {
      say(`then it waits: ${planned.waitingFor ?? "for a person to promote it"}`);
      return sentences;
    }
    if (sentences.length > SENTENCES_MAX) break;
    pass(world, at);
  }
  return [...sentences.slice(0, SENTENCES_MAX), `and so on: ${world.count} instances are to serve`];
}

/** What a plan does, each with its reason. */
export function sentencesOf(planned: Plan): readonly string[] {
  const { add, retire, route, remove, promote, end } = planned;
  const grouped = (verb: string, whys: readonly string[]): readonly string[] =>
    [...Map.groupBy(whys, (why) => why)].map(
      ([why, { length }]) => `${verb} ${length} instance${length === 1 ? "" : "s"}: ${why}`,
    );
  return [
    ...grouped(
      "make",
      add.map(({ why }) => why),
    ),
    ...grouped(
      "retire",
      retire.map(({ why }) => why),
    ),
    ...(route === null ? [] : [`send requests to ${route.ids.length}: ${route.why}`]),
    ...grouped(
      "stop",
      remove.map(({ why }) => why),
    ),
    ...(promote === null ? [] : [`promote: ${promote.why}`]),
    ...(end === null ? [] : [`end: ${end.why}`]),
  ];
}

function apply(world: World, planned: Plan, at: number, turn: number): void {
  const { route } = planned;
  const retired = new Set(planned.retire.map(({ id }) => id));
  const removed = new Set(planned.remove.map(({ id }) => id));
  const instances = world.instances.map((instance): Instance => {
    const isRouted = route === null ? instance.isRouted : route.ids.includes(instance.id);
    return {
      ...instance,
      isRouted,
      unroutedAt: instance.isRouted && !isRouted ? at : instance.unroutedAt,
      retiredAt: retired.has(instance.id) ? at : instance.retiredAt,
      isRemoved: instance.isRemoved || removed.has(instance.id),
    };
  });
  const added = planned.add.map(
    ({ release }, index): Instance => ({ ...UNMADE, id: `new-${turn}-${index}`, release, madeAt: at }),
  );
  world.instances = [...instances, ...added];
  const { rollout } = world;
  if (rollout !== null)
    world.rollout = {
      ...rollout,
      progress: planned.progress,
      isPromoted: rollout.isPromoted || planned.promote !== null,
    };
}

const UNMADE = {
  nodeId: null,
  state: "unmade",
  health: "unknown",
  healthSince: null,
  reason: null,
  isHopeless: false,
  isRouted: false,
  isConfirmed: true,
  unroutedAt: null,
  openRequests: 0,
  isDrained: false,
  retiredAt: null,
  isRemoved: false,
} as const;

/** A moment in which all goes well. */
function pass(world: World, at: number): void {
  world.instances = world.instances
    .filter(({ isRemoved }) => !isRemoved)
    .map((instance): Instance => {
      const isUp = instance.retiredAt === null;
      return {
        ...instance,
        isConfirmed: true,
        openRequests: 0,
        ...(isUp && instance.health !== "healthy" ? { health: "healthy", healthSince: at, reason: null } : {}),
        ...(isUp ? { state: "running" } : {}),
      };
    });
}
