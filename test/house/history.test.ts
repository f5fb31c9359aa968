/**
 * The checker of test/support/history.ts finds impossible answers, and only those.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { RESTARTS_MAX } from "@flotilla/contract/limits";
import { faultsOf, type Operation, type Verb, type World } from "../support/history.ts";

const WORLD: World = {
  maxMachines: 2,
  maxConcurrentMachines: 1,
  failing: new Set(),
  ephemeral: new Set(),
  forgetsFiles: false,
  crashesHitStarts: false,
};

type Told = Partial<Operation> & { readonly state?: string };

const info = (id: string, state: string, more: object = {}): object => ({
  ...{ id, name: null, state, ready: state === "started", error: state === "error" ? "it crashed" : null },
  ...{ readyAt: state === "started" ? "2026-07-22T20:01:41.152Z" : null },
  ...more,
});

/** Calls one after the other, unless ticks are given. */
function history(...calls: readonly (readonly [Verb, number, Told?])[]): readonly Operation[] {
  return calls.map(([verb, status, { state, ...told } = {}], index) => {
    const machine = told.machine ?? "m";
    const shown = state === undefined ? "" : JSON.stringify(info(machine, state));
    const text = verb === "list" ? `[${shown}]` : shown;
    const at = { begunAt: index * 10, endedAt: index * 10 + 5 };
    return { verb, machine, ...at, status, code: "", text, subject: "", content: "", ...told };
  });
}

const created = ["create", 201, { state: "stopped" }] as const;
const started = ["start", 200, { state: "started" }] as const;
const stopped = ["stop", 200, { state: "stopped" }] as const;
const wrote = ["put", 200, { subject: "/workspace/a", content: "one" }] as const;

/** Crashes after which the machine is not restarted. */
const CRASHES = Array.from({ length: RESTARTS_MAX + 1 }, () => ["crash", 200] as const);

test("promised answers are not faults", () => {
  const fine: readonly (readonly Operation[])[] = [
    history(created, ["get", 200, { state: "stopped" }], started, ["get", 200, { state: "started" }], stopped),
    history(created, started, ["crash", 200], ["get", 200, { state: "creating" }], ["get", 200, { state: "started" }]),
    history(created, started, ...CRASHES, ["get", 200, { state: "error" }], stopped, started),
    history(created, started, ["delete", 204], ["get", 404], ["delete", 404], ["list", 200]),
    history(created, wrote, stopped, started, ["read", 200, { subject: "/workspace/a", text: "one" }]),
    // Concurrent calls, of which either may have been first.
    history(
      created,
      started,
      ["stop", 200, { ...stopped[2], begunAt: 30, endedAt: 60 }],
      ["get", 200, { state: "started", begunAt: 31, endedAt: 32 }],
    ),
  ];
  for (const one of fine) assert.deepEqual(faultsOf(one, WORLD), []);
});

test("impossible answers are found", () => {
  const cases: readonly (readonly [RegExp, readonly Operation[]])[] = [
    [/error is impossible/, history(created, started, ["crash", 200], ["get", 200, { state: "error" }])],
    [/stopped is impossible/, history(created, started, ["get", 200, { state: "stopped" }])],
    [/started is impossible/, history(created, started, stopped, ["get", 200, { state: "started" }])],
    [/creating is impossible/, history(created, ["get", 200, { state: "creating" }])],
    [/error is impossible/, history(created, started, ["get", 200, { state: "error" }])],
    [/was not found/, history(created, ["get", 404])],
    [/deleted machine was found/, history(created, ["delete", 204], ["get", 200, { state: "stopped" }])],
    [/deleted twice/, history(created, ["delete", 204, { endedAt: 40 }], ["delete", 204])],
    [/a fault of the server/, history(created, ["start", 500])],
    [/no answer/, history(created, ["start", 0])],
    [
      /is gone/,
      history(created, wrote, stopped, started, ["read", 404, { text: "file not found: /a", subject: "/workspace/a" }]),
    ],
    [/not what was written/, history(created, wrote, ["read", 200, { subject: "/workspace/a", text: "two" }])],
    [/room under the ceiling/, history(created, ["start", 422, { code: "quota_exceeded" }])],
    [/for no reason/, history(created, started, ["exec", 409, { code: "conflict" }])],
    [
      /name was given twice/,
      history(
        ["create", 201, { state: "stopped", subject: "a" }],
        ["create", 201, { state: "stopped", subject: "a", machine: "n" }],
      ),
    ],
    [/name is not taken/, history(["create", 409, { machine: "", code: "name_taken", subject: "a" }])],
    [/is missing in the list/, history(created, ["list", 200])],
    [/another way/, history(created, ["create", 201, { firstAnswer: "201 other" }])],
    [/exit code 1/, history(created, ["exec", 200, { text: '{"exitCode":1,"stdout":""}', content: "w" }])],
  ];
  for (const [expected, one] of cases) {
    const faults = faultsOf(one, WORLD);
    assert.equal(faults.length, 1, `${expected}: ${faults.join("; ")}`);
    assert.match(faults[0] ?? "", expected);
  }
});
