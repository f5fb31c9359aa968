/**
 * Keeps docs/status-codes.md equal to the registry of errors.
 */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { ERRORS } from "@flotilla/contract/errors";

test("the page of status codes lists every code of the registry in its order and no other", async () => {
  const page = await readFile(new URL("../../docs/status-codes.md", import.meta.url), "utf8");
  const listed = page.split("\n").filter((line) => /^\| \d{3} /.test(line));
  const expected = Object.entries(ERRORS).map(
    ([code, { status, meaning, actor }]) => `| ${status} | \`${code}\` | ${meaning} | ${actor} |`,
  );
  assert.deepEqual(listed, expected);
});
