/**
 * Where machines are placed, and the text of a refusal.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type CandidateNode,
  explain,
  NO_CEILINGS,
  place,
  placeAll,
  placeFrom,
  type PlacementRequest,
  startRefusal,
} from "./place.ts";
import { placeBeside } from "./scores.ts";

const small: CandidateNode = {
  id: "small",
  address: "unix:/run/small.sock",
  status: "ready",
  isCordoned: false,
  arch: "amd64",
  labels: { arch: "amd64", zone: "east" },
  totalCpus: 2,
  usedCpus: 0,
  totalMemoryMb: 24_000,
  availableMemoryMb: 20_000,
  availableDiskGb: 50,
  pressure: null,
  activeMachines: 0,
  activeCpus: 0,
  activeMemoryMb: 0,
};
const request = { cpus: 4, memoryMb: 8192, arch: null, nodeLabels: {}, holders: null };
const refusalOf = (node: CandidateNode, overcommit = NO_CEILINGS) => startRefusal({ node, request, overcommit });

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

test("a machine is kept apart from its siblings, unless another node is much fuller or admits none", () => {
  const [a, b] = ["a", "b"].map((id) => ({ ...small, id })) as [CandidateNode, CandidateNode];
  const placed = (nodes: readonly CandidateNode[], siblings: Readonly<Record<string, number>>): string | null =>
    place(nodes, { ...request, cpus: 1, siblings: new Map(Object.entries(siblings)) }).nodeId;
  assert.equal(placed([a, b], {}), "a");
  assert.equal(placed([a, b], { a: 1 }), "b");
  assert.equal(placed([a, b], { a: 1, b: 1 }), "a");
  assert.equal(placed([a, { ...b, activeCpus: 1, usedCpus: 0.5 }], { a: 1 }), "b");
  assert.equal(placed([a, { ...b, activeCpus: 4 }], { a: 1 }), "a");
  assert.equal(placed([a, { ...b, isCordoned: true }], { a: 3 }), "a");
});

test("a node that another start locks is passed over for one that does almost as well, not for one without the image", () => {
  const overcommit = { cpus: 100, memory: 100 };
  const full = { ...small, id: "full", activeCpus: 120, activeMemoryMb: 120 * 2048 };
  const emptier = { ...full, id: "emptier", activeCpus: 112, activeMemoryMb: 112 * 2048 };
  const busy = { ...emptier, usedCpus: 2 };
  const placed = (
    nodes: readonly CandidateNode[],
    contended: readonly string[],
    holders: PlacementRequest["holders"] = null,
  ) => placeBeside(nodes, { ...request, holders }, { overcommit, contended: new Set(contended) }).nodeId;
  assert.equal(placed([full, emptier], []), "full");
  assert.equal(placed([full, emptier], ["full"]), "emptier");
  assert.equal(placed([full, busy], ["full"]), "full");
  const none = { some: 0, full: 0 };
  const pressed = { ...emptier, pressure: { cpu: { some: 60, full: 0 }, memory: none, io: none } };
  assert.equal(placed([full, pressed], ["full"]), "full");
  assert.equal(placed([full, emptier], ["full", "emptier"]), "full");
  assert.equal(placed([full, emptier], ["full"], { ids: new Set(["full"]), isRequired: false }), "full");
});

test("of the candidates the best is chosen, and the refusal says why others were not", () => {
  const [a, b, c] = ["a", "b", "c"].map((id) => ({ ...small, id })) as [CandidateNode, CandidateNode, CandidateNode];
  assert.deepEqual(place([a, b, c], { ...request, holders: { ids: new Set(["b", "c"]), isRequired: true } }), {
    nodeId: "b",
  });
  assert.deepEqual(
    place([a, { ...b, status: "draining" }], { ...request, holders: { ids: new Set(["b"]), isRequired: true } }),
    {
      nodeId: null,
      canNever: false,
      reason: "node a does not have the image; node b is draining",
    },
  );
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
  assert.equal(refusalOf(cordoned), null);
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

test("a node whose processes all wait for memory gets no new machine, and other waits make it less preferred", () => {
  const none = { some: 0, full: 0 };
  const pressed = (pressure: Partial<NonNullable<CandidateNode["pressure"]>>) => ({
    ...small,
    id: "a-pressed",
    pressure: { cpu: none, memory: none, io: none, ...pressure },
  });
  const stalled = pressed({ memory: { some: 40, full: 12.4 } });
  assert.deepEqual(place([stalled, small], request), { nodeId: "small" });
  assert.deepEqual(place([stalled], request), {
    nodeId: null,
    canNever: false,
    reason: "node a-pressed is short of memory: all its processes waited for it for 12 % of the last minute",
  });
  // Its own machines start there while it has memory left.
  assert.equal(refusalOf(stalled), null);
  assert.equal(explain([stalled], request, NO_CEILINGS, stalled.id).verdicts[0]?.filter, null);
  for (const pressure of [
    { cpu: { some: 30, full: 0 } },
    { memory: { some: 30, full: 9.9 } },
    { io: { some: 90, full: 30 } },
  ]) {
    assert.deepEqual(place([pressed(pressure), small], request), { nodeId: "small" });
    assert.equal(explain([pressed(pressure)], request).verdicts[0]?.score?.pressure, 0.3);
  }
  // Copying files alone, and a kernel that does not measure it, cost nothing.
  for (const node of [pressed({ io: { some: 90, full: 0 } }), { ...small, id: "a-unknown" }])
    assert.deepEqual(place([node, small], request), { nodeId: node.id });
});

test("an image that is fetched is preferred where it is, unless that node is much fuller", () => {
  const [a, b] = [
    { ...small, id: "a" },
    { ...small, id: "b" },
  ];
  const holders = { ids: new Set(["b"]), isRequired: false };
  assert.deepEqual(place([a, b], { ...request, cpus: 1, memoryMb: 512, holders }), { nodeId: "b" });
  assert.deepEqual(place([a, { ...b, activeCpus: 2 }], { ...request, holders }), { nodeId: "a" });
  assert.deepEqual(place([a, { ...b, usedCpus: 2 }], { ...request, holders }), { nodeId: "a" });
});

test("only nodes with the requested labels are chosen", () => {
  const west = { ...small, id: "west", labels: { zone: "west" } };
  assert.deepEqual(place([small, west], { ...request, nodeLabels: { zone: "west" } }), { nodeId: "west" });
  assert.deepEqual(place([small, west], { ...request, nodeLabels: { zone: "north" } }), {
    nodeId: null,
    canNever: true,
    reason: "node small does not have the label zone=north; node west does not have the label zone=north",
  });
});

test("a node at its ceiling of promised processors or memory admits no start, also of machines whose disks are there", () => {
  const full = { ...small, activeCpus: 4, activeMemoryMb: 16_384 };
  assert.deepEqual(place([full], request, { cpus: 3.5, memory: null }), {
    nodeId: null,
    canNever: false,
    reason: "node small has promised 4 of 7 processors",
  });
  assert.deepEqual(place([full], request, { cpus: 4, memory: 1 }), {
    nodeId: null,
    canNever: false,
    reason: "node small has promised 16384 of 24000 MB of memory",
  });
  assert.deepEqual(place([full], request, { cpus: 4, memory: 1.1 }), { nodeId: "small" });
  assert.match(refusalOf(full, { cpus: 3, memory: null }) ?? "", /has promised 4 of 6 processors.*stop machines on it/);
  assert.equal(refusalOf({ ...full, totalCpus: 0 }, { cpus: 3, memory: null }), null);
});

test("a machine that is larger than the ceiling of every node is refused as one that never fits", () => {
  const large = { ...request, cpus: 5, memoryMb: 20_000 };
  for (const [overcommit, reason] of [
    [{ cpus: 2, memory: null }, "node small may promise 4 processors, but 5 are requested"],
    [{ cpus: null, memory: 0.5 }, "node small may promise 12000 MB of memory, but 20000 MB are requested"],
  ] as const) {
    assert.deepEqual(place([small], large, overcommit), { nodeId: null, canNever: true, reason });
    assert.equal(
      startRefusal({ node: small, request: large, overcommit }),
      `${reason}, and the machine's disk is there; ask the operator to move the machine to a larger node`,
    );
  }
});

test("an explanation names the filter that excludes each node, and how many nodes each filter leaves", () => {
  const nodes = [
    { ...small, id: "gone", status: "unreachable" as const },
    { ...small, id: "kept", isCordoned: true },
    { ...small, id: "busy", usedCpus: 1 },
    { ...small, id: "free" },
  ];
  const { placement, verdicts, filters } = explain(nodes, request);
  assert.deepEqual(placement, { nodeId: "free" });
  assert.deepEqual(
    verdicts.map(({ nodeId, filter }) => [nodeId, filter]),
    [
      ["free", null],
      ["busy", null],
      ["gone", "status"],
      ["kept", "cordon"],
    ],
  );
  assert.deepEqual(
    filters.map(({ name, left }) => `${name} ${left}`),
    [
      "status 3",
      "cordon 2",
      ...["image", "architecture", "labels", "size", "processors", "promisedMemory", "memory", "pressure", "disk"].map(
        (name) => `${name} 2`,
      ),
    ],
  );
});

test("a refusal over many nodes names some of them and counts the others", () => {
  const nodes = Array.from({ length: 12 }, (_, n) => ({ ...small, id: `n${n}`, isCordoned: true }));
  const refused = place(nodes, request);
  assert.match(
    refused.nodeId === null ? refused.reason : "",
    /^node n0 is cordoned;.*node n4 is cordoned; and 7 more$/,
  );
});

test("machines that leave a node together are placed as if those before them had moved", () => {
  const nodes = [small, { ...small, id: "b" }, { ...small, id: "leaving" }];
  const options = { fromId: "leaving", overcommit: { cpus: 2, memory: null } };
  const running = { request, isActive: true };
  const ids = placeAll(nodes, [running, running, running], options).map(({ nodeId }) => nodeId);
  assert.deepEqual(ids, ["b", "small", null], "two processors, promised twice, are those of one machine on each");
  const large = { request: { ...request, diskBytes: 40 * 1024 ** 3 }, isActive: false };
  assert.deepEqual(
    placeAll(nodes, [large, large, large], options).map(({ nodeId }) => nodeId),
    ["b", "small", null],
    "a disk takes its place on the node",
  );
  assert.deepEqual(placeAll([small], [running], { ...options, fromId: "small" }), [
    { nodeId: null, canNever: true, reason: "there is no other node" },
  ]);
});

test("machines that begin on a node are placed there as long as it has room, and then where they can begin", () => {
  const able = { memoryFormat: "f" };
  const nodes = [
    { ...small, id: "home", totalCpus: 8, labels: able },
    { ...small, id: "able", totalCpus: 8, labels: able },
    { ...small, id: "emptier", totalCpus: 64 },
  ];
  const options = { homeId: "home", count: 3, overcommit: { cpus: 1, memory: null } };
  const idsOf = (memoryFormat: string | null, count = 3): readonly (string | null)[] =>
    placeFrom(nodes, { ...request, memoryFormat }, { ...options, count }).map(({ nodeId }) => nodeId);
  assert.deepEqual(idsOf("f"), ["home", "home", "able"]);
  assert.deepEqual(idsOf(null), ["home", "home", "emptier"]);
  assert.deepEqual(idsOf("f", 6), ["home", "home", "able", "able", null, null]);
  const reasonOf = (some: readonly CandidateNode[], memoryFormat: string | null) =>
    placeFrom(some, { ...request, memoryFormat }, { ...options, count: 9 }).flatMap((placement) =>
      placement.nodeId === null ? [placement.reason] : [],
    )[0];
  assert.match(reasonOf(nodes, "f") ?? "", /^node home has promised 8 of 8 .*; node able has promised 8 of 8/);
  assert.match(reasonOf(nodes, "g") ?? "", /^node home has promised .*; no other node can load the memory$/);
  assert.match(reasonOf(nodes.slice(0, 1), "f") ?? "", /^node home has promised 8 of 8 processors$/);
  assert.deepEqual(placeFrom(nodes, request, { ...options, homeId: "gone", count: 1 }), [{ nodeId: "emptier" }]);
});
