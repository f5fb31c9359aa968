/**
 * Watches whether the agent of a machine's guest answers, and acts when it does not.
 *
 * responsiveness.ts decides. A silent agent is an event, is reported, and ends what waits for it. When it
 * counts as hung, the machine is ended and the restart policy applies, as for one that crashed.
 *
 * Always:
 * - A question is one message on the guest's channel, and there is at most one without an answer.
 * - The processor time of a VM is read only when its guest has not answered until the next look: many guests
 *   are asked at the same moment.
 * - After the event of a silence comes one that the agent answers again, that the machine ended or moved, or
 *   that another VMM has its guest.
 *
 * Nothing of it is on the disk: the next agent connects to each guest, and ends one that does not answer.
 */
import type { Log } from "@flotilla/base/log";
import type { NewEvent } from "@flotilla/contract/event-types";
import type { ProcessorTime } from "../driver/driver.ts";
import type { Guest } from "../guest/guest.ts";
import type { HeldVm } from "./held-vm.ts";
import type { Journal } from "./journal.ts";
import type { Leaving } from "./leaving.ts";
import type { SupervisorDeps } from "./machine-deps.ts";
import type { Replacing } from "./replacing.ts";
import { countedMs, type Excuse, judge, LOOK_MS } from "./responsiveness.ts";

/** The parts of a machine that are looked at, and what is done with it. */
interface WatchedMachine {
  readonly held: HeldVm;
  readonly journal: Journal;
  readonly leaving: Leaving;
  readonly replacing: Replacing | null;
  readonly isActing: boolean;
  readonly deps: SupervisorDeps;
  readonly log: Log;
  readonly wake: () => void;
  event(event: NewEvent): void;
  changed(): void;
  crashed(reason: string, silentMs: number): void;
}

/** Why nothing is expected of its guest; null: it is to answer. */
export function excuseOf({
  held,
  journal,
  leaving,
  replacing,
  isActing,
  deps,
}: Pick<WatchedMachine, "held" | "journal" | "leaving" | "replacing" | "isActing" | "deps">): Excuse | null {
  if (held.state !== "configured" || journal.desired !== "running" || held.isEnding) return "notRunning";
  if (replacing !== null) return "replacing";
  if (isActing) return "action";
  if (leaving.isUnderWay) return "leaving";
  if (held.diskPause.reason !== null) return "paused";
  return deps.hostStop.isStopping ? "hostStop" : null;
}

export class GuestWatch {
  readonly #machine: WatchedMachine;
  #guest: Guest | null = null;
  #received = 0;
  #quietMs = 0;
  #askedMs: number | null = null;
  #ranMs = 0;
  /** At the last look. */
  #processorTime: ProcessorTime | null = null;
  /** Epoch milliseconds of the question. */
  #askedAt = 0;
  /** The guest that has a question without an answer. */
  #asking: Guest | null = null;
  /** Whose agent does not answer, and since when. */
  #silence: { readonly guest: Guest; readonly since: number } | null = null;
  readonly #waiting = new Set<(reason: string) => void>();

  constructor(machine: WatchedMachine) {
    this.#machine = machine;
  }

  /** Epoch milliseconds since which the agent does not answer; null: it does, as far as is known. */
  get silentSince(): number | null {
    const silence = this.#silence;
    return silence !== null && silence.guest === this.#machine.held.vm?.guest ? silence.since : null;
  }

  /** Why no command can run, for users; null: the agent answers, as far as is known. */
  get reason(): string | null {
    const since = this.silentSince;
    if (since === null) return null;
    return `the machine's agent has not answered since ${new Date(since).toISOString()}; a start restarts the machine`;
  }

  /** Calls back, once, when the agent does not answer any more. Returns what cancels that. */
  onSilent(end: (reason: string) => void): () => void {
    this.#waiting.add(end);
    return () => void this.#waiting.delete(end);
  }

  /** Called every LOOK_MS. */
  look(): void {
    const excuse = excuseOf(this.#machine);
    const guest = this.#machine.held.vm?.guest ?? null;
    if (excuse !== null || guest !== this.#guest) this.#begin(guest);
    else this.#count();
    const { quietMs, ranMs } = { quietMs: this.#quietMs, ranMs: this.#ranMs };
    const { verdict, why } = judge({ excuse, quietMs, askedMs: this.#askedMs, ranMs });
    switch (verdict) {
      case "notJudged":
      case "answers":
      case "wait":
        return;
      case "ask":
        return this.#ask();
      case "silent":
        return this.#silent(why);
      case "hung":
        return this.#hung();
    }
  }

  /** It has all its time again. */
  #begin(guest: Guest | null): void {
    this.#guest = guest;
    this.#received = guest?.received ?? 0;
    this.#quietMs = 0;
    this.#askedMs = null;
    this.#ranMs = 0;
    this.#processorTime = null;
  }

  #count(): void {
    const { vm } = this.#machine.held;
    if (vm === null) return;
    if (vm.guest.received !== this.#received) {
      this.#begin(vm.guest);
      return this.#answered();
    }
    this.#quietMs += LOOK_MS;
    if (this.#askedMs === null) return;
    const now = vm.processorTime?.() ?? null;
    const before = this.#processorTime;
    const since = now === null || before === null ? null : difference(now, before);
    this.#processorTime = now;
    this.#askedMs += countedMs(since);
    this.#ranMs += since?.ranMs ?? 0;
  }

  #ask(): void {
    const { held, deps } = this.#machine;
    const { vm } = held;
    if (vm === null) return;
    this.#askedMs = 0;
    this.#askedAt = deps.clock.now();
    // A guest may send other messages and never answer.
    if (this.#asking === vm.guest) return;
    const { guest } = vm;
    this.#asking = guest;
    const answered = (): void => {
      if (this.#asking === guest) this.#asking = null;
    };
    guest.ping().then(answered, answered);
  }

  #answered(): void {
    const { deps, log } = this.#machine;
    const since = this.silentSince;
    if (since === null) return;
    const seconds = Math.max(1, Math.round((deps.clock.now() - since) / 1000));
    log.info({ seconds }, "the guest's agent answers again");
    this.#silence = null;
    this.#machine.event({ type: "machine.responsive", data: { seconds } });
    this.#machine.changed();
  }

  #silent(why: string): void {
    const { held, log } = this.#machine;
    if (held.vm === null || this.silentSince !== null) return;
    log.warn({ askedMs: this.#askedMs, ranMs: this.#ranMs }, why);
    this.#silence = { guest: held.vm.guest, since: this.#askedAt };
    this.#machine.event({ type: "machine.unresponsive", data: {} });
    this.#machine.changed();
    const reason = this.reason ?? why;
    for (const end of [...this.#waiting]) end(reason);
  }

  #hung(): void {
    const { held, wake, deps } = this.#machine;
    const silentMs = deps.clock.now() - this.#askedAt;
    held.state = "unreachable";
    this.#begin(null);
    this.#silence = null;
    this.#machine.crashed(`the machine's agent has not answered for ${Math.round(silentMs / 1000)} s`, silentMs);
    wake();
  }
}

/** What a VM has had between two looks. Threads may have ended since. */
const difference = (now: ProcessorTime, before: ProcessorTime): ProcessorTime => ({
  ranMs: Math.max(0, now.ranMs - before.ranMs),
  waitedMs: Math.max(0, now.waitedMs - before.waitedMs),
});
