/**
 * The table of host names: which queries it makes, which it shares, and what it keeps.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Queryable, Statement } from "../db/database.ts";
import { type HostSubject, subjectOfId } from "./kinds.ts";
import { HostTable } from "./table.ts";

const ONE: HostSubject = { kind: "machine", id: `mach-${"1".repeat(32)}` };
const OTHER: HostSubject = { kind: "machine", id: `mach-${"2".repeat(32)}` };

/** A database whose answers the test sends. */
function scripted() {
  const queries: { readonly name: unknown; readonly answer: (found: HostSubject | undefined | Error) => void }[] = [];
  const queryOne = ({ values }: Statement) =>
    new Promise((resolve, reject) => {
      queries.push({
        name: values[0],
        answer: (found) => (found instanceof Error ? reject(found) : resolve(found)),
      });
    });
  const answer = (index: number, found: HostSubject | undefined | Error): void => {
    assert.ok(queries[index], `query ${index} was made`);
    queries[index].answer(found);
  };
  return { table: new HostTable({ queryOne } as unknown as Queryable), queries, answer };
}

test("a name is asked for once, until its subject is gone", async () => {
  const { table, queries, answer } = scripted();
  assert.equal(table.known("web"), undefined);
  const finding = table.find("web");
  answer(0, ONE);
  assert.deepEqual(await finding, ONE);
  assert.deepEqual([table.known("web"), await table.find("web")], [ONE, ONE]);
  assert.deepEqual(
    queries.map(({ name }) => name),
    ["web"],
  );
  table.forget("web", OTHER);
  assert.deepEqual(table.known("web"), ONE, "another one was found to be gone, before this one was known");
  table.forget("web", ONE);
  assert.equal(table.known("web"), undefined);
  const next = table.find("web");
  answer(1, OTHER);
  assert.deepEqual(await next, OTHER);
});

test("calls at the same time share a query, and what it finds", async () => {
  const { table, queries, answer } = scripted();
  const finding = [table.find("web"), table.find("web"), table.find("web")];
  const elsewhere = table.find("api");
  assert.deepEqual(
    queries.map(({ name }) => name),
    ["web", "api"],
  );
  answer(0, ONE);
  answer(1, OTHER);
  assert.deepEqual(await Promise.all(finding), [ONE, ONE, ONE]);
  assert.deepEqual(await elsewhere, OTHER);
});

test("a query that began before a call does not say to it that nothing has the name", async () => {
  const { table, queries, answer } = scripted();
  const before = table.find("web");
  const later = [table.find("web"), table.find("web")];
  answer(0, undefined);
  assert.equal(await before, undefined);
  assert.equal(queries.length, 2, "one query for both");
  answer(1, ONE);
  assert.deepEqual(await Promise.all(later), [ONE, ONE]);
});

test("a name that nothing has is not kept, nor is an error", async () => {
  const { table, queries, answer } = scripted();
  for (const [index, found] of [undefined, new Error("unavailable"), undefined].entries()) {
    const finding = table.find("nowhere");
    answer(index, found);
    await finding.then(
      (result) => assert.equal(result, undefined),
      (error) => assert.equal(error, found),
    );
  }
  assert.equal(queries.length, 3);
  assert.equal(table.known("nowhere"), undefined);
});

test("the oldest of many names is dropped", async () => {
  const table = new HostTable({ queryOne: () => Promise.resolve(ONE) } as unknown as Queryable);
  await Promise.all(Array.from({ length: 10_001 }, (_, n) => table.find(`n-${n}`)));
  assert.equal(table.known("n-0"), undefined);
  for (const name of ["n-1", "n-10000"]) assert.deepEqual(table.known(name), ONE, name);
});

test("an id is a name without a query", async () => {
  const { table, queries } = scripted();
  assert.deepEqual([table.known(ONE.id), await table.find(ONE.id)], [ONE, ONE]);
  table.forget(ONE.id, ONE);
  assert.deepEqual(table.known(ONE.id), ONE);
  assert.equal(queries.length, 0);
});

test("names that only begin like an id are none", () => {
  assert.deepEqual(subjectOfId(ONE.id), ONE);
  for (const name of ["web", "mach-1", `mach-${"1".repeat(33)}`, `mach-${"g".repeat(32)}`, `x-${"1".repeat(32)}`])
    assert.equal(subjectOfId(name), undefined, name);
});
