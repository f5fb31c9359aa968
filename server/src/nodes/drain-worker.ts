/**
 * Drains a node: no machine starts or arrives there any more, and its machines are moved to other nodes, each
 * by an operation (moves/). A machine that no other node admits stays: a running one until the deadline, then
 * it is stopped.
 *
 * Always:
 * - A drain that succeeds leaves the node `drained`, until its agent registers again (after the host's
 *   maintenance). Its last step says which disks the node still has, and why.
 * - Instances of apps are not moved: their apps make others on other nodes, and they stay until those serve.
 * - A drain that fails or is canceled ends its moves, and leaves the node `ready`. Machines that have moved
 *   stay where they are.
 * - What is done next follows from the rows of machines and moves, so another server continues the operation
 *   of one that died.
 */
import { Refusal } from "@flotilla/contract/errors";
import { HEARTBEAT_LOST_MS } from "@flotilla/contract/link/link";
import type { Context } from "../context.ts";
import type { MachineRecord } from "../machines/record.ts";
import type { ConvergeServices, MachineServices } from "../machines/services.ts";
import { isActive } from "../machines/state.ts";
import { stopMachine } from "../machines/stop.ts";
import { listInstancesOfNode, listMachinesOfNode } from "../machines/store.ts";
import { MOVE_SECONDS_MAX, requestMove } from "../moves/move.ts";
import { hasArriving, listChildMoves, MOVES_PER_NODE_MAX } from "../moves/store.ts";
import { targetRequest } from "../moves/target.ts";
import type { Placement } from "../placement/place.ts";
import type { OperationRun, OperationWorker } from "../family.ts";
import { cancelChildren } from "../operations/store.ts";
import { counted, type DrainView, emptiedText, inTurns, progressText, restText, viewDrain } from "./drain-plan.ts";
import { endDrain, findNode } from "./store.ts";

/** Longer than any machine may take to stop. */
const STOP_MS_MAX = 10 * 60_000;
const PERIOD_MS = 1_000;
const STOPS_AT_A_TIME = 8;
/** After a move could not be requested. */
const REFUSED_MS = 10_000;

export const DRAIN_STEPS = {
  close: "start nothing new there",
  empty: "move its machines, and stop those that stay",
  rest: "see what is left there",
} as const;

export interface DrainInput {
  readonly nodeId: string;
  /** When machines that cannot be moved are stopped, in epoch milliseconds. */
  readonly stopAt: number;
}

/** What it takes to stop machines, and to choose where they go. */
type DrainServices = ConvergeServices & Pick<MachineServices, "activity" | "nodeWaitMs" | "nodes">;

export function nodeDrainWorker(services: DrainServices): OperationWorker {
  const { db } = services.context;
  return {
    kind: "node drain",
    async work(run) {
      const drain = new Drain(services, run);
      const { nodeId } = run.operation.input as DrainInput;
      await run.step(DRAIN_STEPS.close, () => Promise.resolve("no machine starts or arrives there"));
      await run.step(DRAIN_STEPS.empty, (say) => drain.empty(say));
      await run.step(DRAIN_STEPS.rest, () => drain.rest());
      if (!(await endDrain(db, nodeId, "drained")))
        throw new Refusal("conflict", `node ${nodeId} was reopened during its drain; drain it again`);
      await db.notify("nodes", nodeId);
    },
    async undo(operation) {
      const { nodeId } = operation.input as DrainInput;
      await cancelChildren(services.context, operation);
      await endDrain(db, nodeId, "drainFailed");
      await db.notify("nodes", nodeId);
    },
  };
}

/** An instance of an app is not moved: it goes once another one serves elsewhere. */
const REPLACED = {
  nodeId: null,
  canNever: false,
  reason: "its app replaces it by an instance on another node",
} as const;

/** A machine of the node that was not deleted. */
type Machine = Pick<MachineRecord, "id" | "name" | "tenantId"> & {
  readonly isActive: boolean;
  readonly isMoving: boolean;
};

interface Found {
  readonly view: DrainView<Machine>;
  /** Deleted machines that the node has not removed yet. */
  readonly deleting: number;
  /** Nothing is to be moved any more, and what was moved runs: only machines that stay are left. */
  readonly isMoved: boolean;
  /** Machines that stay and run. */
  readonly running: readonly Machine[];
}

class Drain {
  readonly #services: DrainServices;
  readonly #run: OperationRun;
  readonly #nodeId: string;
  readonly #stopAt: number;
  readonly #stopped = new Set<string>();
  readonly #refused = new Map<string, { readonly reason: string; readonly until: number }>();

  constructor(services: DrainServices, run: OperationRun) {
    this.#services = services;
    this.#run = run;
    ({ nodeId: this.#nodeId, stopAt: this.#stopAt } = run.operation.input as DrainInput);
  }

  /** Moves machines, and stops those that stay at the deadline, until none runs there. */
  async empty(say: (message: string) => void): Promise<string> {
    const { clock } = this.#services.context;
    let movedAt = clock.monotonic();
    for (;;) {
      const found = await this.#look();
      const { view, deleting, isMoved, running } = found;
      if (isMoved && running.length === 0 && deleting === 0) return emptiedText(view, this.#stopped.size);
      const now = clock.now();
      say(progressText(view, { stopAt: this.#stopAt, now, deleting }));
      const isLate = this.#stopAt <= now;
      if (!isMoved || !isLate) movedAt = clock.monotonic();
      if (clock.monotonic() - movedAt > STOP_MS_MAX)
        throw new Refusal(
          "unavailable",
          `${counted(running.length + deleting)} did not stop on node ${this.#nodeId}; see their events, then drain it again`,
        );
      const free = MOVES_PER_NODE_MAX - view.moving.length;
      await Promise.all([
        this.#move(view.next.slice(0, Math.max(0, free))),
        this.#stop(isLate ? running.slice(0, STOPS_AT_A_TIME) : []),
      ]);
      await clock.sleep(isLate ? PERIOD_MS : Math.min(PERIOD_MS, this.#stopAt - now), this.#run.signal);
      this.#run.signal.throwIfAborted();
    }
  }

  /** Which disks stay on the node. */
  async rest(): Promise<string> {
    const { view } = await this.#look();
    const others = [...view.next, ...view.waiting, ...view.moving];
    const reason = "it was placed there during the drain";
    return restText(this.#nodeId, [...view.blocked, ...others.map((machine) => ({ machine, reason }))]);
  }

  /** Throws a Refusal when the node does not report. */
  async #look(): Promise<Found> {
    const { context, nodes } = this.#services;
    await refuseSilentNode(context, this.#nodeId);
    const isArriving = await hasArriving(context.db, this.#nodeId);
    const records = await listMachinesOfNode(context.db, this.#nodeId);
    const moves = await listChildMoves(context.db, this.#run.operation);
    const kept = inTurns(records.filter(({ deletedAt }) => deletedAt === null).map(drained));
    const toPlace = kept.filter(({ isMoving }) => !isMoving);
    const requests = await Promise.all(toPlace.map(({ record }) => targetRequest(this.#services, record, 0)));
    const leaving = requests.map((request, index) => ({ request, isActive: toPlace[index]?.isActive ?? false }));
    const placed = await nodes.planElsewhere(this.#nodeId, leaving);
    const instances = await listInstancesOfNode(context.db, this.#nodeId);
    const placementOf = (id: string, placement: Placement): Placement => (instances.has(id) ? REPLACED : placement);
    const now = context.clock.now();
    const view = viewDrain<Machine>({
      machines: kept,
      placements: new Map(
        placed.map((placement, index) => {
          const id = toPlace[index]?.id ?? "";
          return [id, placementOf(id, placement)];
        }),
      ),
      moves,
      refusals: new Map([...this.#refused].flatMap(([id, { reason, until }]) => (until > now ? [[id, reason]] : []))),
      now,
    });
    return {
      view,
      deleting: records.length - kept.length,
      isMoved: !isArriving && view.next.length + view.moving.length + view.waiting.length + view.startingCount === 0,
      running: view.blocked.flatMap(({ machine }) => (machine.isActive ? [machine] : [])),
    };
  }

  async #move(machines: readonly Machine[]): Promise<void> {
    const { context } = this.#services;
    for (const { id: machineId } of machines) {
      this.#run.signal.throwIfAborted();
      try {
        await requestMove(this.#services, {
          operationId: context.ids.make("operation"),
          tenantId: this.#run.operation.tenantId,
          machineId,
          nodeId: null,
          deadlineSeconds: MOVE_SECONDS_MAX,
          parentId: this.#run.operation.id,
        });
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        this.#refused.set(machineId, { reason: error.message, until: context.clock.now() + REFUSED_MS });
      }
    }
  }

  /** Machines that do not stop are found again in the next round. */
  async #stop(machines: readonly Machine[]): Promise<void> {
    const { signal } = this.#run;
    const stops = machines.map(async ({ tenantId, id }) => {
      if (!this.#stopped.has(id))
        this.#services.activity.note(id, { type: "machine.drained", data: { nodeId: this.#nodeId } });
      this.#stopped.add(id);
      await stopMachine(this.#services, { tenantId, id, signal });
    });
    for (const end of await Promise.allSettled(stops)) {
      if (end.status === "rejected" && !(end.reason instanceof Refusal)) throw end.reason;
    }
  }
}

/** A machine as the drain of its node sees it. */
export const drained = (record: MachineRecord) => ({
  ...{ record, id: record.id, name: record.name, tenantId: record.tenantId },
  isActive: isActive(record),
  isMoving: record.moveId !== null,
});

async function refuseSilentNode({ db, clock }: Context, nodeId: string): Promise<void> {
  const node = await findNode(db, nodeId);
  if (node === undefined || node.status === "revoked")
    throw new Refusal("not_found", `node ${nodeId} was revoked during its drain`);
  const lastSeenAt = node.lastHeartbeatAt ?? node.registeredAt;
  if (clock.now() - lastSeenAt > HEARTBEAT_LOST_MS)
    throw new Refusal("unavailable", `node ${nodeId} stopped reporting during its drain; drain it when it is back`);
}
