/**
 * Which node keeps how many VMs of shared pools.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DISK_GB_DEFAULT } from "@flotilla/contract/limits";
import { idleOf, type KeepingNode, kindOf, type PoolSize, sharesOf } from "./shares.ts";

const poolOf = (id: string, targetSize: number, fields: Partial<PoolSize> = {}): PoolSize => {
  return { id, image: "busybox", cpus: 1, memoryMb: 512, targetSize, ...fields };
};
const nodesOf = (...memoryMb: readonly number[]): readonly KeepingNode[] =>
  memoryMb.map((totalMemoryMb, at) => ({ id: `node-${at}`, totalMemoryMb, localImages: [] }));

const counts = (pools: readonly PoolSize[], nodes: readonly KeepingNode[]): readonly number[] => {
  const shares = sharesOf(pools, nodes);
  return nodes.map(({ id }) => (shares.get(id) ?? []).reduce((sum, { count }) => sum + count, 0));
};

test("a pool is divided by the memory of nodes, and a node that is too small for its machines has no share", () => {
  assert.deepEqual(counts([poolOf("a", 8)], nodesOf(1024, 3072)), [2, 6]);
  assert.deepEqual(counts([poolOf("a", 8, { memoryMb: 2048 })], nodesOf(1024, 3072)), [0, 8]);
  assert.deepEqual(counts([poolOf("a", 8, { memoryMb: 4096 })], nodesOf(1024, 3072)), [0, 0]);
  assert.deepEqual(counts([poolOf("a", 0)], nodesOf(1024)), [0]);
  assert.deepEqual(sharesOf([poolOf("a", 8)], []), new Map());
});

test("a local image waits on the nodes that have it", () => {
  const [first, second] = nodesOf(1024, 1024);
  assert.ok(first && second);
  const pool = poolOf("a", 4, { image: "local/mine" });
  assert.deepEqual(counts([pool], [first, { ...second, localImages: ["local/mine:latest"] }]), [0, 4]);
  assert.deepEqual(counts([pool], [first, second]), [0, 0]);
});

test("a share names the image, and the size of a pool's machine", () => {
  const [share] = sharesOf([poolOf("a", 3)], nodesOf(1024)).get("node-0") ?? [];
  assert.deepEqual(share, {
    ...{ reference: "docker.io/library/busybox:latest", cpus: 1, memoryMb: 512, diskGb: DISK_GB_DEFAULT, count: 3 },
  });
});

test("pools of one image and size are one share", () => {
  const pools = [poolOf("a", 3), poolOf("b", 2, { image: "docker.io/library/busybox" }), poolOf("c", 1, { cpus: 2 })];
  const shares = sharesOf(pools, nodesOf(1024)).get("node-0") ?? [];
  assert.deepEqual(
    shares.map(({ cpus, count }) => [cpus, count]),
    [
      [1, 5],
      [2, 1],
    ],
  );
});

test("small pools wait on different nodes", () => {
  const nodes = nodesOf(...Array.from({ length: 50 }, () => 16_384));
  const pools = Array.from({ length: 40 }, (_, at) => poolOf(`pool-${at}`, 1, { image: `team/i${at}` }));
  const most = Math.max(...counts(pools, nodes));
  assert.ok(most <= 5, `${most} of 40 on one of 50 nodes`);
});

test("the shares of each pool sum to its size, in whatever order pools and nodes come, and none differs much from its part", () => {
  const memory = fc.array(fc.integer({ min: 512, max: 2_000_000 }), { minLength: 1, maxLength: 30 });
  const sizes = fc.array(fc.nat(100), { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(memory, sizes, (memoryMb, targets) => {
      const nodes = nodesOf(...memoryMb);
      const pools = targets.map((size, at) => poolOf(`pool-${at}`, size, { image: `team/i${at}` }));
      const shares = sharesOf(pools, nodes);
      assert.deepEqual(sorted(sharesOf(pools.toReversed(), nodes.toReversed())), sorted(shares));
      const all = memoryMb.reduce((sum, each) => sum + each, 0);
      for (const pool of pools) {
        const { reference } = kindOf(pool);
        let sum = 0;
        for (const { id, totalMemoryMb } of nodes) {
          const count = shares.get(id)?.find((share) => share.reference === reference)?.count ?? 0;
          assert.ok(Math.abs(count - (pool.targetSize * totalMemoryMb) / all) <= 1);
          sum += count;
        }
        assert.equal(sum, pool.targetSize);
      }
    }),
  );
});

const sorted = (shares: ReturnType<typeof sharesOf>) =>
  [...shares]
    .map(([id, kinds]) => [id, kinds.toSorted((a, b) => (a.reference < b.reference ? -1 : 1))] as const)
    .toSorted(([a], [b]) => (a < b ? -1 : 1));

test("what waits is a pool's up to its size, and of pools of one kind the first ones get it", () => {
  const kind = kindOf(poolOf("a", 0));
  const held = [{ ...kind, waiting: 5, error: "why" }];
  const pools = [poolOf("a", 3), poolOf("b", 4), poolOf("c", 2, { cpus: 2 })];
  assert.deepEqual(
    [...idleOf(pools, held)],
    [
      ["a", { idleCount: 3, error: "why" }],
      ["b", { idleCount: 2, error: "why" }],
      ["c", { idleCount: 0, error: null }],
    ],
  );
});
