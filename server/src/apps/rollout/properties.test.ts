/**
 * The invariants of plan.ts in a small world, in which instances start, fail and recover, nodes are lost,
 * drained and come back, ingresses confirm late, and callers deploy, scale, promote and destroy, all in
 * random order.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { AppFacts, Instance, Plan, Rollout, Strategy } from "./facts.ts";
import { plan } from "./plan.ts";

type Mutable<Type> = { -readonly [Key in keyof Type]: Type[Key] };
type App = Mutable<Omit<AppFacts, "instances" | "rollout">> & {
  instances: Mutable<Instance>[];
  rollout: Mutable<Rollout> | null;
};

const isHealthy = ({ state, health }: Instance): boolean => state === "running" && health === "healthy";
const serves = (each: Instance): boolean =>
  isHealthy(each) && each.isRouted && each.isConfirmed && each.retiredAt === null;

const NODES = ["a", "b", "c"];
const LIMITS = { placingMs: 60_000, checkingMs: 180_000 } as const;

class World {
  now = 1_000_000;
  readonly app: App = {
    count: 0,
    isDestroyed: false,
    current: null,
    rollout: null,
    instances: [],
    surge: 1,
    graceMs: 10_000,
    unhealthyMs: 60_000,
    retryAt: null,
  };
  #releases = 0;
  #made = 0;
  #failures = 0;

  deploy(strategy: Strategy, count: number): void {
    if (this.app.isDestroyed) return;
    this.app.count = count;
    this.#releases += 1;
    this.app.rollout = { to: this.#releases, strategy, isPromoted: false, progress: null, ...LIMITS };
  }

  /** Plans once, checks the plan and carries it out. */
  step(): Plan {
    const { app, now } = this;
    const before = structuredClone(app);
    const planned = plan(app, now);
    check(before, planned, now);
    const rollout = app.rollout;
    if (rollout !== null) {
      rollout.progress = planned.progress;
      if (planned.promote !== null) rollout.isPromoted = true;
    }
    for (const { id, hasFailed } of planned.retire) {
      this.#find(id).retiredAt = now;
      if (!hasFailed) continue;
      this.#failures += 1;
      app.retryAt = now + Math.min(300_000, 1_000 * 2 ** this.#failures);
    }
    if (planned.route !== null) this.#route(planned.route.ids);
    for (const { release } of planned.add) app.instances.push(this.#made_(release));
    for (const { id } of planned.remove) this.#find(id).isRemoved = true;
    if (rollout !== null && planned.end !== null) {
      if (planned.end.outcome === "succeeded") app.current = rollout.to;
      app.rollout = null;
    }
    app.instances = app.instances.filter(({ state, retiredAt }) => state !== "gone" || retiredAt === null);
    return planned;
  }

  /** Everything that can go well does. */
  calm(): void {
    const { app } = this;
    this.now += 2_000;
    for (const instance of app.instances) {
      instance.isConfirmed = true;
      instance.openRequests = 0;
      if (instance.isRemoved) instance.state = "gone";
      else if (instance.state === "unmade") instance.state = "starting";
      else if (instance.state === "starting")
        Object.assign(instance, { state: "running", nodeId: instance.nodeId ?? "a" });
      else if (instance.state === "running" && instance.health !== "healthy")
        Object.assign(instance, { health: "healthy", healthSince: this.now, reason: null });
    }
    // A machine of a lost node that is not wanted is deleted when the node is back.
    for (const instance of app.instances) if (instance.state === "lost" && instance.isRemoved) instance.state = "gone";
  }

  /** One thing happens; `pick` chooses to what. */
  happen(kind: number, pick: number): void {
    const { app } = this;
    const instance = app.instances.length === 0 ? undefined : app.instances[pick % app.instances.length];
    const happenings: readonly (() => void)[] = [
      () => {
        for (let turn = 0; turn < pick % 40; turn += 1) {
          this.calm();
          this.step();
        }
      },
      () => void (this.now += pick * 37),
      () => instance && Object.assign(instance, { isConfirmed: true }),
      () => instance?.state === "unmade" && Object.assign(instance, { state: "starting", nodeId: NODES[pick % 3] }),
      () => instance?.state === "starting" && Object.assign(instance, { state: "running" }),
      () => this.#health(instance, "healthy"),
      () => this.#health(instance, "unhealthy"),
      () => instance && instance.state !== "gone" && Object.assign(instance, { state: "failed", reason: "it ended" }),
      () => {
        for (const each of app.instances)
          if (each.nodeId === NODES[pick % 3] && each.state !== "gone") each.state = "lost";
      },
      () => instance && !instance.isRouted && Object.assign(instance, { openRequests: pick % 3 }),
      () => instance?.isRemoved && Object.assign(instance, { state: "gone" }),
      () => void (app.isDestroyed || (app.count = pick % 6)),
      () => this.deploy({ type: "rolling", batchSize: 1 + (pick % 3), waitMs: (pick % 2) * 5_000 }, 1 + (pick % 5)),
      () => this.deploy({ type: "canary", canaryCount: 1 + (pick % 2), autoPromote: pick % 3 !== 0 }, 1 + (pick % 5)),
      () => this.deploy({ type: "blueGreen" }, 1 + (pick % 5)),
      () => void (app.rollout?.progress?.phase === "awaitingPromotion" && (app.rollout.isPromoted = true)),
      () => instance?.state === "failed" && Object.assign(instance, { isHopeless: true }),
      () => {
        for (const each of app.instances) if (each.nodeId === NODES[pick % 3]) each.isDrained = true;
      },
    ];
    happenings[kind % happenings.length]?.();
  }

  destroy(): void {
    this.app.isDestroyed = true;
    this.app.rollout = null;
  }

  #health(instance: Mutable<Instance> | undefined, health: "healthy" | "unhealthy"): void {
    if (instance?.state !== "running" || instance.health === health) return;
    Object.assign(instance, { health, healthSince: this.now, reason: health === "healthy" ? null : "503" });
  }

  #route(ids: readonly string[]): void {
    for (const instance of this.app.instances) {
      const isRouted = ids.includes(instance.id);
      if (instance.isRouted === isRouted) continue;
      const unroutedAt = isRouted ? null : this.now;
      Object.assign(instance, { isRouted, isConfirmed: false, unroutedAt, openRequests: isRouted ? 0 : 1 });
    }
  }

  #find(id: string): Mutable<Instance> {
    const found = this.app.instances.find((each) => each.id === id);
    assert.ok(found, `the plan names ${id}, which there is`);
    return found;
  }

  #made_(release: number): Mutable<Instance> {
    this.#made += 1;
    return {
      ...{ id: `inst-${this.#made}`, release, nodeId: null, state: "unmade", health: "unknown", healthSince: null },
      ...{ reason: null, isHopeless: false, madeAt: this.now, isRouted: false, isConfirmed: true, unroutedAt: null },
      ...{ openRequests: 0, retiredAt: null, isRemoved: false, isDrained: false },
    };
  }
}

const SURGES: {
  readonly [Type in Strategy["type"]]: (strategy: Extract<Strategy, { type: Type }>, count: number) => number;
} = {
  rolling: ({ batchSize }) => batchSize,
  canary: ({ canaryCount }) => canaryCount,
  blueGreen: (_, count) => count,
};
const surgeOf = <Type extends Strategy["type"]>(strategy: Extract<Strategy, { type: Type }>, count: number): number =>
  SURGES[strategy.type](strategy, count);

/** The first four invariants, for one plan. */
function check(app: AppFacts, planned: Plan, now: number): void {
  const { rollout, count, instances } = app;
  const find = (id: string): Instance => instances.find((each) => each.id === id) ?? assert.fail(id);
  for (const { id, why } of planned.remove) {
    const { isRouted, isConfirmed, state, openRequests, unroutedAt } = find(id);
    assert.ok(!isRouted && isConfirmed, `${id} is removed, and every ingress knows: ${why}`);
    const isOver = openRequests === 0 || unroutedAt === null || now >= unroutedAt + app.graceMs;
    assert.ok(state !== "running" || isOver, `the requests of ${id} have ended, or had their time: ${why}`);
  }
  const retired = new Set(planned.retire.map(({ id }) => id));
  const serving = instances.filter(serves);
  const left = serving.filter(({ id }) => !retired.has(id));
  if (left.length < serving.length && !app.isDestroyed && app.current !== null)
    assert.ok(left.length >= Math.min(count, serving.length), "no instance that serves is retired while it is needed");
  if (planned.route !== null && !app.isDestroyed) {
    const routed = planned.route.ids.map(find);
    assert.ok(routed.every(isHealthy), "what is routed is healthy");
    assert.ok(!routed.some(({ id, retiredAt }) => retired.has(id) || retiredAt !== null), "and wanted");
    const before = instances.filter((each) => each.isRouted && isHealthy(each) && each.retiredAt === null);
    const most = app.current === null && rollout === null ? 0 : count;
    assert.ok(routed.length >= Math.min(most, before.length), "no change of the table leaves fewer than are asked");
    if (rollout?.strategy.type === "blueGreen")
      assert.ok(new Set(routed.map(({ release }) => release === rollout.to)).size <= 1, "one set has the traffic");
  }
  if (planned.add.length > 0) {
    const using = instances.filter(({ state, retiredAt }) =>
      retiredAt === null
        ? state === "unmade" || state === "starting" || state === "running"
        : state === "starting" || state === "running",
    );
    const isDrained = rollout?.strategy.type === "canary" && instances.some((each) => each.isDrained);
    const surge = (rollout === null ? app.surge : surgeOf(rollout.strategy, count)) + (isDrained ? 1 : 0);
    assert.ok(using.length + planned.add.length <= count + surge, "no more are made than asked and the surge");
  }
  const isManual = rollout?.strategy.type === "canary" && !rollout.strategy.autoPromote;
  if (isManual && app.current !== null && count > 0) assert.equal(planned.promote, null, "a person promotes");
  const isUntouched = rollout !== null && rollout.strategy.type !== "rolling" && app.current !== null && count > 0;
  if (isUntouched && !rollout.isPromoted && planned.promote === null) {
    const others = instances.filter(
      (each) => each.release !== rollout.to && each.retiredAt === null && isHealthy(each),
    );
    const lost = others.filter(({ id }) => planned.retire.some((each) => each.id === id && !each.hasFailed));
    assert.ok(others.length - lost.length >= Math.min(count, others.length), "before the promotion the others stay");
  }
}

const EVENTS = fc.array(fc.tuple(fc.nat({ max: 17 }), fc.nat({ max: 1_000 })), { maxLength: 60 });
const CALM_MAX = 700;
/** More than an instance takes to become healthy. */
const QUIET_TURNS = 5;

/** Plans until nothing is left to do. */
function settle(world: World): void {
  let quiet = 0;
  for (let turn = 0; turn < CALM_MAX; turn += 1) {
    const planned = world.step();
    const isQuiet =
      planned.add.length + planned.retire.length + planned.remove.length === 0 &&
      planned.route === null &&
      planned.promote === null &&
      planned.end === null;
    const isForPerson = planned.progress?.phase === "awaitingPromotion" && planned.wakeAt === null;
    const isWaiting = planned.waitingFor !== null && !isForPerson;
    if (isQuiet && !isWaiting) {
      quiet += 1;
      if (quiet > QUIET_TURNS) return;
    } else quiet = 0;
    world.calm();
  }
  assert.fail(
    `it does not settle: ${JSON.stringify(plan(world.app, world.now), null, 1)} ${JSON.stringify(world.app)}`,
  );
}

test("the invariants hold whatever happens, and an app whose desired state stops changing settles", () => {
  fc.assert(
    fc.property(EVENTS, (events) => {
      const world = new World();
      world.deploy({ type: "rolling", batchSize: 1, waitMs: 0 }, 3);
      for (const [kind, pick] of events) {
        world.happen(kind, pick);
        world.step();
      }
      settle(world);
      const { app } = world;
      if (app.rollout !== null && !app.rollout.isPromoted) {
        assert.equal(app.rollout.progress?.phase, "awaitingPromotion");
        const drained = app.instances.filter(({ isDrained, state }) => isDrained && state !== "gone");
        assert.deepEqual(drained, [], "drained nodes do not wait for a person");
        app.rollout.isPromoted = true;
        settle(world);
      }
      const serving = app.instances.filter(serves);
      const expected = app.current === null ? 0 : app.count;
      assert.equal(serving.length, expected);
      assert.equal(app.instances.filter(({ state }) => state !== "gone").length, expected, "nothing else is left");
      assert.ok(serving.every(({ release }) => release === app.current));
    }),
    { numRuns: 300 },
  );
});

test("a destroyed app ends with nothing, whatever happened before", () => {
  fc.assert(
    fc.property(EVENTS, (events) => {
      const world = new World();
      world.deploy({ type: "blueGreen" }, 3);
      for (const [kind, pick] of events) {
        world.happen(kind, pick);
        world.step();
      }
      world.destroy();
      settle(world);
      assert.deepEqual(
        world.app.instances.filter(({ state }) => state !== "gone"),
        [],
      );
    }),
    { numRuns: 100 },
  );
});
