/**
 * How long a server that does not answer is asked again.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { FlotillaError } from "@flotilla/sdk";
import { Call, type World } from "./call.ts";
import { whileUnreachable } from "./server-unreachable.ts";

const noAnswer = (code: string): FlotillaError =>
  new FlotillaError({ status: 0, code, text: code, requestId: null, call: "GET /v1/events" });

/** A call whose time passes only when it waits, and when `pass` is called. */
function callInTime(): { readonly call: Call; readonly pass: (ms: number) => void } {
  let time = 0;
  const pass = (ms: number): void => void (time += ms);
  const clock = { ...systemClock, monotonic: () => time, sleep: async (ms: number) => pass(ms) };
  const world = { clock, streams: process } as unknown as World;
  return { call: new Call(world, {}), pass };
}

test("a connection that died unnoticed costs one attempt, whose time is limited, and an unreachable server is left after a while", async () => {
  const { call, pass } = callInTime();
  let asked = 0;
  const ask = async ({ timeoutMs }: { readonly timeoutMs: number }): Promise<string> => {
    asked += 1;
    if (asked > 1) return "answer";
    pass(timeoutMs);
    throw noAnswer("timeout");
  };
  assert.equal(await whileUnreachable(call, ask), "answer");
  assert.equal(asked, 2);
  const never = whileUnreachable(call, () => Promise.reject(noAnswer("unreachable")));
  await assert.rejects(never, { code: "unreachable" });
});
