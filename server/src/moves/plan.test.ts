/**
 * The plan of a move, for all combinations of facts.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  ARRIVALS,
  isAfter,
  MOVE_ACTIONS,
  MOVE_RULES,
  MOVE_STEPS,
  type MoveAction,
  type MoveFacts,
  type MoveStep,
  planMove,
  ROW_STATES,
} from "./plan.ts";

const BOOLEANS = [false, true] as const;
const VALUES: { readonly [Fact in keyof MoveFacts]: readonly MoveFacts[Fact][] } = {
  row: ROW_STATES,
  wasHeld: BOOLEANS,
  isActive: BOOLEANS,
  isDescribed: BOOLEANS,
  effect: [null, "none", "migrate", "restart", "stop"],
  canSendEarly: BOOLEANS,
  isEarlyTried: BOOLEANS,
  isSettled: BOOLEANS,
  keepsMemory: BOOLEANS,
  hasPoints: BOOLEANS,
  isRunReported: BOOLEANS,
  isSuspendRefused: BOOLEANS,
  arrival: ARRIVALS,
  isTidy: BOOLEANS,
  isStarted: BOOLEANS,
};

/** Facts of which some have one value, and all others each. */
function* allFacts(known: Partial<MoveFacts> = {}): Generator<MoveFacts> {
  const names = Object.keys(VALUES) as (keyof MoveFacts)[];
  const choices = names.map((name): readonly unknown[] => (name in known ? [known[name]] : VALUES[name]));
  const total = choices.reduce((product, values) => product * values.length, 1);
  for (let index = 0; index < total; index += 1) {
    let rest = index;
    const facts: Record<string, unknown> = {};
    for (const [place, values] of choices.entries()) {
      facts[names[place] ?? ""] = values[rest % values.length];
      rest = Math.floor(rest / values.length);
    }
    // Each has a value of its type.
    yield facts as unknown as MoveFacts;
  }
}

const actionOf = (facts: MoveFacts): MoveAction | null => {
  const next = planMove(facts);
  return next.kind === "act" ? next.action : null;
};

test("every combination of facts has a rule, and every rule decides some", () => {
  const used = new Set<number>();
  for (const facts of allFacts())
    used.add(
      MOVE_RULES.findIndex(({ row, test: holds }) => row === facts.row && (holds === undefined || holds(facts))),
    );
  assert.deepEqual(
    [...used].toSorted((one, other) => one - other),
    MOVE_RULES.map((_, index) => index),
  );
});

test("the owner changes only when the target has the machine, and files become a machine only when all are there", () => {
  for (const facts of allFacts({ row: "held" })) {
    const action = actionOf(facts);
    assert.equal(action === "changeOwner", facts.arrival === "machine" || facts.arrival === "paused");
    assert.equal(action === "commit", facts.arrival === "files");
  }
});

test("a machine is copied only when nothing of it runs, and paused only when its memory can arrive and its run is known", () => {
  for (const facts of allFacts({ row: "held" })) {
    const action = actionOf(facts);
    if (action === "copy") assert.ok(facts.isSettled);
    if (action === "stop") assert.ok(!facts.isSettled);
    if (action === "handOver")
      assert.ok(!facts.isSettled && facts.keepsMemory && facts.hasPoints && facts.isRunReported);
  }
});

test("once the owner has changed nothing refuses the move, and only copies and the start are left", () => {
  for (const facts of allFacts({ row: "moved" })) {
    const next = planMove(facts);
    assert.notEqual(next.kind, "refuse");
    if (next.kind === "act") assert.ok(["tidyUp", "awaitStart"].includes(next.action));
  }
});

test("a machine that this move does not hold is neither stopped, paused nor copied as a stopped one", () => {
  const harmless = ["describe", "chooseTarget", "sendEarly", "hold", null];
  for (const row of ["deleted", "free", "taken"] as const)
    for (const facts of allFacts({ row })) assert.ok(harmless.includes(actionOf(facts)), JSON.stringify(facts));
});

test("a move that another server has ended does not hold the machine again", () => {
  for (const row of ["free", "taken"] as const)
    for (const facts of allFacts({ row, wasHeld: true }))
      assert.deepEqual(planMove(facts), { kind: "refuse", refusal: "ended" });
});

test("files are sent early only of a machine that is to run there too, once for each node", () => {
  for (const facts of allFacts({ row: "free" })) {
    if (actionOf(facts) !== "sendEarly") continue;
    assert.ok(facts.isActive && facts.canSendEarly && !facts.isEarlyTried);
    assert.ok(facts.effect === "migrate" || facts.effect === "restart");
  }
});

/** What an action that works changes, and one that does not. */
const AFTER: Readonly<Record<MoveAction, { readonly works: Partial<MoveFacts>; readonly fails: Partial<MoveFacts> }>> =
  {
    describe: { works: { isDescribed: true }, fails: {} },
    chooseTarget: { works: { effect: "migrate" }, fails: {} },
    sendEarly: {
      works: { isEarlyTried: true, hasPoints: true, effect: null },
      fails: { isEarlyTried: true, hasPoints: false, effect: null },
    },
    hold: { works: { row: "held", wasHeld: true, keepsMemory: true }, fails: { effect: null } },
    handOver: { works: { arrival: "paused" }, fails: { hasPoints: false } },
    stop: { works: { isSettled: true }, fails: {} },
    copy: { works: { arrival: "files" }, fails: {} },
    commit: { works: { arrival: "machine" }, fails: {} },
    // The row has changed meanwhile.
    changeOwner: { works: { row: "moved" }, fails: {} },
    tidyUp: { works: { isTidy: true }, fails: {} },
    awaitStart: { works: { isStarted: true }, fails: {} },
  };

const after = (facts: MoveFacts, action: MoveAction, outcome: "works" | "fails"): MoveFacts => ({
  ...facts,
  ...AFTER[action][outcome],
});

test("from any facts a move ends within a dozen actions that work, whatever one before them did", () => {
  for (const start of allFacts())
    for (const works of BOOLEANS) {
      const first = actionOf(start);
      let facts = first === null ? start : after(start, first, works ? "works" : "fails");
      let count = 0;
      for (let action = actionOf(facts); action !== null; action = actionOf(facts)) {
        facts = after(facts, action, "works");
        count += 1;
        assert.ok(count <= 12, JSON.stringify(start));
      }
    }
});

test("the steps of a move that nothing disturbs never go back", () => {
  for (const start of allFacts({ row: "free", wasHeld: false, arrival: "part", isTidy: false, isStarted: false })) {
    let facts = start;
    let step: MoveStep = "hold";
    for (let next = planMove(facts); next.kind === "act"; next = planMove(facts)) {
      assert.ok(!isAfter(step, next.step), `${next.step} after ${step}: ${JSON.stringify(start)}`);
      step = next.step;
      facts = after(facts, next.action, "works");
    }
  }
});

const NEW: MoveFacts = {
  ...{ row: "free", wasHeld: false, isActive: true, isDescribed: false, effect: null, canSendEarly: true },
  ...{ isEarlyTried: false, isSettled: false, keepsMemory: true, hasPoints: false, isRunReported: true },
  ...{ isSuspendRefused: false, arrival: "part", isTidy: false, isStarted: false },
};

/** The actions to the end, by the facts that they lead to. */
function lifeOf(start: Partial<MoveFacts>, failing: readonly MoveAction[] = []): readonly MoveAction[] {
  let facts: MoveFacts = { ...NEW, ...start };
  const taken: MoveAction[] = [];
  for (let action = actionOf(facts); action !== null; action = actionOf(facts)) {
    taken.push(action);
    const isFirst = taken.filter((each) => each === action).length === 1;
    facts = after(facts, action, isFirst && failing.includes(action) ? "fails" : "works");
  }
  return taken;
}

const SENT = ["describe", "chooseTarget", "sendEarly", "chooseTarget", "hold"] as const;
const COLD = ["copy", "commit", "changeOwner", "tidyUp"] as const;
const LIVES: readonly (readonly [string, readonly MoveAction[], readonly MoveAction[]])[] = [
  ["live", lifeOf({}), [...SENT, "handOver", "changeOwner", "tidyUp", "awaitStart"]],
  ["the hand-over fails", lifeOf({}, ["handOver"]), [...SENT, "handOver", "stop", ...COLD, "awaitStart"]],
  ["its run was not reported", lifeOf({ isRunReported: false }), [...SENT, "stop", ...COLD, "awaitStart"]],
  [
    "its disk cannot be watched",
    lifeOf({ canSendEarly: false }),
    ["describe", "chooseTarget", "hold", "stop", ...COLD, "awaitStart"],
  ],
  ["stopped", lifeOf({ isActive: false, isSettled: true }), ["describe", "chooseTarget", "hold", ...COLD]],
  ["another server, while it is held", lifeOf({ row: "held", wasHeld: true }), ["stop", ...COLD, "awaitStart"]],
  [
    "another server, when all was copied",
    lifeOf({ row: "held", wasHeld: true, arrival: "files" }),
    ["commit", "changeOwner", "tidyUp", "awaitStart"],
  ],
  ["another server, after the owner has changed", lifeOf({ row: "moved", wasHeld: true }), ["tidyUp", "awaitStart"]],
];

for (const [what, found, expected] of LIVES)
  test(`the actions of a move: ${what}`, () => assert.deepEqual(found, expected));

test("every action belongs to a step that users see", () => {
  const known = new Map(MOVE_RULES.flatMap(({ next }) => (next.kind === "act" ? [[next.action, next.step]] : [])));
  assert.deepEqual([...known.keys()].toSorted(), [...MOVE_ACTIONS].toSorted());
  for (const step of known.values()) assert.ok(step in MOVE_STEPS);
});
