/**
 * How lists of images share the event loop, with the real turns, on a clock that the test moves.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { ImageInfo } from "@flotilla/contract/images";
import { Turns } from "../fairness/turns.ts";
import { textOf } from "./list.ts";

const image = (index: number): ImageInfo => ({
  reference: `app:${index}`,
  digest: `sha256:${index}`,
  size: 1,
  architecture: "amd64",
  os: "linux",
  layerCount: 1,
  nodeId: "node-1",
  lastUsedAt: null,
});

test("several long lists of a tenant take as many rounds of the event loop as they have pieces, and say the same", async () => {
  let now = 0;
  // Each look at the clock takes a millisecond, and so does a piece.
  const clock = { monotonic: () => (now += 1), timer: () => ({ cancel: () => undefined }) };
  const turns = new Turns(clock);
  const images = Array.from({ length: 2_000 }, (_, index) => image(index));
  let rounds = 0;
  let isOver = false;
  const count = (): void => {
    rounds += 1;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const texts = await Promise.all([1, 2, 3].map(() => textOf(turns, "a", images)));
  isOver = true;
  assert.ok(rounds >= 25, `${rounds} rounds`);
  for (const text of texts) assert.deepEqual(JSON.parse(text), images);
  assert.equal(await textOf(turns, "a", []), "[]");
});
