/**
 * The table of targets, from one version to the next.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  changedTable,
  isRouted,
  NO_ROUTES,
  type RouteChange,
  type RouteTable,
  VERSION_OF_NOTHING,
} from "./route-table.ts";

const change = (id: string, version: number, more: Partial<RouteChange> & { machines?: readonly string[] } = {}) => {
  const { machines = [], ...rest } = more;
  const targets = machines.map((machine) => ({ machine: { tenantId: "tenant-1", id: machine }, port: null }));
  return { id, domain: null, isGone: false, targets, version, ...rest };
};

/** Throws when the table is to be read again. */
function after(table: RouteTable, version: number, ...changes: readonly RouteChange[]): RouteTable {
  const next = changedTable(table, { version, changes });
  assert.ok(next !== null);
  return next;
}

test("a table has each change up to its version, and only changed apps differ", () => {
  const one = after(NO_ROUTES, 3, change("web", 2, { machines: ["m1", "m2"] }), change("api", 3, { machines: ["m3"] }));
  assert.equal(one.version, 3);
  const two = after(one, 4, change("web", 4, { machines: ["m2", "m4"] }));
  const routed = (table: RouteTable) =>
    ["m1", "m2", "m3", "m4"].filter((id) => isRouted(table, "web", id) || isRouted(table, "api", id));
  assert.deepEqual(routed(one), ["m1", "m2", "m3"]);
  assert.deepEqual(routed(two), ["m2", "m3", "m4"]);
  assert.equal(two.routes.get("api"), one.routes.get("api"));
  assert.equal(isRouted(two, "web", "m3"), false, "it is another app's");
  assert.equal(isRouted(two, "none", "m3"), false);
});

test("a version without changes of apps is still a newer version, and the same version is the same table", () => {
  const one = after(NO_ROUTES, 3, change("web", 2));
  assert.equal(after(one, 5).version, 5);
  assert.equal(after(one, 3), one);
  assert.equal(after(NO_ROUTES, 0).version, 0, "an empty table was read");
  assert.equal(NO_ROUTES.version, VERSION_OF_NOTHING);
});

test("an app that was destroyed is not in the table, nor is its domain", () => {
  const one = after(NO_ROUTES, 2, change("web", 2, { domain: "shop.example", machines: ["m1"] }));
  assert.equal(one.domains.get("shop.example"), "web");
  for (const domain of ["shop.example", null]) {
    const two = after(one, 3, change("web", 3, { domain, isGone: true }));
    assert.deepEqual([two.routes.size, two.domains.size], [0, 0]);
  }
});

test("a domain leads to the app that took it last, whatever the order of the rows", () => {
  const one = after(NO_ROUTES, 1, change("old", 1, { domain: "shop.example" }));
  // `old` left it, `new` took it, and `old` has changed since.
  const rows = [change("old", 4, { domain: "other.example" }), change("new", 3, { domain: "shop.example" })];
  for (const changes of [rows, rows.toReversed()]) {
    const two = after(one, 4, ...changes);
    assert.deepEqual(Object.fromEntries(two.domains), { "shop.example": "new", "other.example": "old" });
  }
  const gone = after(one, 5, change("new", 3, { domain: "shop.example" }), change("old", 5, { isGone: true }));
  assert.deepEqual(Object.fromEntries(gone.domains), { "shop.example": "new" });
});

test("a database that knows fewer versions was restored, so the table is read again", () => {
  const one = after(NO_ROUTES, 7, change("web", 7));
  assert.equal(changedTable(one, { version: 6, changes: [] }), null);
});
