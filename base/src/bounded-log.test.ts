/**
 * Bounded logs, of a program that keeps its file open.
 */
import assert from "node:assert/strict";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, statSync, truncateSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { boundLog, LOG_BYTES_MAX } from "./bounded-log.ts";

test("a log that is too large becomes the previous one, and its program continues in the same file", async (t) => {
  const directory = mkdtempSync(join(tmpdir(), "flotilla-log-"));
  t.after(() => rmSync(directory, { recursive: true }));
  const path = join(directory, "log");
  const program = openSync(path, "a", 0o600);
  t.after(() => closeSync(program));
  writeSync(program, "begin\n");
  await boundLog(path);
  assert.equal(readFileSync(path, "utf8"), "begin\n");

  truncateSync(path, LOG_BYTES_MAX);
  writeSync(program, "end\n");
  await boundLog(path);
  writeSync(program, "after\n");
  assert.equal(readFileSync(path, "utf8"), "after\n");
  assert.equal(readFileSync(`${path}.1`, "utf8").replaceAll("\0", ""), "begin\nend\n");
  assert.equal(statSync(`${path}.1`).mode & 0o777, 0o600);
});

test("a log that does not exist is not made", async () => {
  await boundLog(join(tmpdir(), "flotilla-log-of-none"));
});
