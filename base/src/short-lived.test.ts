/**
 * What young collections keep of objects that have gone, in this process: next to nothing. Its flags stay
 * changed.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { LinkedList } from "./linked-list.ts";
import { ReleasingMap } from "./releasing-map.ts";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as (options: { readonly type: "minor" | "major" }) => void;

const OBJECTS = 20_000;
const OBJECT_BYTES = 1024;
/** One of a hundred. */
const KEPT_BYTES_MAX = (OBJECTS * OBJECT_BYTES) / 100;
const AT_ONCE = 4;

interface Passage {
  /** Returns what removes it. */
  readonly add: (value: object, index: number) => () => void;
}

/** Bytes that are kept of many objects, of which a few are in at the same time. */
function keptBytes({ add }: Passage): number {
  const leave: (() => void)[] = [];
  const pass = (count: number): void => {
    for (let index = 0; index < count; index += 1) {
      leave.push(
        add(
          Array.from({ length: OBJECT_BYTES / 8 }, () => index),
          index,
        ),
      );
      if (leave.length > AT_ONCE) leave.shift()?.();
    }
  };
  pass(AT_ONCE * 10);
  // What is in now moves to the old generation.
  collect({ type: "major" });
  const before = process.memoryUsage().heapUsed;
  pass(OBJECTS);
  for (const one of leave) one();
  collect({ type: "minor" });
  collect({ type: "minor" });
  return process.memoryUsage().heapUsed - before;
}

test("a list keeps nothing of what has left it", () => {
  const list = new LinkedList<object>();
  const add = (value: object): (() => void) => {
    const link = list.append(value);
    return () => void link.remove();
  };
  const kept = keptBytes({ add });
  assert.equal(list.size, 0);
  assert.ok(kept < KEPT_BYTES_MAX, `${kept} bytes`);
});

test("a map keeps nothing of what was deleted", () => {
  const map = new ReleasingMap<number, object>();
  const add = (value: object, index: number): (() => void) => {
    map.set(index, value);
    return () => void map.delete(index);
  };
  const kept = keptBytes({ add });
  assert.equal(map.size, 0);
  assert.ok(kept < KEPT_BYTES_MAX * 10, `${kept} bytes`);
});
