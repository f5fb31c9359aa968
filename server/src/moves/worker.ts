/**
 * Moves a machine to another node: sends its files while it runs, suspends it, copies its memory and what has changed, makes the
 * target the owner, and continues it there if it is to run. Where its memory cannot be kept or loaded it is stopped, and boots there.
 *
 * docs/decisions/0041-moves.md has the states of a move and what a crash leaves in each, 0047-warm-moves.md what becomes of memory,
 * 0049-early-copies.md what is sent before.
 *
 * Always:
 * - The machine's row names the one node on which it may run. It changes in one statement, after the target has verified every
 *   file and has them as a machine. The source keeps its files until then.
 * - A move that fails or is canceled before that statement leaves the machine where it was. After it, the move succeeds.
 * - A delete wins: the move ends, and no node keeps a copy.
 *
 * Every step may be done twice, also by two servers at once: the files do not change while the machine is held.
 */
import { messageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import type { OutgoingMachine } from "@flotilla/contract/link/moves";
import { NodeUnreachable } from "../link/refusals.ts";
import {
  commitIncoming,
  describeOutgoing,
  discardIncoming,
  type MoveCall,
  relayFile,
  releaseOutgoing,
} from "../link/moves.ts";
import { converge } from "../machines/converge.ts";
import { type MachineRecord, nodeOf } from "../machines/record.ts";
import type { MachineServices } from "../machines/services.ts";
import { awaitRunning } from "../machines/start.ts";
import { isActive, isApplied, isSettled } from "../machines/state.ts";
import type { OperationRun, OperationWorker, StepResult } from "../operations/run.ts";
import type { OperationRecord } from "../operations/store.ts";
import { copyFiles, fileBytes, hasNothing, nodeAddress } from "./copy.ts";
import { removeCopies } from "./copies.ts";
import { copyEarly, type EarlyCopy, isSentEarly, type LivePoints } from "./early.ts";
import { type EffectOfMove, effectOf, type MoveEffect, preferredFormat } from "./memory.ts";
import {
  changeOwner,
  downtimeOf,
  hasRecordedRun,
  holdMachine,
  listObsoleteCopies,
  MOVES_PER_NODE_MAX,
  noteCopy,
  type ObsoleteCopy,
  releaseMachine,
} from "./store.ts";
import { chooseTarget, type TargetRequest } from "./target.ts";

export interface MoveInput {
  readonly machineId: string;
  /** null: placement chooses. */
  readonly nodeId: string | null;
  /** The operation that needs the move, such as a drain; absent: a caller requested it. */
  readonly parentId?: string;
}

export const MOVE_STEPS = {
  hold: "choose its node",
  stop: "stop it",
  copy: "copy its files",
  change: "hand it over",
  start: "start it there",
} as const;

const PERIOD_MS = 1_000;
/** How long a node may not answer while the machine is stopped for the move. */
const PATIENCE_MS = 2 * 60_000;
const DISCARD_TIMEOUT_MS = 10_000;
/** How long a node may take to report a run that has ended. */
const RUN_REPORT_MS = 10_000;
const RUN_POLL_MS = 100;
/** How far the clocks of servers and nodes may differ, apart from what is known. */
const CLOCKS_DIFFER_MS = 2_000;

const EFFECT_TEXTS: Readonly<Record<MoveEffect, string>> = {
  none: "",
  migrate: ", with its memory",
  restart: ", without its memory",
  stop: ", where it stays stopped",
};

type Say = (message: string) => void;

export function machineMoveWorker(services: MachineServices): OperationWorker {
  return {
    kind: "machine move",
    async work(run) {
      const move = new Move(services, run);
      if (!(await move.isDone())) {
        await run.step(MOVE_STEPS.hold, (say) => move.hold(say));
        await run.step(MOVE_STEPS.stop, (say) => move.stop(say));
        await run.step(MOVE_STEPS.copy, (say) => move.copy(say));
      }
      await run.step(MOVE_STEPS.change, (say) => move.change(say));
      // Whatever happens now, the machine has moved: its start continues without the operation.
      if (run.signal.aborted) return;
      await run.step(MOVE_STEPS.start, () => move.start());
    },
    undo: (operation) => undo(services, operation),
  };
}

class Move {
  readonly #services: MachineServices;
  readonly #run: OperationRun;
  readonly #machineId: string;
  readonly #moveId: string;
  #early: EarlyCopy | null = null;
  /** Why the machine was not handed over while it ran; null: it was, or was not to be. */
  #notLive: string | null = null;
  /** What was sent while the machine was paused, with its memory; null: it was not handed over by this server. */
  #restBytes: number | null = null;
  /** Targets to which files were sent early, or cannot be. */
  readonly #earlyTried = new Set<string>();

  constructor(services: MachineServices, run: OperationRun) {
    this.#services = services;
    this.#run = run;
    const { machineId } = run.operation.input as MoveInput;
    this.#machineId = machineId;
    this.#moveId = run.operation.id;
  }

  /** Whether the target owns the machine: a server died after that. */
  async isDone(): Promise<boolean> {
    return (await this.#read()).movedBy === this.#moveId;
  }

  /** Chooses the target and holds the machine, as soon as few enough others leave its node. */
  async hold(say: Say): Promise<string> {
    const { context, activity, nodes } = this.#services;
    const { nodeId } = this.#run.operation.input as MoveInput;
    let outgoing: OutgoingMachine | null = null;
    for (;;) {
      const machine = await this.#read();
      if (machine.moveId === this.#moveId) return `${machine.nodeId} → ${machine.moveNodeId}`;
      if (machine.moveId !== null) throw new Refusal("conflict", `another operation moves it: ${machine.moveId}`);
      outgoing ??= await this.#describe(say, machine);
      const { memoryFormat } = outgoing;
      const preferred = preferredFormat(machine, memoryFormat);
      const request = { toId: nodeId, diskBytes: fileBytes(outgoing), memoryFormat: preferred };
      const target = await this.#chooseTarget(machine, request);
      const { effect, reason } = await this.#effectOn(target, machine, memoryFormat);
      if (!outgoing.canSendEarly) this.#notLive = `node ${machine.nodeId} cannot watch its disk`;
      if (isActive(machine) && isSentEarly(effect, outgoing) && !this.#earlyTried.has(target)) {
        await this.#copyEarly(machine, { nodeId: target, movesMemory: effect === "migrate" }, say);
        continue;
      }
      const held = await holdMachine(context, machine, {
        moveId: this.#moveId,
        nodeId: target,
        keepsMemory: effect === "migrate",
        stops: effect === "stop",
        isLive: effect === "migrate" && this.#liveOn(target) !== null,
        overcommit: nodes.overcommit,
      });
      if (held === "stale") continue;
      if (held !== "busy") {
        const how = EFFECT_TEXTS[effect];
        activity.note(machine.id, "info", `moving from node ${machine.nodeId} to node ${target}${how}`);
        if (reason !== null)
          activity.note(machine.id, "warn", `its memory is lost by the move, and it boots: ${reason}`);
        return `${machine.nodeId} → ${target}${how}${reason === null ? "" : `: ${reason}`}`;
      }
      say(`waiting: ${MOVES_PER_NODE_MAX} machines are leaving node ${machine.nodeId}`);
      await this.#pause();
    }
  }

  /** Waits until nothing of the machine runs on its node. */
  async stop(say: Say): Promise<string> {
    const { nodeWaitMs: waitMs } = this.#services;
    if (await this.#handOver()) return "it was paused, and its memory is on the other node";
    for (;;) {
      const machine = await this.#held();
      if (isSettled(machine)) {
        if (machine.observedDetails.suspendedAt === null) return "nothing of it runs";
        const why =
          this.#notLive === null || machine.desiredState !== "running"
            ? ""
            : `; it was not handed over while it ran: ${this.#notLive}`;
        return `its memory is saved, and nothing of it runs${why}`;
      }
      refusePaused(machine);
      await this.#patiently(say, () => converge(this.#services, machine, { waitMs, signal: this.#run.signal }));
    }
  }

  /** What a node has of the machine's memory, which was sent to it while the machine ran. */
  #liveOn(nodeId: string | null): LivePoints | null {
    return this.#early !== null && this.#early.target.nodeId === nodeId ? this.#early.live : null;
  }

  /**
   * Has the machine paused, its rest sent to the VM that waits for it, and the target made its owner, which then continues it. false: it is
   * stopped or suspended instead; whatever has happened, it did not run since it was paused.
   */
  async #handOver(): Promise<boolean> {
    const { context, link, activity } = this.#services;
    let held = await this.#held();
    const live = this.#liveOn(held.moveNodeId);
    if (live === null || this.#early === null || isSettled(held) || !held.keepsMemory) {
      this.#notLive ??= "the server that began the move ended";
      return false;
    }
    // A suspended machine's report brings its run; one that is handed over would have moved before it.
    const { nodeId } = nodeOf(held);
    if (!(await hasRecordedRun(context.db, { machineId: held.id, nodeId }))) {
      this.#notLive = `node ${nodeId} had not reported that it runs`;
      return false;
    }
    const { target } = this.#early;
    const { point, diskPoint } = live;
    let pausedAt: number | null = null;
    try {
      this.#restBytes = await relayFile(link, { source: nodeOf(held), target }, this.#call(held, this.#run.signal), {
        file: { name: "rest", from: 0 },
        point,
        rest: { diskPoint, generation: held.generation },
        onBytes: () => undefined,
        onPaused: (at) => {
          pausedAt = at;
        },
      });
    } catch (error) {
      this.#run.signal.throwIfAborted();
      this.#notLive = messageOf(error);
      return false;
    }
    for (;;) {
      const moved = await changeOwner(context, held, { moveId: this.#moveId, hasMemory: true, pausedAt });
      if (moved === undefined) {
        held = await this.#held();
        continue;
      }
      this.#services.cache.forget(this.#machineId);
      this.#startSoon(moved);
      activity.note(held.id, "info", `moved from node ${held.nodeId} to node ${moved.nodeId}`);
      return true;
    }
  }

  /** Where files were sent already, if that node still admits the machine. */
  async #chooseTarget(machine: MachineRecord, request: TargetRequest): Promise<string> {
    const known = this.#early?.target.nodeId ?? null;
    if (known !== null && request.toId === null) {
      const found = await chooseTarget(this.#services, machine, { ...request, toId: known }).catch((error: unknown) => {
        if (!(error instanceof Refusal)) throw error;
      });
      if (found !== undefined) return found;
    }
    return await chooseTarget(this.#services, machine, request);
  }

  /** Sends files while the machine runs. Ends when it is deleted. */
  async #copyEarly(
    machine: MachineRecord,
    { nodeId, movesMemory }: { readonly nodeId: string; readonly movesMemory: boolean },
    say: Say,
  ): Promise<void> {
    const { db } = this.#services.context;
    this.#earlyTried.add(nodeId);
    await noteCopy(db, { machineId: machine.id, nodeId });
    const target = await nodeAddress(this.#services, nodeId);
    this.#early = await this.#whileWanted(
      () => this.#read(),
      (signal) => {
        const onNotLive = (reason: string): void => void (this.#notLive = reason);
        const options = { say, patienceMs: PATIENCE_MS, movesMemory, onNotLive };
        return copyEarly(this.#services, machine, target, this.#call(machine, signal), options);
      },
    );
  }

  /** Copies what the target lacks, until it has all of it. Ends early when the machine is deleted or released. */
  async copy(say: Say): Promise<string> {
    const text = (bytes: number): string => {
      const early = this.#early === null ? "" : `, after ${(this.#early.bytes / 1e6).toFixed(1)} MB while it ran`;
      return `${(bytes / 1e6).toFixed(1)} MB were copied${early}`;
    };
    if (this.#restBytes !== null && (await this.isDone())) return text(this.#restBytes);
    const machine = await this.#held();
    const { bytes } = await this.#whileWanted(
      () => this.#held(),
      (signal) =>
        copyFiles(this.#services, machine, this.#call(machine, signal), {
          ...{ say, patienceMs: PATIENCE_MS },
        }),
    );
    return text(bytes);
  }

  /** Does work that ends when `check` refuses, which then explains its failure. */
  async #whileWanted<T>(check: () => Promise<unknown>, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const ended = new AbortController();
    const watching = this.#watch(ended, check);
    try {
      return await work(AbortSignal.any([this.#run.signal, ended.signal]));
    } catch (error) {
      this.#run.signal.throwIfAborted();
      await check();
      throw error;
    } finally {
      ended.abort();
      await watching;
    }
  }

  /** Makes the target the owner, then removes the source's copy. */
  async change(say: Say): Promise<string> {
    const { context, activity } = this.#services;
    let machine = await this.#read();
    while (machine.movedBy !== this.#moveId) {
      const held = await this.#held();
      const target = await nodeAddress(this.#services, held.moveNodeId);
      const call = this.#call(held, this.#run.signal);
      const { keepsMemory } = held;
      let hasMemory = false;
      await this.#patiently(say, async () => {
        // The target makes a disk at the next start.
        if (await hasNothing(this.#services, held, call)) return;
        const arrived = await commitIncoming(this.#services.link, target, call, { hasMemory: keepsMemory });
        // One that was handed over while it ran is paused there.
        hasMemory = arrived.suspendedAt !== null || arrived.bootId !== null;
      });
      this.#run.signal.throwIfAborted();
      const moved = await changeOwner(context, held, { moveId: this.#moveId, hasMemory, pausedAt: null });
      if (moved !== undefined) activity.note(held.id, "info", `moved from node ${held.nodeId} to node ${moved.nodeId}`);
      machine = moved ?? (await this.#read());
    }
    this.#services.cache.forget(this.#machineId);
    // The removal of a large disk takes a while.
    if (machine.desiredState === "running") this.#startSoon(machine);
    // Another target may have had parts, before it did not admit the machine any more.
    await discardParts(this.#services, this.#call(machine, this.#run.signal));
    const left = await removeCopies(this.#services, this.#machineId);
    const copy = left === 0 ? "the former copy is removed" : "the former copy is removed when its node answers";
    return `node ${machine.nodeId} owns it; ${copy}`;
  }

  /** Sends the target what is desired, and waits for it. */
  async start(): Promise<string | StepResult> {
    const machine = await this.#read();
    if (machine.desiredState !== "running") {
      this.#startSoon(machine);
      return machine.keepsMemory ? "it stays suspended, with its memory" : "it stays stopped";
    }
    try {
      const running = await awaitRunning(this.#services, machine, { signal: this.#run.signal });
      return await this.#pauseOf(running);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      throw new Refusal(
        "start_failed",
        `it is on node ${machine.nodeId} now, and does not run there: ${error.message}`,
      );
    }
  }

  /** Sends its node what is desired. */
  #startSoon(machine: MachineRecord): void {
    const { nodeWaitMs: waitMs } = this.#services;
    this.#services.inBackground(`move of ${machine.id}`, () => converge(this.#services, machine, { waitMs }));
  }

  /** How long the machine did not run. */
  async #pauseOf({ id: machineId, observedBootId, observedDetails }: MachineRecord): Promise<string | StepResult> {
    const { isResumed } = observedDetails;
    const what = isResumed ? "it runs, and its processes continued" : "it runs";
    if (observedBootId === null) return what;
    const boot = { machineId, bootId: observedBootId, since: this.#run.operation.createdAt - CLOCKS_DIFFER_MS };
    const downtimeMs = await this.#downtimeOf(boot);
    if (downtimeMs === null) return what;
    return { message: `${what}${isResumed ? " after a pause of" : "; it was down for"} ${downtimeMs} ms`, downtimeMs };
  }

  /** A source that has handed the machine over reports the end of its run afterwards. */
  async #downtimeOf(boot: Parameters<typeof downtimeOf>[1]): Promise<number | null> {
    const { clock, db } = this.#services.context;
    const deadline = clock.monotonic() + (this.#restBytes === null ? 0 : RUN_REPORT_MS);
    for (;;) {
      const found = await downtimeOf(db, boot);
      if (found !== null || clock.monotonic() >= deadline) return found;
      await clock.sleep(RUN_POLL_MS, this.#run.signal);
    }
  }

  /** What the machine has on its node. It may still run. */
  async #describe(say: Say, machine: MachineRecord): Promise<OutgoingMachine> {
    const call = { machineId: machine.id, signal: this.#run.signal };
    const described: OutgoingMachine[] = [];
    await this.#patiently(say, async () => {
      described.push(await describeOutgoing(this.#services.link, nodeOf(machine), call, { hasContent: false }));
    });
    this.#run.signal.throwIfAborted();
    const [outgoing] = described;
    if (outgoing === undefined) throw new Refusal("unavailable", `node ${machine.nodeId} does not answer`);
    return outgoing;
  }

  async #effectOn(nodeId: string, machine: MachineRecord, memoryFormat: string | null): Promise<EffectOfMove> {
    const node = await this.#services.nodes.find(nodeId);
    return effectOf({ machine, memoryFormat, target: { id: nodeId, labels: node?.labels ?? {} } });
  }

  #call(machine: MachineRecord, signal: AbortSignal): MoveCall {
    return { tenantId: machine.tenantId, machineId: machine.id, moveId: this.#moveId, signal };
  }

  /** The machine, while it is not deleted. */
  async #read(): Promise<MachineRecord> {
    const machine = await this.#services.cache.readAny(this.#machineId);
    if (machine !== undefined && machine.deletedAt === null) return machine;
    throw new Refusal("not_found", `machine ${this.#machineId} was deleted`);
  }

  /** The machine, while this move holds it. */
  async #held(): Promise<MachineRecord> {
    const machine = await this.#read();
    if (machine.moveId === this.#moveId) return machine;
    throw new Refusal("conflict", `the move of machine ${this.#machineId} was ended by another server`);
  }

  /** Aborts when `check` refuses. Resolves after the signal was aborted. */
  async #watch(ended: AbortController, check: () => Promise<unknown>): Promise<void> {
    const { clock } = this.#services.context;
    while (!ended.signal.aborted) {
      await clock.sleep(PERIOD_MS, ended.signal);
      if (ended.signal.aborted) return;
      await check().catch((error: unknown) => {
        if (error instanceof Refusal && (error.code === "not_found" || error.code === "conflict")) ended.abort(error);
      });
    }
  }

  /** Repeats a request while the node does not answer, for PATIENCE_MS. */
  async #patiently(say: Say, work: () => Promise<unknown>): Promise<void> {
    const { clock } = this.#services.context;
    const since = clock.monotonic();
    for (;;) {
      try {
        await work();
        return;
      } catch (error) {
        if (!(error instanceof NodeUnreachable) || clock.monotonic() - since > PATIENCE_MS) throw error;
        say(error.message);
        await this.#pause();
      }
    }
  }

  async #pause(): Promise<void> {
    await this.#services.context.clock.sleep(PERIOD_MS, this.#run.signal);
    this.#run.signal.throwIfAborted();
  }
}

/**
 * A machine that was paused to be handed over, and whose memory cannot be saved either, would stay paused: the move ends, and it runs on
 * where it is. Throws a Refusal for it.
 */
function refusePaused(machine: MachineRecord): void {
  const { suspendRefusal } = machine.observedDetails;
  if (suspendRefusal === null || !machine.keepsMemory || !isApplied(machine)) return;
  throw new Refusal(
    suspendRefusal.code,
    `its memory could neither be handed over nor saved, so it runs on where it is: ${suspendRefusal.reason}`,
  );
}

/** Leaves the machine where it was. The order matters: once it is released, no server completes the move. */
async function undo(services: MachineServices, operation: OperationRecord): Promise<void> {
  const { context, cache, activity } = services;
  const { machineId } = operation.input as MoveInput;
  const released = await releaseMachine(context, { machineId, moveId: operation.id });
  cache.forget(machineId);
  // It may be paused.
  if (released?.desiredState === "running")
    services.inBackground(`end of a move of ${machineId}`, () =>
      converge(services, released, { waitMs: services.nodeWaitMs }),
    );
  if (released !== undefined)
    activity.note(machineId, "warn", `the move was ended; the machine is on node ${nodeOf(released).nodeId} as before`);
  const call = { tenantId: operation.tenantId, machineId, moveId: operation.id };
  await Promise.all([forgetPoints(services, machineId), discardParts(services, call)]);
  await removeCopies(services, machineId);
}

/** Removes what has arrived of the machine on nodes that do not own it. A node that does not answer removes it later, once the answer to its heartbeat names the move. */
async function discardParts({ context, link }: MachineServices, call: Omit<MoveCall, "signal">): Promise<void> {
  const { machineId } = call;
  const copies = await listObsoleteCopies(context.db, { machineIds: [machineId], nodeId: null });
  const discard = ({ nodeId, address }: ObsoleteCopy): Promise<void> =>
    discardIncoming(link, { nodeId, address }, { ...call, signal: AbortSignal.timeout(DISCARD_TIMEOUT_MS) }).catch(
      (error: unknown) => context.log.info({ error, nodeId, machineId }, "a node keeps parts of a move that has ended"),
    );
  await Promise.all(copies.map(discard));
}

/** The machine runs on where it is. A node that does not answer watches in vain until the machine stops. */
async function forgetPoints({ cache, link }: MachineServices, machineId: string): Promise<void> {
  const machine = await cache.readAny(machineId);
  if (machine === undefined || machine.nodeId === null) return;
  const signal = AbortSignal.timeout(DISCARD_TIMEOUT_MS);
  await releaseOutgoing(link, nodeOf(machine), { machineId, signal }).catch(() => undefined);
}
