/**
 * What an operator reads about a machine in each situation.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type CandidateNode, explain, NO_CEILINGS } from "../placement/place.ts";
import { type ExplainedMachine, type ReasonFacts, reasonOf } from "./placement-reason.ts";

const node = (id: string, fields: Partial<CandidateNode> = {}): CandidateNode => ({
  ...{ id, address: "", status: "ready", isCordoned: false, arch: "amd64", labels: {}, totalCpus: 8, usedCpus: 0 },
  ...{ totalMemoryMb: 16_000, availableMemoryMb: 12_000, availableDiskGb: 50, pressure: null },
  ...{ activeMachines: 0, activeCpus: 0, activeMemoryMb: 0 },
  ...fields,
});
const request = { cpus: 2, memoryMb: 1024, arch: null, nodeLabels: {}, holders: null };

/** Stopped, with its disk on node a. */
const stopped: ExplainedMachine = {
  ...{ id: "mach-1", nodeId: "a", nodeStatus: "ready", moveId: null, moveNodeId: null, moveStops: false },
  ...{ desiredState: "stopped", generation: 2, error: null, observedState: "stopped", observedGeneration: 2 },
  ...{ observedBootId: null, observedReason: null, observedReasonCode: null },
};
const running: ExplainedMachine = { ...stopped, desiredState: "running", observedState: "running" };

interface Situation {
  readonly machine?: ExplainedMachine | null;
  readonly nodes?: readonly CandidateNode[];
  readonly of?: Partial<typeof request> & { readonly nodeLabels?: Record<string, string> };
  readonly overcommit?: typeof NO_CEILINGS;
  readonly facts?: Partial<ReasonFacts>;
}

function explained({ machine = null, nodes = [node("a"), node("b")], of = {}, facts = {}, ...rest }: Situation) {
  const { overcommit = NO_CEILINGS } = rest;
  const asked = { ...request, ...of };
  const { reason, advice } = reasonOf({
    machine,
    explanation: explain(nodes, asked, overcommit, machine?.nodeId ?? null),
    tenantRefusal: null,
    missingImage: null,
    ...facts,
  });
  return [reason, advice];
}

const SITUATIONS: Readonly<Record<string, readonly [Situation, reason: string, advice: string | null]>> = {
  "it is new": [{}, "node a has the lowest score of 2 that fit", null],
  "it runs": [{ machine: running }, "the machine runs on node a, which has its disk", null],
  "it is stopped": [
    { machine: stopped },
    "the machine is stopped, and its disk is on node a, so it starts there",
    null,
  ],
  "it is stopped, and its node is cordoned": [
    { machine: stopped, nodes: [node("a", { isCordoned: true }), node("b")] },
    "the machine is stopped, and its disk is on node a, so it starts there",
    null,
  ],
  "it ran, and its node is unreachable": [
    { machine: { ...running, nodeStatus: "unreachable" }, nodes: [node("a", { status: "unreachable" }), node("b")] },
    "the machine's disk is on node a, which does not report; it may run there, and starts nowhere else",
    "check the host of node a, and that `flotilla node` runs there; `flotilla doctor --fleet` says more",
  ],
  "it is stopped, and its node is unreachable": [
    { machine: { ...stopped, nodeStatus: "unreachable" }, nodes: [node("a", { status: "unreachable" }), node("b")] },
    "the machine's disk is on node a, which does not report; it cannot be started until the node is back",
    "check the host of node a, and that `flotilla node` runs there; `flotilla doctor --fleet` says more",
  ],
  "its node is away under maintenance": [
    { machine: { ...stopped, nodeStatus: "maintenance" } },
    "the machine's disk is on node a, which is away under maintenance; it cannot be started until the node is back",
    "when the host is back, `flotilla node uncordon a` ends the maintenance",
  ],
  "its node was revoked": [
    { machine: { ...stopped, nodeStatus: "revoked" } },
    "the machine's disk is on node a, which was revoked; it cannot be started until the node is back",
    "start the agent of node a with a new join token (`flotilla token create`)",
  ],
  "it runs, and its node is draining": [
    { machine: { ...running, nodeStatus: "draining" }, nodes: [node("a", { status: "draining" }), node("b")] },
    "the machine runs on node a, which has its disk; the node is draining, so the machine is moved when its turn comes",
    null,
  ],
  "it is stopped, and its node was drained": [
    { machine: { ...stopped, nodeStatus: "drained" }, nodes: [node("a", { status: "drained" }), node("b")] },
    "the machine's disk is on node a, which refuses its start: node a is drained",
    "`flotilla node cancel-drain a`; or `flotilla machine move` takes it to node b",
  ],
  "no node has memory, disk or promised processors left": [
    {
      nodes: [
        node("a", { availableMemoryMb: 100 }),
        node("b", { availableDiskGb: 0 }),
        node("c", { activeCpus: 16 }),
        node("d", { activeMemoryMb: 16_000 }),
      ],
      overcommit: { cpus: 2, memory: 1 },
    },
    "no node admits it: node a has 100 MB of memory left and keeps 640 MB free; node b has 0 GB of disk left, and 1 GB are needed; node c has promised 16 of 16 processors; node d has promised 16000 of 16000 MB of memory",
    "stop machines or raise FLOTILLA_CPU_OVERCOMMIT; or stop machines or raise FLOTILLA_MEMORY_OVERCOMMIT; or stop machines or add memory; or delete machines that are not needed, or enlarge the disk; or add a node that fits (`flotilla token create`)",
  ],
  "no node has its label": [
    { of: { nodeLabels: { zone: "north" } }, nodes: [node("a")] },
    "no node admits it: node a does not have the label zone=north",
    "create it with other labels; or add a node that fits (`flotilla token create`)",
  ],
  "there is no node": [
    { nodes: [] },
    "no node admits it: no node has registered",
    "add a node that fits (`flotilla token create`)",
  ],
  "its disk is on a node that is full": [
    {
      machine: stopped,
      nodes: [node("a", { activeCpus: 8, isCordoned: true }), node("b")],
      overcommit: { cpus: 1, memory: null },
    },
    "the machine's disk is on node a, which refuses its start: node a has promised 8 of 8 processors",
    "stop machines or raise FLOTILLA_CPU_OVERCOMMIT; or `flotilla machine move` takes it to node b",
  ],
  "its disk is on a node without memory, and there is no other": [
    { machine: stopped, nodes: [node("a", { availableMemoryMb: 100 })] },
    "the machine's disk is on node a, which refuses its start: node a has 100 MB of memory left and keeps 640 MB free",
    "stop machines or add memory; no other node admits it now",
  ],
  "no node has its image, and a start does not fetch it": [
    { facts: { missingImage: "local/tools" } },
    "no node has the image local/tools, and a start does not fetch it, so it fails on any node",
    "`flotilla image import` on a node brings a local image, `flotilla image pull` one of a registry",
  ],
  "it is being moved": [
    { machine: { ...running, moveId: "op-1", moveNodeId: "b", observedState: "stopped" } },
    "the machine is being moved from node a to node b, and starts nowhere else until the move has ended",
    "`flotilla operation get op-1` shows the move, `flotilla operation cancel op-1` ends it where the machine was",
  ],
  "its tenant is suspended": [
    {
      machine: stopped,
      facts: { tenantRefusal: { reason: "tenant t is suspended", advice: "`flotilla tenant reactivate t`" } },
    },
    "the machine is stopped, and its disk is on node a, so it starts there; its tenant may not start it now: tenant t is suspended",
    "`flotilla tenant reactivate t`",
  ],
  "it is started": [
    { machine: { ...running, observedState: "booting" } },
    "the machine is being started on node a, which has its disk",
    null,
  ],
  "it crashed and is restarted with pauses": [
    { machine: { ...running, observedState: "preparing", observedReason: "its VMM was killed" } },
    "the machine is being started again on node a, which has its disk, with growing pauses; it ended before: its VMM was killed",
    "`flotilla machine events` shows each attempt; after five in ten minutes it is left in error",
  ],
  "its start failed": [
    { machine: { ...running, observedState: "failed", observedReason: "the guest did not answer" } },
    "the machine failed on node a, which has its disk: the guest did not answer",
    "`flotilla machine events mach-1` says more; `flotilla machine start mach-1` tries again",
  ],
  "its image cannot be had": [
    {
      machine: {
        ...running,
        observedState: "failed",
        observedReason: "image x does not exist",
        observedReasonCode: "image_not_found",
      },
    },
    "the machine failed on node a, which has its disk: image x does not exist",
    "its image is the cause: correct that first; `flotilla machine events mach-1` says more; `flotilla machine start mach-1` tries again",
  ],
  "it stops": [
    { machine: { ...stopped, observedState: "stopping" } },
    "the machine is being stopped on node a, which has its disk",
    null,
  ],
};

for (const [name, [situation, reason, advice]] of Object.entries(SITUATIONS))
  test(`an operator reads why and what to do when ${name}`, () => {
    assert.deepEqual(explained(situation), [reason, advice]);
  });
