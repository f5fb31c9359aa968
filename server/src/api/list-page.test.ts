/**
 * Pages of short lists.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Refusal } from "@flotilla/contract/errors";
import { type ListPage, listPage } from "./list-page.ts";

const shape = { path: "/v1/things", keyOf: (item: string) => item };

function all(items: readonly string[], limit: number): string[] {
  const seen: string[] = [];
  let query: { limit: number; cursor?: string } | undefined = { limit };
  while (query !== undefined) {
    const page: ListPage<string> = listPage(items, query, shape);
    seen.push(...page.body);
    const cursor = /cursor=([^&>]+)/.exec(page.headers["link"] ?? "")?.[1];
    query = cursor === undefined ? undefined : { limit, cursor };
  }
  return seen;
}

test("pages of any size show each item once", () => {
  const items = ["d", "a", "e", "c", "b"];
  for (const limit of [1, 2, 3, 5, 9]) assert.deepEqual(all(items, limit), ["a", "b", "c", "d", "e"], String(limit));
});

test("what goes between two pages leaves nothing out, and without a limit all is shown in its own order", () => {
  const { headers } = listPage(["a", "b", "c"], { limit: 2 }, shape);
  const cursor = /cursor=([^&>]+)/.exec(headers["link"] ?? "")?.[1] ?? "";
  assert.deepEqual(listPage(["a", "c"], { limit: 2, cursor }, shape).body, ["c"]);
  assert.deepEqual(listPage(["c", "a"], {}, shape), { body: ["c", "a"], headers: {} });
});

test("a cursor that this list has not given is refused", () => {
  const { headers } = listPage(["a", "b"], { limit: 1 }, { ...shape, path: "/v1/others" });
  const foreign = /cursor=([^&>]+)/.exec(headers["link"] ?? "")?.[1] ?? "";
  for (const cursor of ["", "!", "a b", "YQ==", "YQ", foreign])
    assert.throws(() => listPage(["a"], { cursor }, shape), Refusal, cursor);
});
