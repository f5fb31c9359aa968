/**
 * What the server's log has of an error: enough to find the fault, and nothing of a row or a request.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { DatabaseUnavailable } from "./db/database.ts";
import { createLog } from "./log.ts";

function logged(error: unknown): Record<string, unknown> {
  const lines: string[] = [];
  createLog("error", { write: (line) => void lines.push(line) }).error({ loop: "pools", error }, "a loop failed");
  assert.equal(lines.length, 1);
  const { level, message, loop, error: described } = JSON.parse(lines[0] ?? "");
  assert.deepEqual({ level, message, loop }, { level: "error", message: "a loop failed", loop: "pools" });
  return described;
}

test("an error's line has its reason once, and its cause beside it", () => {
  const error = logged(new DatabaseUnavailable(new Error("read ECONNRESET")));
  assert.equal(error["type"], "DatabaseUnavailable");
  assert.equal(error["message"], "the database does not answer: read ECONNRESET");
  assert.match(String(error["stack"]), /log\.test\.ts/);
  assert.equal((error["cause"] as Error).message, "read ECONNRESET");
});

test("the row that PostgreSQL refused is not logged, also if its error is the cause of another", () => {
  const refusal = Object.assign(new Error("violates check constraint"), {
    code: "23514",
    detail: "Failing row: secret-1",
  });
  const one = logged(new Error("the write failed", { cause: refusal }));
  const several = logged(new AggregateError([refusal], "all writes failed"));
  for (const error of [logged(refusal), one, several]) {
    assert.match(JSON.stringify(error), /violates check constraint.*23514/);
    assert.doesNotMatch(JSON.stringify(error), /secret-1/);
  }
});

test("an error that is its own cause is logged", () => {
  const error = new Error("circle");
  error.cause = error;
  assert.equal(logged(error)["message"], "circle");
});
