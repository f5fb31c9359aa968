/**
 * Placement at fleet size: how full it makes a fleet, and that a decision agrees with its explanation.
 *
 * The machines that are offered need together exactly what the fleet has, so no packing, also one that knows
 * all machines in advance, places more than all of them.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type CandidateNode, explain, place, type PlacementRequest, promise } from "./place.ts";
import { placeBeside } from "./scores.ts";

const NODES = 200;
const [NODE_CPUS, NODE_MEMORY_MB] = [64, 262_144];
const EXACT = { cpus: 1, memory: 1 };
const SHARE_MIN = 0.88;

/**
 * Processors and GiB, and how many of a hundred machines have them: together 4 GiB for each processor, as the
 * nodes.
 */
const SIZES = [
  { cpus: 1, gib: 1, share: 24 },
  { cpus: 1, gib: 4, share: 24 },
  { cpus: 2, gib: 8, share: 16 },
  { cpus: 4, gib: 12, share: 8 },
  { cpus: 4, gib: 24, share: 8 },
  { cpus: 8, gib: 24, share: 5 },
  { cpus: 8, gib: 48, share: 5 },
  { cpus: 16, gib: 64, share: 6 },
  { cpus: 32, gib: 128, share: 4 },
];

/** A linear congruential generator: the same numbers in every run. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
}

function shuffled<T>(items: readonly T[], random: () => number): readonly T[] {
  const ordered = items.map((item) => ({ item, at: random() })).toSorted((a, b) => a.at - b.at);
  return ordered.map(({ item }) => item);
}

const requestOf = (cpus: number, memoryMb: number): PlacementRequest => ({
  ...{ cpus, memoryMb, arch: null, nodeLabels: {}, holders: null },
});

const emptyNode = (n: number): CandidateNode => ({
  ...{ id: `node-${String(n).padStart(4, "0")}`, address: "", status: "ready", isCordoned: false, arch: "amd64" },
  ...{ labels: {}, totalCpus: NODE_CPUS, usedCpus: 0, totalMemoryMb: NODE_MEMORY_MB },
  ...{
    availableMemoryMb: NODE_MEMORY_MB,
    availableDiskGb: 10_000,
    pressure: null,
    activeMachines: 0,
    activeCpus: 0,
    activeMemoryMb: 0,
  },
});

/** Machines that together need every processor and all memory of the fleet. */
function offered(): readonly PlacementRequest[] {
  const requests: PlacementRequest[] = [];
  let [cpus, memoryMb] = [NODES * NODE_CPUS, NODES * NODE_MEMORY_MB];
  for (;;) {
    for (const { cpus: each, gib, share } of SIZES)
      for (let n = 0; n < share; n += 1) {
        if (each > cpus || gib * 1024 > memoryMb) return requests;
        requests.push(requestOf(each, gib * 1024));
        cpus -= each;
        memoryMb -= gib * 1024;
      }
  }
}

/**
 * How many starts are being written while the next is placed: as many as a server has connections to its
 * database.
 */
const WRITING = 20;

test("a fleet is filled to at least 88 % of what any packing places, in any order of mixed sizes, one by one and many at once", () => {
  const machines = offered();
  const whole = machines.reduce((sum, { memoryMb }) => sum + memoryMb, 0);
  assert.ok(whole > 0.97 * NODES * NODE_MEMORY_MB, "the offered machines do not fill the fleet");
  for (const [seed, writing] of [
    [1, 0],
    [2, 0],
    [3, 0],
    [4, WRITING],
    [5, WRITING],
  ] as const) {
    const nodes = new Map(Array.from({ length: NODES }, (_, n) => [emptyNode(n).id, emptyNode(n)]));
    const lastNodes: string[] = [];
    let packed = 0;
    for (const request of shuffled(machines, numbers(seed))) {
      const options = { overcommit: EXACT, contended: new Set(lastNodes) };
      const { nodeId } = placeBeside([...nodes.values()], request, options);
      const node = nodeId === null ? undefined : nodes.get(nodeId);
      if (node === undefined) continue;
      nodes.set(node.id, promise(node, request, 1));
      packed += request.memoryMb;
      lastNodes.push(node.id);
      if (lastNodes.length > writing) lastNodes.shift();
    }
    for (const { activeCpus, activeMemoryMb } of nodes.values())
      assert.ok(activeCpus <= NODE_CPUS && activeMemoryMb <= NODE_MEMORY_MB, "a node is oversubscribed");
    const share = packed / whole;
    assert.ok(share >= SHARE_MIN, `seed ${seed}: ${(share * 100).toFixed(1)} %`);
  }
});

test("the chosen node is the one that the explanation names, for nodes in any state", () => {
  const random = numbers(7);
  const below = (n: number): number => Math.floor(random() * n);
  for (let round = 0; round < 300; round += 1) {
    const nodes = Array.from({ length: 1 + below(12) }, (_, n): CandidateNode => {
      const node = emptyNode(n);
      return {
        ...node,
        status: below(5) === 0 ? "draining" : "ready",
        isCordoned: below(5) === 0,
        activeCpus: below(3) * 16,
        activeMemoryMb: below(3) * 65_536,
        usedCpus: below(3) * 8,
      };
    });
    const holders = {
      ids: new Set(nodes.filter(() => below(2) === 0).map(({ id }) => id)),
      isRequired: below(3) === 0,
    };
    const request = { ...requestOf(8 * (1 + below(4)), 65_536), holders };
    assert.deepEqual(place(nodes, request, EXACT), explain(nodes, request, EXACT).placement);
  }
});
