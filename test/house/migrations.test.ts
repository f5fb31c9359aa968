/**
 * The numbers of migrations: they are applied in this order, and two with one number would stop every server.
 */
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";

test("migrations are numbered from 1, without gaps and duplicates", () => {
  const names = readdirSync(new URL("../../server/src/db/migrations/", import.meta.url)).sort();
  assert.deepEqual(
    names.map((name) => Number(name.slice(0, 4))),
    names.map((_, index) => index + 1),
    names.join(", "),
  );
});
