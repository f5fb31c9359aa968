/**
 * The paths of parts of machines that move: what is printed is what is read, and nothing else is.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { BLOCK_BYTES } from "./blocks.ts";
import { type MovedPart, type MovedPartKind, partPath, readPart } from "./moved-parts.ts";
import { InvalidMessage } from "./read.ts";

const [POINT, OTHER] = ["1".repeat(32), "2".repeat(32)];
const PARTS: readonly MovedPart[] = [
  { kind: "file", name: "disk", from: BLOCK_BYTES, since: null },
  { kind: "file", name: "disk", from: 0, since: POINT },
  { kind: "file", name: "log-17", from: 0, since: null },
  { kind: "diskRound", point: POINT, since: null },
  { kind: "diskRound", point: POINT, since: OTHER },
  { kind: "memoryRounds", point: POINT },
  { kind: "rest", point: POINT, diskPoint: OTHER, generation: 7 },
];

const read = (kind: MovedPartKind, path: string): MovedPart => {
  const { pathname, searchParams } = new URL(path, "http://node/");
  return readPart(kind, pathname.split("/").at(-1), searchParams);
};

test("a part is read from the path that is printed for it", () => {
  for (const part of PARTS) assert.deepEqual(read(part.kind, partPath(part)), part);
});

test("a path that names no part is refused with what is wrong", () => {
  const wrong: readonly (readonly [MovedPartKind, string, RegExp])[] = [
    ["file", "files/journal.json", /file/],
    ["file", "files/disk?from=1", /from/],
    ["file", "files/disk?from=-65536", /from/],
    ["file", "files/disk?since=x", /since/],
    ["file", `files/memory?since=${POINT}`, /since/],
    ["diskRound", "rounds/disk", /point/],
    ["diskRound", `rounds/disk?point=${POINT}&since=`, /since/],
    ["memoryRounds", "rounds/memory?point=..", /point/],
    ["rest", `rest?point=${POINT}&disk=${OTHER}`, /generation/],
    ["rest", `rest?point=${POINT}&disk=${OTHER}&generation=0.5`, /generation/],
    ["rest", `rest?point=${POINT}&generation=1`, /disk/],
  ];
  for (const [kind, path, what] of wrong)
    assert.throws(
      () => read(kind, path),
      (error) => error instanceof InvalidMessage && what.test(error.message),
      path,
    );
});
