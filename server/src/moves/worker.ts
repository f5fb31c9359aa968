/**
 * Moves a machine to another node: sends its files while it runs, suspends it, copies its memory and what has
 * changed, makes the target the owner, and resumes it there if it is to run. Where its memory cannot be kept
 * or loaded it is stopped, and boots there.
 *
 * docs/decisions/0041-moves.md has the states of a move, what a crash leaves in each, what becomes of memory
 * and what is sent early.
 *
 * Always:
 * - The machine's row names the one node on which it may run. It changes in one statement, after the target
 *   has verified every file and has them as a machine. The source keeps its files until then.
 * - A move that fails or is canceled before that statement leaves the machine where it was. After it, the
 *   move succeeds.
 * - A delete wins: the move ends, and no node keeps a copy.
 *
 * Every step may be done twice, also by two servers at once: the files do not change while the machine is
 * held.
 */
import { messageOf } from "@flotilla/base/errors";
import { Refusal } from "@flotilla/contract/errors";
import type { OutgoingMachine } from "@flotilla/contract/link/moves";
import { NodeUnreachable } from "../link/refusals.ts";
import { commitIncoming, describeOutgoing, type MoveCall, relayPart } from "../link/moves.ts";
import { converge } from "../machines/converge.ts";
import { type MachineRecord, nodeOf } from "../machines/record.ts";
import type { ConvergeServices, MachineServices } from "../machines/services.ts";
import { awaitRunning } from "../machines/start.ts";
import { isActive, isApplied, isSettled } from "../machines/state.ts";
import type { OperationRun, OperationWorker, StepResult } from "../family.ts";
import { findStep } from "../operations/steps.ts";
import { copyFiles, fileBytes, hasNothing, nodeAddress } from "./copy.ts";
import { removeCopies } from "./copies.ts";
import { copyEarly, type EarlyCopy, type LivePoints } from "./early.ts";
import { type EffectOfMove, effectOf, type MoveEffect, preferredFormat } from "./memory.ts";
import {
  type Arrival,
  isAfter,
  MOVE_STEPS,
  type MoveAction,
  type MoveFacts,
  type MoveStep,
  type NextOfMove,
  planMove,
  type RowState,
} from "./plan.ts";
import { changeOwner, downtimeOf, hasRecordedRun, holdMachine, MOVES_PER_NODE_MAX, noteCopy } from "./store.ts";
import { chooseTarget, type TargetRequest } from "./target.ts";
import { discardParts, undoMove } from "./undo.ts";

export interface MoveInput {
  readonly machineId: string;
  /** null: placement chooses. */
  readonly nodeId: string | null;
  /** The operation that needs the move, such as a drain; absent: a caller requested it. */
  readonly parentId?: string;
}

const PERIOD_MS = 1_000;
/** How long a node may not answer while the machine is stopped for the move. */
const PATIENCE_MS = 2 * 60_000;
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

const PAUSED_TEXT = "it was paused, and its memory is on the other node";

type Say = (message: string) => void;

/** What it takes to stop a machine, to move it and to start it on its target. */
export type MoveServices = ConvergeServices &
  Pick<MachineServices, "activity" | "inBackground" | "nodeWaitMs" | "nodes">;

export function machineMoveWorker(services: MoveServices): OperationWorker {
  return {
    kind: "machine move",
    async work(run) {
      const move = new Move(services, run);
      for (const [step, name] of Object.entries(MOVE_STEPS) as [MoveStep, string][]) {
        // Whatever happens now, the machine has moved: its start continues without the operation.
        if (move.hasMoved && run.signal.aborted) return;
        await run.step(name, (say) => move.work(step, say));
      }
    },
    undo: ({ id: moveId, tenantId, input }) =>
      undoMove(services, { moveId, tenantId, machineId: (input as MoveInput).machineId }),
  };
}

/** The node that is chosen for a machine as it was then. */
interface Choice extends EffectOfMove {
  readonly revision: number;
  readonly nodeId: string;
}

/** What the target has as a machine. */
interface Arrived {
  /** Revision of the row with which it was made one there; null: it is paused there, whatever has changed. */
  readonly revision: number | null;
  readonly hasMemory: boolean;
  /** When the source paused it: epoch milliseconds; null: it was stopped there. */
  readonly pausedAt: number | null;
}

/** What this server knows of a move beside the machine's row, and how it executes the actions of the plan. */
class Move {
  readonly #services: MoveServices;
  readonly #run: OperationRun;
  readonly #machineId: string;
  readonly #moveId: string;
  #hasMoved: boolean;
  #wasHeld: boolean;
  #outgoing: OutgoingMachine | null = null;
  #choice: Choice | null = null;
  #early: EarlyCopy | null = null;
  /** Targets to which files were sent early, or cannot be. */
  readonly #earlyTried = new Set<string>();
  /** Why the machine was not handed over while it ran; null: it was, or was not to be. */
  #notLive: string | null = null;
  /** What was copied of the stopped machine, or sent of the paused one; null: nothing by this server. */
  #copiedBytes: number | null = null;
  #hasFiles: boolean;
  #arrived: Arrived | null = null;
  /** How many copies are left on nodes that did not answer; null: they were not removed yet. */
  #copiesLeft: number | null = null;
  /** The results of steps that are known from what was done in them. */
  readonly #results = new Map<MoveStep, string | StepResult>();

  constructor(services: MoveServices, run: OperationRun) {
    this.#services = services;
    this.#run = run;
    const { machineId } = run.operation.input as MoveInput;
    this.#machineId = machineId;
    this.#moveId = run.operation.id;
    const isOver = (step: MoveStep): boolean => findStep(run.operation.steps, MOVE_STEPS[step])?.status === "succeeded";
    this.#wasHeld = isOver("hold");
    this.#hasFiles = isOver("copy");
    this.#hasMoved = isOver("change");
  }

  /** Whether the target owns the machine. */
  get hasMoved(): boolean {
    return this.#hasMoved;
  }

  /** Does what the plan says until that belongs to a later step. */
  async work(step: MoveStep, say: Say): Promise<string | StepResult> {
    for (;;) {
      const machine = await this.#services.cache.readAny(this.#machineId);
      const next = planMove(await this.#facts(machine));
      if (machine === undefined || next.kind === "refuse") throw this.#refusal(next, machine);
      if (next.kind === "done" || isAfter(next.step, step)) return this.#resultOf(step, machine);
      if (!this.#hasMoved) this.#run.signal.throwIfAborted();
      await this.#actions[next.action](machine, say).catch((error: unknown) => this.#explain(error));
    }
  }

  /** Throws why the move ends, if it does: a node says only that the machine is not there. */
  async #explain(error: unknown): Promise<never> {
    if (this.#run.signal.aborted) throw error;
    const machine = await this.#services.cache.readAny(this.#machineId);
    const next = planMove(await this.#facts(machine));
    if (machine === undefined || next.kind === "refuse") throw this.#refusal(next, machine);
    throw error;
  }

  async #facts(machine: MachineRecord | undefined): Promise<MoveFacts> {
    const row = this.#rowState(machine);
    if (row === "held") this.#wasHeld = true;
    if (row === "moved") this.#hasMoved = true;
    const isPresent = machine !== undefined;
    const choice = this.#choice?.revision === machine?.revision ? this.#choice : null;
    const isSettledNow = isPresent && isSettled(machine);
    const hasPoints = isPresent && row === "held" && this.#liveOn(machine.moveNodeId) !== null;
    return {
      ...{ row, wasHeld: this.#wasHeld, isDescribed: this.#outgoing !== null, effect: choice?.effect ?? null },
      isActive: isPresent && (row === "moved" ? machine.desiredState === "running" : isActive(machine)),
      canSendEarly: this.#outgoing?.canSendEarly ?? false,
      isEarlyTried: choice !== null && this.#earlyTried.has(choice.nodeId),
      isSettled: isSettledNow,
      keepsMemory: isPresent && machine.keepsMemory,
      hasPoints,
      isRunReported: hasPoints && !isSettledNow && (await this.#isRunReported(machine)),
      isSuspendRefused: isPresent && machine.observedDetails.suspendRefusal !== null && isApplied(machine),
      arrival: this.#arrivalOf(machine),
      isTidy: this.#copiesLeft !== null,
      isStarted: this.#results.has("start"),
    };
  }

  #rowState(machine: MachineRecord | undefined): RowState {
    if (machine === undefined || machine.deletedAt !== null) return "deleted";
    if (this.#hasMoved || machine.movedBy === this.#moveId) return "moved";
    if (machine.moveId === null) return "free";
    return machine.moveId === this.#moveId ? "held" : "taken";
  }

  #arrivalOf(machine: MachineRecord | undefined): Arrival {
    if (this.#arrived?.revision === null) return "paused";
    // The owner of a suspended machine may have changed what becomes of its memory.
    if (this.#arrived !== null && this.#arrived.revision === machine?.revision) return "machine";
    return this.#hasFiles ? "files" : "part";
  }

  #refusal(next: NextOfMove, machine: MachineRecord | undefined): Refusal {
    const why = next.kind === "refuse" ? next.refusal : "deleted";
    switch (why) {
      case "deleted":
        return new Refusal("not_found", `machine ${this.#machineId} was deleted`);
      case "moving":
        return new Refusal("conflict", `another operation moves it: ${machine?.moveId}`);
      case "ended":
        return new Refusal("conflict", `the move of machine ${this.#machineId} was ended by another server`);
      case "paused": {
        // It would stay paused: the move ends, and it runs on where it is.
        const { code, reason } = machine?.observedDetails.suspendRefusal ?? { code: "unavailable", reason: "" };
        const text = `its memory could neither be handed over nor saved, so it runs on where it is: ${reason}`;
        return new Refusal(code, text);
      }
    }
  }

  /** The result of a step of which nothing is left to do. */
  #resultOf(step: MoveStep, machine: MachineRecord): string | StepResult {
    const known = this.#results.get(step);
    if (known !== undefined) return known;
    switch (step) {
      case "hold":
        return `${machine.nodeId} → ${machine.moveNodeId}`;
      case "stop": {
        if (this.#hasMoved) return PAUSED_TEXT;
        if (machine.observedDetails.suspendedAt === null) return "nothing of it runs";
        const notLive = this.#notLive ?? "the server that began the move ended";
        const why = machine.desiredState === "running" ? `; it was not handed over while it ran: ${notLive}` : "";
        return `its memory is saved, and nothing of it runs${why}`;
      }
      case "copy": {
        if (this.#copiedBytes === null) return "its files are on the other node";
        const early = this.#early === null ? "" : `, after ${(this.#early.bytes / 1e6).toFixed(1)} MB while it ran`;
        return `${(this.#copiedBytes / 1e6).toFixed(1)} MB were copied${early}`;
      }
      case "change": {
        const isLeft = (this.#copiesLeft ?? 0) > 0;
        return `node ${machine.nodeId} owns it; the former copy is removed${isLeft ? " when its node answers" : ""}`;
      }
      case "start":
        return machine.keepsMemory ? "it stays suspended, with its memory" : "it stays stopped";
    }
  }

  readonly #actions: Readonly<Record<MoveAction, (machine: MachineRecord, say: Say) => Promise<void>>> = {
    describe: (machine, say) => this.#describe(machine, say),
    chooseTarget: (machine) => this.#choose(machine),
    sendEarly: (machine, say) => this.#sendEarly(machine, say),
    hold: (machine, say) => this.#hold(machine, say),
    handOver: (machine) => this.#handOver(machine),
    stop: (machine, say) => this.#stop(machine, say),
    copy: (machine, say) => this.#copy(machine, say),
    commit: (machine, say) => this.#commit(machine, say),
    changeOwner: (machine) => this.#changeOwner(machine),
    tidyUp: (machine) => this.#tidyUp(machine),
    awaitStart: (machine) => this.#awaitStart(machine),
  };

  /** Asks what the machine has on its node. It may still run. */
  async #describe(machine: MachineRecord, say: Say): Promise<void> {
    const call = { machineId: machine.id, signal: this.#run.signal };
    await this.#patiently(say, async () => {
      this.#outgoing = await describeOutgoing(this.#services.link, nodeOf(machine), call, { hasContent: false });
    });
    if (this.#outgoing?.canSendEarly === false) this.#notLive = `node ${machine.nodeId} cannot watch its disk`;
  }

  async #choose(machine: MachineRecord): Promise<void> {
    if (this.#outgoing === null) return;
    const { nodeId: toId } = this.#run.operation.input as MoveInput;
    const { memoryFormat } = this.#outgoing;
    const request = {
      toId,
      diskBytes: fileBytes(this.#outgoing),
      memoryFormat: preferredFormat(machine, memoryFormat),
    };
    const nodeId = await this.#chooseTarget(machine, request);
    const labels = (await this.#services.nodes.find(nodeId))?.labels ?? {};
    const found = effectOf({ machine, memoryFormat, target: { id: nodeId, labels } });
    this.#choice = { revision: machine.revision, nodeId, ...found };
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
  async #sendEarly(machine: MachineRecord, say: Say): Promise<void> {
    if (this.#choice === null) return;
    const { nodeId, effect } = this.#choice;
    // Much may change while they are sent.
    this.#choice = null;
    this.#earlyTried.add(nodeId);
    await noteCopy(this.#services.context.db, { machineId: machine.id, nodeId });
    const target = await nodeAddress(this.#services, nodeId);
    this.#early = await this.#whileWanted(
      () => this.#read(),
      (signal) => {
        const onNotLive = (reason: string): void => void (this.#notLive = reason);
        const options = { say, patienceMs: PATIENCE_MS, movesMemory: effect === "migrate", onNotLive };
        return copyEarly(this.#services, machine, target, this.#call(machine, signal), options);
      },
    );
  }

  /** Holds the machine, as soon as few enough others leave its node. */
  async #hold(machine: MachineRecord, say: Say): Promise<void> {
    if (this.#choice === null) return;
    const { context, activity, nodes } = this.#services;
    const { nodeId, effect, reason } = this.#choice;
    this.#choice = null;
    const held = await holdMachine(context, machine, {
      moveId: this.#moveId,
      nodeId,
      keepsMemory: effect === "migrate",
      stops: effect === "stop",
      isLive: effect === "migrate" && this.#liveOn(nodeId) !== null,
      overcommit: nodes.overcommit,
    });
    if (held === "stale") return;
    if (held === "busy") {
      say(`waiting: ${MOVES_PER_NODE_MAX} machines are leaving node ${machine.nodeId}`);
      return await this.#pause();
    }
    const how = EFFECT_TEXTS[effect];
    activity.note(machine.id, { type: "machine.moveBegun", data: { from: machine.nodeId ?? "", to: nodeId, how } });
    if (reason !== null)
      activity.note(machine.id, { type: "machine.memoryLost", data: { cause: "cannotMove", detail: reason } });
    this.#results.set("hold", `${machine.nodeId} → ${nodeId}${how}${reason === null ? "" : `: ${reason}`}`);
  }

  /** What a node has of the machine's memory, which was sent to it while the machine ran. */
  #liveOn(nodeId: string | null): LivePoints | null {
    return this.#early !== null && this.#early.target.nodeId === nodeId ? this.#early.live : null;
  }

  /** A suspended machine's report brings its run; one that is handed over would have moved before it. */
  async #isRunReported(machine: MachineRecord): Promise<boolean> {
    const { nodeId } = nodeOf(machine);
    const isRecorded = await hasRecordedRun(this.#services.context.db, { machineId: machine.id, nodeId });
    if (!isRecorded) this.#notLive = `node ${nodeId} had not reported that it runs`;
    return isRecorded;
  }

  /**
   * Has the machine paused, and the rest of it sent to the VM that waits for it. If that fails it is stopped
   * or suspended instead. In any case it has not run since the pause.
   */
  async #handOver(held: MachineRecord): Promise<void> {
    const live = this.#liveOn(held.moveNodeId);
    if (live === null || this.#early === null) return;
    const { target } = this.#early;
    const { point, diskPoint } = live;
    let pausedAt: number | null = null;
    try {
      const call = this.#call(held, this.#run.signal);
      const nodes = { source: nodeOf(held), target };
      const part = { kind: "rest", point, diskPoint, generation: held.generation } as const;
      this.#copiedBytes = await relayPart(this.#services.link, nodes, call, part, {
        onBytes: () => undefined,
        onPaused: (at) => {
          pausedAt = at;
        },
      });
      this.#arrived = { revision: null, hasMemory: true, pausedAt };
    } catch (error) {
      this.#run.signal.throwIfAborted();
      this.#notLive = messageOf(error);
      this.#early = { ...this.#early, live: null };
    }
  }

  async #stop(held: MachineRecord, say: Say): Promise<void> {
    const { nodeWaitMs: waitMs } = this.#services;
    await this.#patiently(say, () => converge(this.#services, held, { waitMs, signal: this.#run.signal }));
  }

  /**
   * Copies what the target lacks, until it has everything. Ends early when the machine is deleted or
   * released.
   */
  async #copy(held: MachineRecord, say: Say): Promise<void> {
    const { bytes } = await this.#whileWanted(
      () => this.#held(),
      (signal) => copyFiles(this.#services, held, this.#call(held, signal), { say, patienceMs: PATIENCE_MS }),
    );
    this.#copiedBytes = bytes;
    this.#hasFiles = true;
  }

  /** Makes the files a machine of the target. */
  async #commit(held: MachineRecord, say: Say): Promise<void> {
    const target = await nodeAddress(this.#services, held.moveNodeId);
    const call = this.#call(held, this.#run.signal);
    const { revision, keepsMemory } = held;
    let hasMemory = false;
    await this.#patiently(say, async () => {
      // The target makes a disk at the next start.
      if (await hasNothing(this.#services, held, call)) return;
      const arrived = await commitIncoming(this.#services.link, target, call, { hasMemory: keepsMemory });
      // One that was handed over while it ran is paused there.
      hasMemory = arrived.suspendedAt !== null || arrived.bootId !== null;
    });
    this.#arrived = { revision, hasMemory, pausedAt: null };
  }

  async #changeOwner(held: MachineRecord): Promise<void> {
    if (this.#arrived === null) return;
    const { hasMemory, pausedAt } = this.#arrived;
    const moved = await changeOwner(this.#services.context, held, { moveId: this.#moveId, hasMemory, pausedAt });
    if (moved === undefined) return;
    this.#hasMoved = true;
    this.#services.cache.forget(this.#machineId);
    // The removal of a large disk takes a while.
    this.#startSoon(moved);
    this.#services.activity.note(held.id, {
      type: "machine.moved",
      data: { from: held.nodeId ?? "", to: moved.nodeId ?? "" },
    });
  }

  async #tidyUp(machine: MachineRecord): Promise<void> {
    // Another target may have had parts, before it did not admit the machine any more.
    await discardParts(this.#services, this.#call(machine, this.#run.signal));
    this.#copiesLeft = await removeCopies(this.#services, this.#machineId);
  }

  async #awaitStart(machine: MachineRecord): Promise<void> {
    try {
      const running = await awaitRunning(this.#services, machine, { signal: this.#run.signal });
      this.#results.set("start", await this.#pauseOf(running));
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
    const deadline = clock.monotonic() + (this.#arrived?.revision === null ? RUN_REPORT_MS : 0);
    for (;;) {
      const found = await downtimeOf(db, boot);
      if (found !== null || clock.monotonic() >= deadline) return found;
      await clock.sleep(RUN_POLL_MS, this.#run.signal);
    }
  }

  /** Does work that ends when `check` refuses. */
  async #whileWanted<T>(check: () => Promise<unknown>, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const ended = new AbortController();
    const watching = this.#watch(ended, check);
    try {
      return await work(AbortSignal.any([this.#run.signal, ended.signal]));
    } catch (error) {
      this.#run.signal.throwIfAborted();
      throw error;
    } finally {
      ended.abort();
      await watching;
    }
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
