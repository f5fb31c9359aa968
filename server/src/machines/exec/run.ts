/**
 * Runs a command in a machine: finds it, starts it if it is stopped, and streams through its node.
 *
 * Always: no database write stands on the path, and in a machine that is known to run no query either; a command is
 * sent to a node a second time only when the node said that it did not run it; when the caller goes away the command
 * is ended, unless it was started in the background.
 */
import { Refusal } from "@flotilla/contract/errors";
import type { ExecExit } from "@flotilla/contract/link";
import { NotRunning, type OutputSink, runOnNode } from "../../link/exec-link.ts";
import { converge } from "../converge.ts";
import type { MachineRecord } from "../record.ts";
import type { MachineServices } from "../services.ts";
import { awaitRunning, machineNotFound, startMachine } from "../start.ts";
import { includes, NODE_AWAY, phaseOf } from "../state.ts";
import { findMachine } from "../store.ts";
import { nodeAwayText, shownState } from "../view.ts";
import type { Command } from "./request.ts";

/** How much longer than its time limit a command may keep its node busy, before the node counts as gone. */
const NODE_GRACE_MS = 30_000;
const TRIES_MAX = 3;

export interface RunOptions {
  readonly tenantId: string;
  readonly id: string;
  readonly command: Command;
  readonly sink: OutputSink;
  readonly signal: AbortSignal;
}

/** How the command ended. Throws a Refusal when it did not run, or when nobody can say how it ended. */
export async function runCommand(services: MachineServices, options: RunOptions): Promise<ExecExit> {
  const { activity, cache, context } = services;
  const { tenantId, id } = options;
  // Of a machine that is not known to run, the database knows more than the cache.
  const known = cache.find(tenantId, id);
  let machine = known !== undefined && phaseOf(known) === "running" ? known : await read(services, options);
  for (let attempt = 1; ; attempt += 1) {
    if (machine === undefined) throw machineNotFound(id);
    const running = await ensureRunning(services, machine, options);
    activity.execBegan(id);
    const startedAt = context.clock.monotonic();
    let exitCode: number | null = null;
    try {
      const exit = await attemptOnce(services, running, options);
      exitCode = exit.exitCode;
      return exit;
    } catch (error) {
      if (!(error instanceof NotRunning) || attempt >= TRIES_MAX) throw asRefusal(error, id);
    } finally {
      activity.execEnded(id, exitCode, context.clock.monotonic() - startedAt);
    }
    // What was known is out of date: the node knows better what became of the machine.
    cache.forget(id);
    machine = await read(services, options);
    if (machine !== undefined) machine = await converge(services, machine, { waitMs: 0, signal: options.signal });
    if (machine !== undefined && machine.deletedAt !== null) throw machineNotFound(id);
  }
}

const read = (services: MachineServices, options: RunOptions): Promise<MachineRecord | undefined> =>
  services.cache.read(options.id, () => findMachine(services.context.db, options));

const asRefusal = (error: unknown, id: string): unknown =>
  error instanceof NotRunning
    ? new Refusal(
        "conflict",
        `machine ${id} ended again and again while the command was to run; read the machine to see why`,
      )
    : error;

async function ensureRunning(
  services: MachineServices,
  machine: MachineRecord,
  options: RunOptions,
): Promise<MachineRecord> {
  if (machine.nodeStatus !== null && includes(NODE_AWAY, machine.nodeStatus)) {
    const why = nodeAwayText(machine.nodeId ?? "", machine.nodeStatus);
    throw new Refusal("unavailable", `exec in machine ${machine.id} is not possible: ${why}`);
  }
  switch (phaseOf(machine)) {
    case "running":
      return machine;
    case "starting":
      return await awaitRunning(services, machine, options);
    case "created":
    case "stopped":
    case "stopping":
      return await startFor(services, options);
    case "failed": {
      const { error } = shownState(machine);
      const text = `machine ${machine.id} is in state error: ${error}; start it again, or delete it`;
      throw new Refusal("conflict", text);
    }
    case "deleting":
    case "deleted":
      throw machineNotFound(machine.id);
  }
}

/** A stopped machine is started by the command; a refusal stands on its timeline, because nobody asked for a start. */
async function startFor(services: MachineServices, options: RunOptions): Promise<MachineRecord> {
  try {
    return await startMachine(services, { ...options, isAutomatic: true, isDetached: false });
  } catch (error) {
    // A boot that failed has its line already.
    if (error instanceof Refusal && ["quota_exceeded", "no_capacity", "unavailable"].includes(error.code))
      services.activity.note(options.id, "error", `auto-start failed: ${error.message}`);
    throw error;
  }
}

async function attemptOnce(
  services: MachineServices,
  machine: MachineRecord,
  { command, sink, signal }: RunOptions,
): Promise<ExecExit> {
  const node = { nodeId: machine.nodeId ?? "", address: machine.nodeAddress ?? "" };
  const ended = new AbortController();
  const { timeoutMs } = command.start;
  const isLate = { now: false };
  const limit = new AbortController();
  if (timeoutMs !== null) {
    void services.context.clock.sleep(timeoutMs + NODE_GRACE_MS, ended.signal).then(() => {
      if (ended.signal.aborted) return;
      isLate.now = true;
      limit.abort();
    });
  }
  try {
    const either = AbortSignal.any([signal, limit.signal]);
    return await runOnNode(services.link, node, { machineId: machine.id, ...command, sink, signal: either });
  } catch (error) {
    if (!isLate.now) throw error;
    const text = `the command in machine ${machine.id} was not ended by its node in time; stop and start the machine`;
    throw new Refusal("guest_unreachable", text);
  } finally {
    ended.abort();
  }
}
