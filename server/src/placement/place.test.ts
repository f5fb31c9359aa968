/**
 * Where machines are placed, and the text of a refusal.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type CandidateNode, place, startRefusal } from "./place.ts";

const small: CandidateNode = {
  id: "small",
  address: "unix:/run/small.sock",
  status: "ready",
  isCordoned: false,
  arch: "amd64",
  totalCpus: 2,
  totalMemoryMb: 24_000,
  availableMemoryMb: 20_000,
  availableDiskGb: 50,
  activeMachines: 0,
  activeCpus: 0,
  activeMemoryMb: 0,
};
const request = { cpus: 4, memoryMb: 8192, arch: null, candidateIds: null };

test("the default machine is placed on a small node a hundred times", () => {
  for (let n = 0; n < 100; n += 1) {
    const node = {
      ...small,
      activeMachines: n,
      activeCpus: n * 4,
      activeMemoryMb: n * 8192,
      availableMemoryMb: 20_000 - n * 60,
    };
    assert.deepEqual(place([node], request), { nodeId: "small" });
  }
});

test("the node with the least promised is chosen, then the first by name", () => {
  const busy = { ...small, id: "a-busy", activeCpus: 8, activeMemoryMb: 16_384 };
  assert.deepEqual(place([busy, small], request), { nodeId: "small" });
  assert.deepEqual(
    place(
      [
        { ...small, id: "b" },
        { ...small, id: "a" },
      ],
      request,
    ),
    { nodeId: "a" },
  );
});

test("of the candidates the best is chosen, and the refusal says why others were not", () => {
  const [a, b, c] = ["a", "b", "c"].map((id) => ({ ...small, id })) as [CandidateNode, CandidateNode, CandidateNode];
  assert.deepEqual(place([a, b, c], { ...request, candidateIds: ["b", "c"] }), { nodeId: "b" });
  assert.deepEqual(place([a, { ...b, status: "draining" }], { ...request, candidateIds: ["b"] }), {
    nodeId: null,
    canNever: false,
    reason: "node a does not have the image; node b is draining",
  });
});

test("a request that can never fit is refused as such, with every node's reason", () => {
  const refused = place([small, { ...small, id: "arm", arch: "arm64" }], {
    ...request,
    arch: "amd64",
    memoryMb: 32_000,
  });
  assert.deepEqual(refused, {
    nodeId: null,
    canNever: true,
    reason: "node small has 24000 MB of memory, but 32000 MB are requested; node arm is arm64, but amd64 is requested",
  });
});

test("a cordoned node gets no new machine, and starts those that it has", () => {
  const cordoned = { ...small, id: "a-cordoned", isCordoned: true };
  assert.deepEqual(place([cordoned, small], request), { nodeId: "small" });
  assert.deepEqual(place([cordoned], request), {
    nodeId: null,
    canNever: false,
    reason: "node a-cordoned is cordoned",
  });
  assert.equal(startRefusal(cordoned), null);
});

test("a node that is unreachable, draining or nearly full gets no new machine", () => {
  const full = { ...small, availableMemoryMb: 100 };
  for (const node of [full, { ...small, availableDiskGb: 0 }, { ...small, status: "draining" as const }]) {
    const placement = place([node], request);
    assert.equal(placement.nodeId, null);
    assert.equal(placement.nodeId === null && placement.canNever, false);
  }
  assert.equal(place([], request).nodeId, null);
});
