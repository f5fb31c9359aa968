/**
 * What is typed into a terminal, as it is passed on.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { endOfTurn } from "@flotilla/base/clock";
import { inputOf } from "./terminal.ts";

test("single bytes that are typed together are passed together, and a resize keeps its place", async () => {
  const sent: string[] = [];
  const exec = {
    room: Promise.resolve(),
    send: (type: string, payload?: Uint8Array | string) => {
      sent.push(`${type} ${Buffer.from(payload ?? "").toString()}`);
      return true;
    },
  };
  const socket = { isPaused: false, pause: () => assert.fail("there was room"), resume: () => undefined };
  const input = inputOf(socket, exec);
  for (let count = 0; count < 1_000; count += 1) input(Buffer.from("x"), true);
  input(Buffer.from('{"type":"resize","cols":3,"rows":2}'), false);
  for (const one of "bc") input(Buffer.from(one), true);
  await endOfTurn();
  assert.deepEqual(sent, [`stdin ${"x".repeat(1_000)}`, 'resize {"cols":3,"rows":2}', "stdin bc"]);
});
