/**
 * Drains a node: no machine starts there any more, those that run are given time, and are then stopped.
 *
 * A machine's disk is on its node and stays there: draining moves nothing, and says so. A stopped machine is started
 * again when the node is back.
 *
 * Always: a node is `draining` only as long as an operation works on it. One that succeeds leaves it `drained`, until its
 * agent registers again (after the host's maintenance); one that fails, because the node fell silent or a machine did
 * not stop, leaves it `ready` as before. A server that dies in the middle is followed by another: every step may be
 * done twice.
 */
import { Refusal } from "@flotilla/contract/errors";
import { HEARTBEAT_LOST_MS } from "@flotilla/contract/link";
import type { Context } from "../context.ts";
import type { MachineRecord } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { isActive } from "../machines/state.ts";
import { stopMachine } from "../machines/stop.ts";
import { listMachinesOfNode } from "../machines/store.ts";
import { beginOperation } from "../operations/begin.ts";
import type { OperationWorker } from "../operations/run.ts";
import { findRunningOperation } from "../operations/store.ts";
import { beginDrain, endDrain, findNode, type NodeRecord } from "./store.ts";

const DEADLINE_SECONDS_DEFAULT = 600;
const DEADLINE_SECONDS_MAX = 7 * 24 * 3600;
/** Longer than any machine is given to stop. */
const STOP_MS_MAX = 10 * 60_000;
const PERIOD_MS = 1_000;
const STOPS_AT_A_TIME = 8;

const STEPS = {
  close: "start nothing new there",
  wait: "wait for its machines to stop",
  stop: "stop those that still run",
} as const;

interface DrainInput {
  readonly nodeId: string;
  /** Epoch milliseconds. */
  readonly stopAt: number;
}

export interface Draining {
  readonly node: NodeRecord;
  readonly operationId: string;
}

/** Begins to drain; of a node that is being drained already it gives the operation that does so. */
export async function askDrain(
  { context }: Pick<MachineServices, "context">,
  wish: {
    readonly operationId: string;
    readonly tenantId: string;
    readonly nodeId: string;
    readonly deadlineSeconds: number | null;
  },
): Promise<Draining> {
  const { tenantId, nodeId } = wish;
  const node = await beginDrain(context.db, nodeId);
  if (node === undefined) throw await notDrainable(context, nodeId);
  await context.db.notify("nodes", nodeId);
  const running = await findRunningOperation(context.db, { kind: "node drain", resourceId: nodeId });
  if (running !== undefined) return { node, operationId: running.id };
  const seconds = Math.min(wish.deadlineSeconds ?? DEADLINE_SECONDS_DEFAULT, DEADLINE_SECONDS_MAX);
  const input: DrainInput = { nodeId, stopAt: context.clock.now() + seconds * 1000 };
  const { id } = await beginOperation(context, {
    id: wish.operationId,
    tenantId,
    kind: "node drain",
    resource: { kind: "node", id: nodeId, name: nodeId },
    input,
    steps: Object.values(STEPS),
    deadlineMs: seconds * 1000 + STOP_MS_MAX,
  });
  return { node, operationId: id };
}

async function notDrainable({ db }: Context, nodeId: string): Promise<Refusal> {
  const node = await findNode(db, nodeId);
  if (node?.status !== "unreachable")
    return new Refusal("not_found", `node ${nodeId} was not found; list the nodes to see their ids`);
  return new Refusal(
    "unavailable",
    `node ${nodeId} does not report; drain it when it is back, or revoke its credential`,
  );
}

export function nodeDrainWorker(services: MachineServices): OperationWorker {
  const { context, activity } = services;
  const { clock, db } = context;
  return {
    kind: "node drain",
    async work(run) {
      const { operation, signal } = run;
      const { nodeId, stopAt } = operation.input as DrainInput;
      await run.step(STEPS.close, () =>
        Promise.resolve("machines whose disks are there can be started when it is back"),
      );
      await run.step(STEPS.wait, async (say) => {
        for (;;) {
          const machines = await runningOn(context, nodeId);
          if (machines.length === 0) return "none runs there";
          const leftMs = stopAt - clock.now();
          if (leftMs <= 0) return `${counted(machines)} when the time was up`;
          say(`${counted(machines)}; what still does at ${new Date(stopAt).toISOString()} is stopped`);
          await clock.sleep(Math.min(PERIOD_MS, leftMs), signal);
          signal.throwIfAborted();
        }
      });
      await run.step(STEPS.stop, async (say) => {
        const told = new Set<string>();
        for (;;) {
          const machines = await runningOn(context, nodeId);
          if (machines.length === 0) return told.size === 0 ? "there was none" : stoppedText(told.size);
          say(counted(machines));
          for (const { id } of machines.filter((machine) => !told.has(machine.id)))
            activity.note(id, "warn", `stopped because node ${nodeId} is drained; its disk stays there`);
          for (const { id } of machines) told.add(id);
          await stopAll(services, machines.slice(0, STOPS_AT_A_TIME), signal);
          await clock.sleep(PERIOD_MS, signal);
          signal.throwIfAborted();
        }
      });
      if (!(await endDrain(db, nodeId, "drained")))
        throw new Refusal("conflict", `node ${nodeId} was opened again while it was drained; drain it once more`);
      await db.notify("nodes", nodeId);
    },
    async undo({ input }) {
      const { nodeId } = input as DrainInput;
      await endDrain(db, nodeId, "drainFailed");
      await db.notify("nodes", nodeId);
    },
  };
}

const counted = ({ length }: readonly unknown[]): string =>
  length === 1 ? "1 machine runs" : `${length} machines run`;

const stoppedText = (count: number): string =>
  `${count === 1 ? "1 machine was" : `${count} machines were`} stopped; what was on their disks is kept there`;

/** Machines of which something runs there, or is about to. Throws a Refusal when the node cannot say. */
async function runningOn({ db, clock }: Context, nodeId: string): Promise<readonly MachineRecord[]> {
  const node = await findNode(db, nodeId);
  if (node === undefined || node.status === "revoked")
    throw new Refusal("not_found", `node ${nodeId} was revoked while it was drained`);
  const heardAt = (node.lastHeartbeatAt ?? node.registeredAt).getTime();
  if (clock.now() - heardAt > HEARTBEAT_LOST_MS)
    throw new Refusal("unavailable", `node ${nodeId} stopped reporting while it was drained; drain it when it is back`);
  const machines = await listMachinesOfNode(db, nodeId);
  return machines.filter((machine) => isActive(machine) || machine.deletedAt !== null);
}

/** What does not stop is found again in the next round. */
async function stopAll(
  services: MachineServices,
  machines: readonly MachineRecord[],
  signal: AbortSignal,
): Promise<void> {
  const stops = machines.map(({ tenantId, id }) => stopMachine(services, { tenantId, id, signal }));
  for (const end of await Promise.allSettled(stops)) {
    if (end.status === "rejected" && !(end.reason instanceof Refusal)) throw end.reason;
  }
}
