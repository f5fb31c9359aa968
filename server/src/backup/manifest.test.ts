/**
 * The order of tables, and which backups are refused by what they say of themselves.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { inLoadOrder, parseManifest, refuseUnknownSchema } from "./manifest.ts";

const MANIFEST = {
  format: 1,
  flotilla: "0.1.0",
  createdAt: "2030-01-01T00:00:00.000Z",
  clusterId: "c",
  postgres: "18.4",
  migrations: ["0001_a"],
  tables: [{ name: "a", columns: ["id"] }],
};
const parsed = (changes: object) => parseManifest(Buffer.from(JSON.stringify({ ...MANIFEST, ...changes })));

test("a table is loaded after those it refers to, also if it refers to itself", () => {
  const tables = ["a", "b", "c"].map((name) => ({ name }));
  const references = [
    { from: "a", to: "c" },
    { from: "c", to: "b" },
    { from: "b", to: "b" },
  ];
  assert.deepEqual(
    inLoadOrder(tables, references).map(({ name }) => name),
    ["b", "c", "a"],
  );
  assert.throws(() => inLoadOrder(tables, [...references, { from: "b", to: "a" }]), /in a circle/);
});

test("a manifest of another form is refused, and one of a later version says so", () => {
  assert.deepEqual(parsed({}), MANIFEST);
  assert.throws(() => parsed({ format: 2, flotilla: "9.0.0" }), /a later version of Flotilla \(9\.0\.0\) made it/);
  for (const changes of [{ format: "1" }, { clusterId: 5 }, { migrations: [1] }, { tables: [{ name: "a" }] }])
    assert.throws(() => parsed(changes));
  assert.throws(() => parseManifest(Buffer.from("{")), /manifest/);
});

test("a backup of a later schema, or of another line of the program, is refused, and an earlier one is not", () => {
  refuseUnknownSchema(["0001_a"], ["0001_a", "0002_b"]);
  assert.throws(
    () => refuseUnknownSchema(["0001_a", "0002_b"], ["0001_a"]),
    /schema of a later Flotilla: it has 0002_b/,
  );
  assert.throws(() => refuseUnknownSchema(["0001_x"], ["0001_a"]), /another line/);
});
