/**
 * What guests of every host must not reach.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { closedToGuests } from "./closed.ts";

const NOTHING = { listeners: [], ingresses: [], databaseUrl: null };

test("listeners of servers and ingresses and the database are closed, each once", () => {
  const listeners = [{ id: "a", addresses: ["10.0.0.1:8443", "[fd00::1]:8443"] }];
  const ingresses = [{ id: "b", addresses: ["10.0.0.2:8444", "10.0.0.1:8443"] }];
  const databaseUrl = "postgres://user:secret@db.lan/flotilla";
  assert.deepEqual(closedToGuests({ listeners, ingresses, databaseUrl }), [
    "db.lan:5432",
    "10.0.0.1:8443",
    "[fd00::1]:8443",
    "10.0.0.2:8444",
  ]);
});

test("a database at a socket has no address, nor has an empty host", () => {
  for (const databaseUrl of [
    null,
    "postgres://%2Frun%2Fpostgresql/flotilla",
    "postgres:///flotilla?host=/run/db",
    "postgres:///flotilla",
  ])
    assert.deepEqual(closedToGuests({ ...NOTHING, databaseUrl }), [], String(databaseUrl));
  assert.deepEqual(closedToGuests({ ...NOTHING, databaseUrl: "postgres://10.0.0.9:6432/x" }), ["10.0.0.9:6432"]);
  const several = "postgresql://u:p@db1,db2:6432,[fd00::2]/x?sslmode=require";
  assert.deepEqual(closedToGuests({ ...NOTHING, databaseUrl: several }), ["db1:5432", "db2:6432", "[fd00::2]:5432"]);
});

test("the list is bounded, and begins with the database", () => {
  const addresses = Array.from({ length: 2_000 }, (_, n) => `10.1.${n >> 8}.${n & 255}:9000`);
  const listeners = [{ id: "a", addresses }];
  const closed = closedToGuests({ ...NOTHING, listeners, databaseUrl: "postgres://10.0.0.9/x" });
  assert.deepEqual([closed.length, closed[0]], [1_000, "10.0.0.9:5432"]);
});
