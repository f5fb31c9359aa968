/**
 * Drains a node: no machine starts there any more; running ones get time to stop, then they are stopped.
 *
 * A machine's disk is on its node and stays there: draining moves nothing, and its messages say so. A stopped machine
 * can be started again when the node is back.
 *
 * Always:
 * - A node is `draining` only while an operation works on it.
 * - A drain that succeeds leaves it `drained`, until its agent registers again (after the host's maintenance).
 * - A drain that fails, because the node stopped reporting or a machine did not stop, leaves it `ready` as before.
 * - Every step is idempotent, because another server continues the operation of one that died.
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
/** Longer than any machine may take to stop. */
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

/** Begins to drain a node. If it is being drained already, returns the running operation. */
export async function requestDrain(
  { context }: Pick<MachineServices, "context">,
  request: {
    readonly operationId: string;
    readonly tenantId: string;
    readonly nodeId: string;
    readonly deadlineSeconds: number | null;
  },
): Promise<Draining> {
  const { tenantId, nodeId } = request;
  const node = await beginDrain(context.db, nodeId);
  if (node === undefined) throw await notDrainable(context, nodeId);
  await context.db.notify("nodes", nodeId);
  const running = await findRunningOperation(context.db, { kind: "node drain", resourceId: nodeId });
  if (running !== undefined) return { node, operationId: running.id };
  const seconds = Math.min(request.deadlineSeconds ?? DEADLINE_SECONDS_DEFAULT, DEADLINE_SECONDS_MAX);
  const input: DrainInput = { nodeId, stopAt: context.clock.now() + seconds * 1000 };
  const { id } = await beginOperation(context, {
    id: request.operationId,
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
          if (leftMs <= 0) return `${counted(machines)} at the deadline`;
          say(`${counted(machines)}; at ${new Date(stopAt).toISOString()} they are stopped`);
          await clock.sleep(Math.min(PERIOD_MS, leftMs), signal);
          signal.throwIfAborted();
        }
      });
      await run.step(STEPS.stop, async (say) => {
        const noted = new Set<string>();
        for (;;) {
          const machines = await runningOn(context, nodeId);
          if (machines.length === 0) return noted.size === 0 ? "there was none" : stoppedText(noted.size);
          say(counted(machines));
          for (const { id } of machines.filter((machine) => !noted.has(machine.id)))
            activity.note(id, "warn", `stopped because node ${nodeId} is drained; its disk stays there`);
          for (const { id } of machines) noted.add(id);
          await stopAll(services, machines.slice(0, STOPS_AT_A_TIME), signal);
          await clock.sleep(PERIOD_MS, signal);
          signal.throwIfAborted();
        }
      });
      if (!(await endDrain(db, nodeId, "drained")))
        throw new Refusal("conflict", `node ${nodeId} was reopened during its drain; drain it again`);
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
  `${count === 1 ? "1 machine was" : `${count} machines were`} stopped; their disks are kept there`;

/** Machines that run there or are about to. Throws a Refusal when the node does not report. */
async function runningOn({ db, clock }: Context, nodeId: string): Promise<readonly MachineRecord[]> {
  const node = await findNode(db, nodeId);
  if (node === undefined || node.status === "revoked")
    throw new Refusal("not_found", `node ${nodeId} was revoked during its drain`);
  const lastSeenAt = node.lastHeartbeatAt ?? node.registeredAt;
  if (clock.now() - lastSeenAt > HEARTBEAT_LOST_MS)
    throw new Refusal("unavailable", `node ${nodeId} stopped reporting during its drain; drain it when it is back`);
  const machines = await listMachinesOfNode(db, nodeId);
  return machines.filter((machine) => isActive(machine) || machine.deletedAt !== null);
}

/** Machines that do not stop are found again in the next round. */
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
