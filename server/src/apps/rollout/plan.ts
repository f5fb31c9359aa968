/**
 * What an app does next: from the desired and the present state to a list of changes, each with a sentence
 * that says why, and what has to happen before the next ones.
 *
 * Pure: no clock, no database, no nodes. A plan is made again after each change.
 *
 * Invariants, which properties.test.ts checks under random health, crashes, lost nodes and requests:
 * 1. An instance is stopped only when every ingress has confirmed a table without it, and its requests
 *    have ended or had their time.
 * 2. No instance that serves is retired while fewer serve than are asked, unless as many are left.
 * 3. No more instances use nodes than are asked, and as many more as the strategy allows.
 * 4. A rollout that fails before its promotion has retired no instance of another release but those for which
 *    an instance of the new one served.
 * 5. Once the desired and the present state stay as they are, plans end: with nothing to do and nothing to
 *    wait for, or with the reason why not.
 */
import { blueGreen } from "./blue-green.ts";
import { canary } from "./canary.ts";
import type { AppFacts, Goal, Instance, Phase, Plan, Progress, Rollout, Strategy } from "./facts.ts";
import { rolling } from "./rolling.ts";
import { instances as counted, isHealthy, isWanted, roomFor, serves, type Sides, sidesOf } from "./sides.ts";

/** Phases that have a clock: the others wait for a person, or for a time that is fixed. */
const TIMED: ReadonlySet<Phase> = new Set(["placing", "checking", "routing"]);

const STRATEGIES: {
  readonly [Type in Strategy["type"]]: (strategy: Extract<Strategy, { type: Type }>, sides: Sides) => Goal;
} = {
  rolling,
  canary,
  blueGreen: (_, sides) => blueGreen(sides),
};

const goalOfStrategy = <Type extends Strategy["type"]>(strategy: Extract<Strategy, { type: Type }>, sides: Sides) =>
  STRATEGIES[strategy.type](strategy, sides);

const NOTHING = { add: [], retire: [], route: null, remove: [], promote: null, progress: null, end: null } as const;

export function plan(facts: AppFacts, now: number): Plan {
  const broken = brokenOf(facts, now);
  const kept = facts.instances.filter(({ id }) => !broken.some((each) => each.id === id));
  const { rollout } = facts;
  const release = rollout?.to ?? facts.current;
  const sides: Sides = {
    count: facts.isDestroyed || release === null ? 0 : facts.count,
    ...sidesOf(kept, release),
    isPromoted: rollout?.isPromoted ?? false,
    isFirst: facts.current === null,
    now,
  };
  const goal = goalOf(facts, sides);
  const progress = rollout === null ? null : progressOf(rollout, goal, sides, now);
  const failure = rollout && progress && failureOf(rollout, progress, { instances: facts.instances, now });
  if (failure !== null) {
    const end = { outcome: "failed", why: failure } as const;
    return { ...NOTHING, progress, end, waitingFor: null, wakeAt: null };
  }
  const isHeld = facts.retryAt !== null && facts.retryAt > now;
  const retire = [...broken, ...surplusOf(facts, { sides, goal, release })];
  const retired = new Set(retire.map(({ id }) => id));
  const missing = addedOf(facts, { sides, goal, release });
  const remove = removedOf(facts, now);
  const isDone = rollout !== null && goal.isDone === true;
  return {
    add: isHeld ? [] : missing,
    retire,
    route: routeOf(facts, { goal, release, retired }),
    remove,
    promote:
      rollout !== null && goal.promotes === true && !rollout.isPromoted
        ? { why: `${counted(sides.to.healthy)} of release ${rollout.to} are healthy` }
        : null,
    progress,
    end: isDone ? { outcome: "succeeded", why: `release ${rollout.to} serves with ${counted(facts.count)}` } : null,
    waitingFor: waitingOf(facts, { sides, goal, isDone, isHeld: isHeld && missing.length > 0 }),
    wakeAt: wakeOf(facts, { goal, progress, isHeld: isHeld && missing.length > 0 }, now),
  };
}

/** Instances that do not do their work and are replaced. Of those that are unhealthy, one at a time. */
function brokenOf({ instances, unhealthyMs, retryAt, isDestroyed }: AppFacts, now: number): Plan["retire"] {
  const wanted = instances.filter(({ retiredAt }) => retiredAt === null);
  const broken = wanted.flatMap(({ id, state, reason }) => {
    if (state === "failed") return [{ id, why: `it failed: ${reason ?? "its machine ended"}`, hasFailed: true }];
    if (state === "lost") return [{ id, why: "its node is lost", hasFailed: false }];
    return state === "gone" ? [{ id, why: "its machine was deleted", hasFailed: false }] : [];
  });
  if (isDestroyed || (retryAt !== null && retryAt > now)) return broken;
  const [worst] = wanted
    .filter(({ state, health, healthSince }) => {
      return state === "running" && health === "unhealthy" && healthSince !== null && healthSince + unhealthyMs <= now;
    })
    .toSorted((one, other) => (one.healthSince ?? 0) - (other.healthSince ?? 0) || order(one, other));
  if (worst === undefined) return broken;
  return [...broken, { id: worst.id, why: `it stays unhealthy: ${worst.reason ?? "no reason"}`, hasFailed: true }];
}

const order = (one: { readonly id: string }, other: { readonly id: string }): number => (one.id < other.id ? -1 : 1);

function goalOf({ rollout, isDestroyed, surge }: AppFacts, sides: Sides): Goal {
  if (isDestroyed)
    return {
      ...{ to: 0, others: 0, refills: false, surge: 0, routed: "all" },
      ...{ phase: "retiring", waitingFor: "its instances to end" },
    };
  if (rollout !== null) return goalOfStrategy(rollout.strategy, sides);
  // What a rollout left: those that serve are replaced one after the other, the rest is of no use.
  const serving = sides.others.wanted.filter((each) => each.isRouted && isHealthy(each));
  return rolling(
    { batchSize: surge, waitMs: 0 },
    { ...sides, others: { ...sides.others, wanted: serving, leaving: sides.others.leaving } },
  );
}

interface Intent {
  readonly sides: Sides;
  readonly goal: Goal;
  readonly release: number | null;
}

function addedOf({ current }: AppFacts, { sides, goal, release }: Intent): Plan["add"] {
  const { to, others } = sides;
  const added =
    release === null
      ? []
      : repeated(goal.to - to.wanted.length, {
          release,
          why: `release ${release} has ${to.wanted.length} of ${counted(goal.to)}`,
        });
  const refilled =
    goal.refills && current !== null
      ? repeated(goal.others - others.wanted.length, {
          release: current,
          why: `release ${current} keeps its instances`,
        })
      : [];
  return [...added, ...refilled].slice(0, roomFor(goal.surge, sides));
}

const repeated = <Item>(times: number, item: Item): readonly Item[] =>
  Array.from({ length: Math.max(0, times) }, () => item);

/** Instances of which there are more than the goal has, the least useful first. */
function surplusOf(facts: AppFacts, { sides, goal, release }: Intent): Plan["retire"] {
  const over = (wanted: readonly Instance[], most: number, why: string) =>
    leastUseful(wanted, facts.current)
      .slice(0, Math.max(0, wanted.length - most))
      .map(({ id }) => ({ id, why, hasFailed: false }));
  const less = facts.isDestroyed ? "the app was destroyed" : `${counted(facts.count)} are asked`;
  const replaced = facts.isDestroyed || release === null ? less : `release ${release} replaces it`;
  return [
    ...over(sides.to.wanted, goal.to, less),
    ...over(sides.others.wanted, goal.others, facts.count === 0 ? less : replaced),
  ];
}

/** The least useful first: what does not serve, old releases, drained or crowded nodes, the youngest. */
function leastUseful(wanted: readonly Instance[], current: number | null): readonly Instance[] {
  const onNode = new Map<string | null, number>();
  for (const { nodeId } of wanted) onNode.set(nodeId, (onNode.get(nodeId) ?? 0) + 1);
  const ranks = (instance: Instance): readonly number[] => [
    instance.state === "running" ? 1 : 0,
    { unhealthy: 0, unknown: 1, healthy: 2 }[instance.health],
    serves(instance) ? 1 : 0,
    instance.isRouted ? 1 : 0,
    instance.release === current && !instance.isDrained ? 1 : 0,
    -(onNode.get(instance.nodeId) ?? 0),
    -instance.madeAt,
  ];
  return wanted
    .map((instance) => ({ instance, rank: ranks(instance) }))
    .toSorted((one, other) => {
      const at = one.rank.findIndex((value, index) => value !== other.rank[index]);
      return at < 0 ? order(one.instance, other.instance) : (one.rank[at] ?? 0) - (other.rank[at] ?? 0);
    })
    .map(({ instance }) => instance);
}

function routeOf(
  { instances, isDestroyed }: AppFacts,
  how: { readonly goal: Goal; readonly release: number | null; readonly retired: ReadonlySet<string> },
): Plan["route"] {
  const { goal, release, retired } = how;
  const belongs = (instance: Instance): boolean =>
    goal.routed === "all" || (goal.routed === "to") === (instance.release === release);
  const routed = instances.filter(
    (each) => !isDestroyed && isWanted(each) && isHealthy(each) && !retired.has(each.id) && belongs(each),
  );
  const come = routed.filter(({ isRouted }) => !isRouted).length;
  const go = instances.filter((each) => each.isRouted && !routed.includes(each)).length;
  if (come + go === 0) return null;
  const parts = [
    ...(come === 0 ? [] : [`${counted(come)} can serve`]),
    ...(go === 0 ? [] : [`${counted(go)} cannot, or are not to`]),
  ];
  return { ids: routed.map(({ id }) => id).toSorted(), why: parts.join(", ") };
}

function removedOf({ instances, graceMs }: AppFacts, now: number): Plan["remove"] {
  return instances
    .filter(
      ({ retiredAt, isRouted, isConfirmed, isRemoved }) => retiredAt !== null && !isRouted && isConfirmed && !isRemoved,
    )
    .flatMap(({ id, state, unroutedAt, openRequests }) => {
      if (state !== "running" || unroutedAt === null) return [{ id, why: "nothing was sent to it" }];
      if (openRequests === 0) return [{ id, why: "its requests have ended" }];
      return unroutedAt + graceMs <= now ? [{ id, why: `${openRequests} of its requests did not end in time` }] : [];
    });
}

function progressOf({ progress }: Rollout, { phase }: Goal, { to }: Sides, now: number): Progress {
  if (progress === null) return { phase, phaseSince: now, served: to.serving, servedSince: now };
  const begins = TIMED.has(phase) && !TIMED.has(progress.phase);
  return {
    phase,
    phaseSince: phase === progress.phase ? progress.phaseSince : now,
    served: Math.max(progress.served, to.serving),
    servedSince: begins || to.serving > progress.served ? now : progress.servedSince,
  };
}

/** Why the rollout cannot continue; null: it can. */
function failureOf(
  { to, placingMs, checkingMs }: Rollout,
  { phase, phaseSince, servedSince }: Progress,
  { instances, now }: Pick<AppFacts, "instances"> & { readonly now: number },
): string | null {
  const own = instances.filter(({ release }) => release === to);
  const hopeless = own.find(({ isHopeless }) => isHopeless);
  if (hopeless !== undefined) return hopeless.reason ?? "its instances cannot start";
  if (!TIMED.has(phase)) return null;
  const last = own
    .filter(({ reason }) => reason !== null)
    .toSorted((one, other) => other.madeAt - one.madeAt)
    .at(0)?.reason;
  const because = last === undefined || last === null ? "" : `; the last reason: ${last}`;
  const isOver = (since: number, ms: number): boolean => now - since >= ms;
  if (phase === "placing" && isOver(phaseSince, placingMs))
    return `its instances did not start within ${placingMs / 1000} s${because}`;
  if (phase !== "placing" && isOver(phaseSince, checkingMs))
    return `its instances did not become healthy within ${checkingMs / 1000} s${because}`;
  return isOver(servedSince, placingMs + checkingMs)
    ? `no further instance served within ${(placingMs + checkingMs) / 1000} s${because}`
    : null;
}

function waitingOf(
  { instances, rollout, retryAt, isDestroyed }: AppFacts,
  { sides, goal, isDone, isHeld }: Omit<Intent, "release"> & { readonly isDone: boolean; readonly isHeld: boolean },
): string | null {
  if (isDone) return null;
  const { count, to, others } = sides;
  const isSettled = to.serving === count && to.wanted.length === count;
  if (isHeld && retryAt !== null)
    return `${goal.waitingFor}; the next instance is made at ${new Date(retryAt).toISOString()}, because others failed`;
  // Instances of lost nodes end when their node is back; nothing waits for them.
  const isLeft = instances.some(({ retiredAt, state }) => retiredAt !== null && state !== "gone" && state !== "lost");
  const isOver = isSettled && others.wanted.length === 0 && !isLeft;
  return (rollout === null || isDestroyed) && isOver ? null : goal.waitingFor;
}

/** The next instant at which time alone changes the plan. */
function wakeOf(
  facts: AppFacts,
  { goal, progress, isHeld }: { readonly goal: Goal; readonly progress: Progress | null; readonly isHeld: boolean },
  now: number,
): number | null {
  const { instances, rollout, retryAt, graceMs, unhealthyMs } = facts;
  const instants = [
    ...(isHeld && retryAt !== null ? [retryAt] : []),
    ...(goal.until === undefined ? [] : [goal.until]),
    ...instances.flatMap(({ retiredAt, unroutedAt, isRemoved, state }) =>
      retiredAt !== null && unroutedAt !== null && !isRemoved && state === "running" ? [unroutedAt + graceMs] : [],
    ),
    ...instances.flatMap(({ retiredAt, health, healthSince, state }) =>
      retiredAt === null && state === "running" && health === "unhealthy" && healthSince !== null
        ? [Math.max(healthSince + unhealthyMs, retryAt ?? 0)]
        : [],
    ),
    ...(rollout !== null && progress !== null && TIMED.has(progress.phase)
      ? [
          progress.phaseSince + (progress.phase === "placing" ? rollout.placingMs : rollout.checkingMs),
          progress.servedSince + rollout.placingMs + rollout.checkingMs,
        ]
      : []),
  ].filter((instant) => instant > now);
  return instants.length === 0 ? null : Math.min(...instants);
}
