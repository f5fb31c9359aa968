/**
 * Connection strings with several hosts, as libpq reads them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { hostsOf } from "./hosts.ts";

const read = (connectionString: string) =>
  hostsOf({ connectionString }).map(({ name, config }) => [name, config.connectionString]);

test("a string with one host is passed on unchanged", () => {
  for (const text of [
    "postgres://flotilla:p%40ss@db/flotilla",
    "postgres://flotilla@%2Frun%2Fdb/flotilla?sslmode=disable&options=-c%20x%3D1",
    "postgresql:///flotilla?host=/run/db",
    "postgres://[::1]:5433/flotilla",
  ])
    assert.deepEqual(
      read(text).map(([, config]) => config),
      [text],
    );
});

test("each of several hosts has the user, the database and the parameters of the string", () => {
  assert.deepEqual(
    read("postgres://u:a%2Cb@db1:5432,db2,[::1]:5433/flotilla?sslmode=verify-full&target_session_attrs=read-write"),
    [
      ["db1:5432", "postgres://u:a%2Cb@db1:5432/flotilla?sslmode=verify-full"],
      ["db2", "postgres://u:a%2Cb@db2/flotilla?sslmode=verify-full"],
      ["[::1]:5433", "postgres://u:a%2Cb@[::1]:5433/flotilla?sslmode=verify-full"],
    ],
  );
});

test("hosts and ports may be parameters, with one port for all or one for each", () => {
  assert.deepEqual(read("postgres://u@/flotilla?host=/run/a,/run/b&port=5432,5433"), [
    ["/run/a:5432", "postgres://u@/flotilla?host=%2Frun%2Fa&port=5432"],
    ["/run/b:5433", "postgres://u@/flotilla?host=%2Frun%2Fb&port=5433"],
  ]);
  assert.deepEqual(
    read("postgres://u@/flotilla?host=a,b&port=6000").map(([name]) => name),
    ["a:6000", "b:6000"],
  );
  assert.throws(() => read("postgres://u@/flotilla?host=a,b,c&port=1,2"), /3 hosts and 2 ports/);
});

test("a string that asks for a standby is refused with what to write", () => {
  assert.throws(
    () => read("postgres://u:secret@a,b/flotilla?target_session_attrs=standby"),
    (error: Error) => {
      assert.match(error.message, /target_session_attrs=standby.*use read-write/);
      assert.doesNotMatch(error.message, /secret/);
      return true;
    },
  );
  assert.equal(read("postgres://u@a/flotilla?target_session_attrs=primary").length, 1);
});
