/**
 * The states of kept terminals, whatever happens in whatever order.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isDetached, TERMINAL_EVENTS, TERMINAL_TABLE, type TerminalEvent, type TerminalState } from "./state.ts";

const events = fc.array(fc.constantFrom(...TERMINAL_EVENTS), { maxLength: 30 });

function play(sequence: readonly TerminalEvent[]): { readonly states: TerminalState[]; readonly acts: string[] } {
  const states: TerminalState[] = ["attached"];
  const acts: string[] = [];
  for (const event of sequence) {
    const [next, ...done] = TERMINAL_TABLE[states.at(-1) ?? "gone"][event];
    states.push(next);
    acts.push(...done);
  }
  return { states, acts };
}

test("a terminal is forgotten once, and is gone from then on", () => {
  fc.assert(
    fc.property(events, (sequence) => {
      const { states, acts } = play(sequence);
      assert.equal(acts.filter((act) => act === "forget").length, states.includes("gone") ? 1 : 0);
      assert.ok(states.indexOf("gone") < 0 || states.slice(states.indexOf("gone")).every((state) => state === "gone"));
    }),
  );
});

test("a program that has ended is not killed, and its end waits for its client", () => {
  fc.assert(
    fc.property(events, (sequence) => {
      const { states, acts } = play(["exit", ...sequence]);
      assert.ok(!acts.includes("kill"));
      assert.ok(states.slice(1).every((state) => state.startsWith("ended") || state === "gone"));
    }),
  );
});

test("only a terminal that waits for its client ends with its minute, and each wait begins with a loss", () => {
  for (const state of ["attached", "endedAttached"] as const)
    assert.deepEqual(TERMINAL_TABLE[state].minuteOver, [state]);
  for (const state of ["detached", "endedDetached"] as const) assert.equal(TERMINAL_TABLE[state].minuteOver[0], "gone");
  for (const [state, steps] of Object.entries(TERMINAL_TABLE))
    for (const [event, [next, ...acts]] of Object.entries(steps))
      assert.equal(acts.includes("wait"), !isDetached(state as TerminalState) && isDetached(next), `${state} ${event}`);
});

test("its client may end it in every state, and may come back in every state but the last", () => {
  for (const [state, steps] of Object.entries(TERMINAL_TABLE)) {
    assert.equal(steps.done[0], "gone", state);
    assert.equal(isDetached(steps.attach[0]), false, state);
  }
});
