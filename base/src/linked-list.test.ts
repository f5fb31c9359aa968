/**
 * Order, removal and iteration of a linked list.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { LinkedList } from "./linked-list.ts";

const listOf = (values: readonly string[]) => {
  const list = new LinkedList<string>();
  return { list, links: values.map((value) => list.append(value)) };
};

test("what is left keeps its order, whichever was removed", () => {
  for (const removed of [0, 1, 2]) {
    const { list, links } = listOf(["a", "b", "c"]);
    assert.equal(links[removed]?.remove(), true);
    assert.equal(links[removed]?.isIn, false);
    const left = ["a", "b", "c"].filter((_, index) => index !== removed);
    assert.deepEqual([...list], left);
    assert.equal(list.first?.value, left[0]);
    list.append("d");
    assert.deepEqual([...list], [...left, "d"]);
    assert.equal(list.size, 3);
  }
});

test("a second removal does nothing", () => {
  const { list, links } = listOf(["a", "b"]);
  links[0]?.remove();
  assert.equal(links[0]?.remove(), false);
  assert.equal(list.size, 1);
  list.clear();
  assert.equal(list.first, null);
  assert.equal(links[1]?.remove(), false);
  assert.equal(list.size, 0);
});

test("an iteration has what was in when it began", () => {
  const { list, links } = listOf(["a", "b", "c"]);
  const seen: string[] = [];
  for (const value of list) {
    seen.push(value);
    links[1]?.remove();
    if (seen.length === 1) list.append("d");
  }
  assert.deepEqual(seen, ["a", "b", "c"]);
  assert.deepEqual([...list], ["a", "c", "d"]);
});
