/**
 * The numbers of migrations: a database is migrated in their order, and two of one number stop every server.
 */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";

test("migrations are numbered from 1, without gaps and without two of one number", () => {
  const names = readdirSync(new URL("../../server/src/db/migrations/", import.meta.url)).sort();
  assert.deepEqual(
    names.map((name) => Number(name.slice(0, 4))),
    names.map((_, index) => index + 1),
    names.join(", "),
  );
});
