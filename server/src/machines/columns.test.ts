/**
 * The lists that statements are made from, and the records that their documents have.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { machineRecord, NOW } from "../../test/support/machine.ts";
import { ASSIGNED, CHANGING_TYPED, changingRow, NAMES, SELECTED, TYPED, wholeRow } from "./columns.ts";

const parts = ({ text }: { readonly text: string }): readonly string[] => text.split(", ");

test("a field is selected under its name, an instant in milliseconds", () => {
  const selected = parts(SELECTED);
  for (const part of ['m.memory_mb AS "memoryMb"', 'ms(m.created_at) AS "createdAt"', 'm.id AS "id"'])
    assert.ok(selected.includes(part), part);
});

test("the columns of a new row are those of its document, in one order", () => {
  const names = parts(NAMES);
  assert.deepEqual(
    parts(TYPED).map((part) => part.split(" ")[0]),
    names,
  );
  assert.deepEqual(Object.keys(wholeRow(machineRecord())), names);
});

test("a change writes the columns that its document has, and no others", () => {
  const names = Object.keys(changingRow(machineRecord()));
  assert.deepEqual(
    parts(CHANGING_TYPED).map((part) => part.split(" ")[0]),
    names,
  );
  assert.deepEqual(
    parts(ASSIGNED),
    names.map((name) => `${name} = c.${name}`),
  );
  for (const name of ["id", "tenant_id", "revision", "updated_at", "node_id"])
    assert.equal(names.includes(name), name === "node_id", name);
});

test("instants and bytes are written as PostgreSQL reads them in a document", () => {
  const secretEnv = Buffer.from([0, 255]);
  const row: Readonly<Record<string, unknown>> = { ...wholeRow(machineRecord({ secretEnv, createdAt: NOW })) };
  assert.equal(row["created_at"], new Date(NOW).toISOString());
  assert.equal(row["secret_env"], "\\x00ff");
  assert.equal(row["ready_at"], null);
});
