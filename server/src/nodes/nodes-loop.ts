/**
 * Marks nodes that have not reported for HEARTBEAT_LOST_MS as unreachable, so that their machines show it,
 * and decides whether their fenced machines are replaced (brake.ts). Pools replace them.
 *
 * Writes nodes.status through store.ts and the decision through loss-store.ts; a heartbeat
 * reverses both. Several servers may find the same silent node, and one write wins.
 *
 * Always: the absence of a node under maintenance raises no alarm, and its machines are not replaced. A
 * server that has just started, had no database until just now, or did not run for AWAY_MS, marks no node,
 * because none could report.
 */
import { HEARTBEAT_LOST_MS } from "@flotilla/contract/link/link";
import type { Context } from "../context.ts";
import { noteOnFenced, noteOnNodes } from "../events/store.ts";
import { type Judgement, judgeLoss, OVERDUE_MS } from "./brake.ts";
import { hasSilent, listJudged, markHeld, markLost } from "./loss-store.ts";
import { markUnreachable } from "./store.ts";
import type { Reconciler, Report } from "../family.ts";

const PERIOD_MS = 1_000;
/**
 * Gap between two readings of the clock that means: the process was stopped, its host was suspended, or the
 * database did not answer.
 */
const AWAY_MS = 10_000;
/** How far the clock was set between two looks. The fence ends 9 s before a node is unreachable. */
const SET_MS = 3_000;
/** A hold is logged as an error again after this. */
const REPEAT_MS = 60_000;

/**
 * `since`: the instant of `Clock.monotonic` from which on this server could receive heartbeats; default: now.
 */
export function nodeReconciler(
  context: Context,
  lostAfterMs: number = HEARTBEAT_LOST_MS,
  since: number = context.clock.monotonic(),
): Reconciler {
  const watch = new Watch(context, lostAfterMs, since);
  return {
    name: "nodes",
    purpose:
      "marks nodes that have stopped reporting as unreachable, and decides whether what can be replaced of them is",
    periodMs: PERIOD_MS,
    wakeOn: [],
    activate: () => watch.activate(),
  };
}

class Watch {
  readonly #context: Context;
  readonly #lostAfterMs: number;
  /** Monotonic: since when this server could have received every heartbeat. */
  #since: number;
  /** The last look at the clock. */
  #last: { readonly monotonic: number; readonly now: number };
  #loggedAt: number | null = null;
  #hasBegun = false;

  constructor(context: Context, lostAfterMs: number, since: number) {
    this.#context = context;
    this.#lostAfterMs = lostAfterMs;
    this.#since = since;
    this.#last = { monotonic: context.clock.monotonic(), now: context.clock.now() };
  }

  async activate(): Promise<Report> {
    const { clock, db } = this.#context;
    this.#noticeAbsence();
    try {
      await this.#sayThatItBegins();
      const isListening = this.#listenedMs() >= this.#lostAfterMs;
      const lost = isListening ? await markUnreachable(db, clock.now() - this.#lostAfterMs) : [];
      const judged = await listJudged(db);
      // A test has shorter times.
      const scale = HEARTBEAT_LOST_MS / this.#lostAfterMs;
      const judgement = judgeLoss(judged, { now: clock.now(), sinceMs: this.#listenedMs() * scale });
      const decided = judgement === null ? NOTHING : await this.#apply(judgement);
      await this.#note(lost);
      const isAlarm = lost.some(({ isInMaintenance }) => !isInMaintenance) || decided.replaced > 0;
      if (judgement?.verdict !== "hold") this.#noteEndOfHold();
      return { errors: [], counts: { lost: lost.length, ...decided }, isRepair: isAlarm };
    } catch (error) {
      this.#since = clock.monotonic();
      throw error;
    } finally {
      this.#noticeAbsence();
    }
  }

  /**
   * How long this server could have received every heartbeat. Call it in the turn that decides: the process
   * may be stopped between turns.
   */
  #listenedMs(): number {
    this.#noticeAbsence();
    return this.#context.clock.monotonic() - this.#since;
  }

  /** No heartbeat could be received between the last call and this one, if too much time has passed. */
  #noticeAbsence(): void {
    const { clock, log } = this.#context;
    const [monotonic, now] = [clock.monotonic(), clock.now()];
    const passedMs = monotonic - this.#last.monotonic;
    const shownMs = now - this.#last.now;
    this.#last = { monotonic, now };
    if (passedMs < AWAY_MS && Math.abs(shownMs - passedMs) < SET_MS) return;
    this.#since = clock.monotonic();
    log.warn(
      { passedMs: Math.round(passedMs), clockMs: Math.round(shownMs) },
      "this server did not run for a while, or its clock was set: no node is marked as unreachable, and nothing is replaced, until it has listened for 30 s",
    );
  }

  async #sayThatItBegins(): Promise<void> {
    if (this.#hasBegun) return;
    const { clock, db, log } = this.#context;
    const isSilent = await hasSilent(db, clock.now() - OVERDUE_MS);
    this.#hasBegun = true;
    if (isSilent)
      log.warn(
        {},
        "nodes did not report while no server ran: nothing is replaced until this server has listened for 30 s",
      );
  }

  /**
   * Writes the decision before anything else, because machines on its nodes may be replaced within seconds.
   */
  async #apply({ verdict, reason, isInformed, nodeIds, silent, expected }: Judgement): Promise<typeof NOTHING> {
    const { clock, db, log } = this.#context;
    if (verdict === "replace") {
      const lost = await markLost(db, nodeIds, clock.now());
      if (lost.length > 0) {
        await db.notify("pools", "");
        log.warn(
          { nodes: lost.map(({ id }) => id), reason },
          "nodes are lost; what can be replaced of them is made on other nodes",
        );
      }
      return { replaced: lost.length, held: 0 };
    }
    const held = await markHeld(db, nodeIds, { reason, isInformed, now: clock.now() });
    if (held.length > 0) {
      const event = { type: "machine.replacementHeld", data: { reason } } as const;
      await noteOnFenced(
        this.#context,
        held.map(({ id }) => id),
        event,
      );
    }
    if (held.length > 0 || this.#loggedAt === null || clock.monotonic() - this.#loggedAt >= REPEAT_MS) {
      this.#loggedAt = clock.monotonic();
      log.error(
        { nodes: nodeIds.length, silent, expected, reason },
        "NOTHING IS REPLACED of nodes that do not report; it resumes when they report, or with `flotilla node replace-lost`",
      );
    }
    return { replaced: 0, held: held.length };
  }

  #noteEndOfHold(): void {
    if (this.#loggedAt === null) return;
    this.#loggedAt = null;
    this.#context.log.warn({}, "machines of nodes that do not report are replaced again");
  }

  async #note(lost: readonly { readonly id: string; readonly isInMaintenance: boolean }[]): Promise<void> {
    await Promise.all(lost.map(({ id }) => this.#context.db.notify("nodes", id)));
    const notes = lost.map(({ id: nodeId, isInMaintenance }) => {
      const type = isInMaintenance ? "machine.nodeMaintained" : "machine.nodeLost";
      return { nodeId, event: { type, data: { nodeId } } } as const;
    });
    await noteOnNodes(this.#context, notes);
  }
}

const NOTHING = { replaced: 0, held: 0 };
