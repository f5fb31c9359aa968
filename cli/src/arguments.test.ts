/**
 * Command line values: every accepted form, and that everything else is refused with the expected form.
 *
 * Always: a refusal is a commander error, so the command ends with the usage exit code.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { InvalidArgumentError } from "commander";
import {
  count,
  deadlineSeconds,
  diskGb,
  hook,
  instant,
  memoryMb,
  micros,
  pair,
  ports,
  seconds,
  collect,
} from "./arguments.ts";

test("sizes and times are read with and without a unit", () => {
  assert.deepEqual(["90", "90s", "10m", "2h", "1d", "5 min"].map(seconds), [90, 90, 600, 7200, 86_400, 300]);
  assert.deepEqual(["1", "1d"].map(deadlineSeconds), [1, 86_400]);
  assert.deepEqual(["512", "512m", "2g", "2GB"].map(memoryMb), [512, 512, 2048, 2048]);
  assert.deepEqual(["20", "20g", "1t"].map(diskGb), [20, 20, 1024]);
});

test("amounts are exact micros, and dates begin at midnight in UTC", () => {
  assert.deepEqual(["12", "0.02", "19.99", "0.000001"].map(micros), [12_000_000, 20_000, 19_990_000, 1]);
  for (const text of ["", "-1", "1,5", "0.0000001", "1e3", ".5"])
    assert.throws(() => micros(text), InvalidArgumentError);
  assert.equal(instant("2026-07-01"), "2026-07-01T00:00:00.000Z");
  assert.equal(instant("2026-07-01T12:00:00+02:00"), "2026-07-01T10:00:00.000Z");
  for (const text of ["July", "2026-7-1", "2026-07-01T12:00:00"])
    assert.throws(() => instant(text), InvalidArgumentError, text);
});

test("a bad size, time, count or port is refused with the expected form", () => {
  const refused: readonly [(text: string) => unknown, string[], RegExp][] = [
    [seconds, ["", "m", "-1", "1.5h", "1y", "1e3", "toString"], /90s, 10m/],
    [deadlineSeconds, ["0", "2d", "25h"], /from 1s to 1d/],
    [memoryMb, ["", "2t", "x"], /512m or 2g/],
    [diskGb, ["10m"], /20g or 1t/],
    [count, ["0", "-1", "1.5", "", "12345678901"], /above 0/],
    [(text) => ports(text), ["0", "65536", "http"], /port|above 0/],
    [(text) => pair(text), ["", "NAME", "=value"], /NAME=VALUE/],
    [(text) => hook(text), ["", "fork", "fork=", "start=true", "toString=1"], /fork, resume, suspend or stop/],
  ];
  for (const [read, texts, message] of refused) {
    for (const text of texts) {
      assert.throws(
        () => read(text),
        (error) => error instanceof InvalidArgumentError && message.test(error.message),
        text,
      );
    }
  }
});

test("repeated options accumulate; a value may contain the separator or be empty", () => {
  assert.deepEqual(pair("B=x=y", pair("A=")), { A: "", B: "x=y" });
  assert.deepEqual(collect("b", collect("a")), ["a", "b"]);
  assert.deepEqual(ports("443", ports("80")), [80, 443]);
});
