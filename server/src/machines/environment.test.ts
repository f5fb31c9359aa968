/**
 * What is refused before a boot or a command fails on it.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ARGUMENTS_MAX, VARIABLES_MAX } from "@flotilla/contract/limits";
import { checkArguments, checkEnvironment } from "./environment.ts";

const variables = (count: number): Record<string, string> =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`V${index}`, "x"]));
const refusal = { code: "invalid_request" };

test("more variables than the guest takes are refused with their number and the limit", () => {
  assert.equal(Object.keys(checkEnvironment(variables(VARIABLES_MAX))).length, VARIABLES_MAX);
  const message = `env has ${VARIABLES_MAX + 1} variables; at most ${VARIABLES_MAX} are possible; pass many values in one, or as a file`;
  assert.throws(() => checkEnvironment(variables(VARIABLES_MAX + 1)), { ...refusal, message });
});

test("more arguments than the guest takes are refused with their number and the limit", () => {
  const most = Array.from({ length: ARGUMENTS_MAX }, () => "a");
  assert.equal(checkArguments(most, "").length, ARGUMENTS_MAX);
  const message = `command has ${ARGUMENTS_MAX + 1} arguments; at most ${ARGUMENTS_MAX} are possible; write them to a file`;
  assert.throws(() => checkArguments([...most, "a"], "write them to a file"), { ...refusal, message });
});
