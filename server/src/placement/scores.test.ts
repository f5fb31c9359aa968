/**
 * Kept scores choose what scores that are made again would choose.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type CandidateNode, place, type PlacementRequest, promise } from "./place.ts";
import { placeBeside, Scores } from "./scores.ts";

const OVERCOMMIT = { cpus: 2, memory: 1.5 };
const SEED = 11;

/** A linear congruential generator: the same numbers in every run. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const nodeWith = (n: number): CandidateNode => ({
  ...{ id: `node-${n}`, address: "", status: "ready", isCordoned: false, arch: "amd64", labels: { zone: `z${n % 2}` } },
  ...{ totalCpus: 16, usedCpus: 0, totalMemoryMb: 65_536, availableMemoryMb: 60_000, availableDiskGb: 500 },
  ...{ pressure: null, activeMachines: 0, activeCpus: 0, activeMemoryMb: 0 },
});

const requestOf = (cpus: number, memoryMb: number, more: Partial<PlacementRequest> = {}): PlacementRequest => ({
  ...{ cpus, memoryMb, arch: null, nodeLabels: {}, holders: null },
  ...more,
});

test("kept scores choose as new ones, while nodes fill, change, leave and return and others are locked", () => {
  const below = numbers(SEED);
  const all = Array.from({ length: 30 }, (_, n) => nodeWith(n));
  let nodes = [...all];
  const kinds = [
    requestOf(1, 1_024),
    requestOf(4, 8_192, { nodeLabels: { zone: "z1" } }),
    requestOf(2, 4_096, { holders: { ids: new Set(["node-3", "node-7"]), isRequired: false } }),
  ].map((request) => new Scores(request, OVERCOMMIT));
  let refused = 0;
  for (let round = 0; round < 3_000; round += 1) {
    const at = below(nodes.length);
    const node = nodes[at];
    if (node !== undefined && below(4) === 0)
      nodes[at] = { ...node, isCordoned: below(6) === 0, usedCpus: below(16), availableMemoryMb: 500 + below(60_000) };
    if (below(200) === 0) nodes = nodes.filter((_, n) => n !== at);
    if (below(200) === 0) nodes = all.map((each) => nodes.find(({ id }) => id === each.id) ?? each);
    const scores = kinds[below(kinds.length)];
    assert.ok(scores !== undefined);
    const { request } = scores;
    const contended = new Set(Array.from({ length: below(4) }, () => `node-${below(30)}`));
    const kept = placeBeside(nodes, request, { overcommit: OVERCOMMIT, contended, scores });
    assert.deepEqual(kept, placeBeside(nodes, request, { overcommit: OVERCOMMIT, contended }), `round ${round}`);
    if (contended.size === 0) assert.deepEqual(kept, place(nodes, request, OVERCOMMIT), `round ${round}`);
    if (kept.nodeId === null) {
      refused += 1;
      nodes = nodes.map((each) => ({ ...each, activeMachines: 0, activeCpus: 0, activeMemoryMb: 0 }));
      continue;
    }
    nodes = nodes.map((each) => (each.id === kept.nodeId ? promise(each, request, 1) : each));
  }
  assert.ok(refused > 0, "the nodes were never full");
});

test("scores are kept for the same needs only", () => {
  const holders = { ids: new Set(["node-1"]), isRequired: false };
  const needs = requestOf(2, 4_096, { holders, nodeLabels: { zone: "z1" } });
  const scores = new Scores(needs, OVERCOMMIT);
  assert.ok(scores.areFor({ ...needs, nodeLabels: { zone: "z1" }, holders: { ...holders } }));
  const others: readonly Partial<PlacementRequest>[] = [
    { cpus: 3 },
    { memoryMb: 4_097 },
    { arch: "arm64" },
    { nodeLabels: { zone: "z2" } },
    { nodeLabels: {} },
    { holders: null },
    { holders: { ...holders, isRequired: true } },
    { siblings: new Map() },
    { holders: { ...holders, ids: new Set(["node-1"]) } },
    { diskBytes: 1 },
    { memoryFormat: "a" },
  ];
  for (const other of others) assert.ok(!scores.areFor({ ...needs, ...other }), JSON.stringify(other));
});
