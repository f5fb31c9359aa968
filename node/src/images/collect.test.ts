/**
 * Which images a collection removes, and which it never removes.
 */
import assert from "node:assert/strict";
import { it } from "node:test";
import fc from "fast-check";
import { planCollection } from "./collect.ts";

const NOW = 1_000_000_000;
const MINUTE_MS = 60_000;
const image = (digest: string, minutesAgo: number, sizeBytes = 10) => ({
  digest,
  sizeBytes,
  lastUsedAt: NOW - minutesAgo * MINUTE_MS,
});
const digests = (images: readonly { digest: string }[]) => images.map(({ digest }) => digest);

it("the least recently used images are removed first, and no more than needed", () => {
  const images = [image("new", 10), image("old", 30), image("middle", 20)];
  const plan = planCollection(images, { inUse: new Set(), bytesToFree: 15, now: NOW });
  assert.deepEqual(digests(plan), ["old", "middle"]);
});

it("no image is removed while there is room", () => {
  assert.deepEqual(planCollection([image("a", 99)], { inUse: new Set(), bytesToFree: 0, now: NOW }), []);
});

it("images that a machine uses or that were used a minute ago stay", () => {
  const images = [image("used", 99), image("fresh", 1), image("idle", 5)];
  const plan = planCollection(images, { inUse: new Set(["used"]), bytesToFree: 1000, now: NOW });
  assert.deepEqual(digests(plan), ["idle"]);
});

it("a collection frees enough or removes all it may, and never removes an image in use", () => {
  const images = fc.uniqueArray(fc.record({ digest: fc.string(), sizeBytes: fc.nat(1000), lastUsedAt: fc.nat(NOW) }), {
    selector: ({ digest }) => digest,
  });
  fc.assert(
    fc.property(images, fc.nat(5000), fc.nat(10), (all, bytesToFree, used) => {
      const inUse = new Set(digests(all.slice(0, used)));
      const plan = planCollection(all, { inUse, bytesToFree, now: NOW + MINUTE_MS * 10 });
      assert.ok(plan.every(({ digest }) => !inUse.has(digest)));
      const freed = plan.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
      assert.ok(freed >= bytesToFree || plan.length === all.length - inUse.size);
    }),
  );
});
