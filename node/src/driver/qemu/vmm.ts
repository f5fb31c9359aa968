/**
 * A VMM process that this node agent watches: spawned by it, or found again after a restart.
 *
 * Owns the control channel and determines how the process ended. Leaves the guest's channel to index.ts.
 *
 * Always:
 * - `exited` resolves once, when the process is gone;
 * - after `release` nothing more happens here, and the process lives on;
 * - a guest that powers off leaves its VMM paused, so that even an agent that was not running learns of it;
 *   the VMM is ended from here after its console was read;
 * - a full disk of the host pauses the guest at the failed write. The guest is resumed once there is more
 *   space than the database needs, and the write is repeated: a full disk costs time but no data.
 */
import type { ChildProcess } from "node:child_process";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import { mayGrowAgain } from "../../disks/disks.ts";
import type { NewVmmGroup, VmmGroup } from "../../host/cgroups.ts";
import type { FenceLease } from "../../host/fence-lease.ts";
import { SuspendRefused, type VmExit, type VmmExcess, type VmRecord } from "../driver.ts";
import { CONSOLE_BYTES, CONSOLE_ID } from "./argv.ts";
import { explainExit, lastMessage, shutdownReasonIn } from "./exit-reason.ts";
import { VmmFence } from "./fence.ts";
import { isAlive, killNow } from "./processes.ts";
import { type Qmp, type QmpEvent, textOf } from "./qmp.ts";
import type { VmmOutput } from "./vmm-output.ts";

export interface VmmOptions {
  readonly record: VmRecord;
  /** null when an earlier node agent spawned it. */
  readonly child: ChildProcess | null;
  /** null: it has none. */
  readonly group: (VmmGroup & Partial<NewVmmGroup>) | null;
  /** Its boot's, which is writable for the VMM. */
  readonly directory: string;
  /** null: it cannot be read. */
  readonly output: VmmOutput | null;
  readonly lease: FenceLease;
  readonly clock: Clock;
  readonly log: Log;
}

/** How long the end of a process that is not our child may go unnoticed if its control channel stays open. */
const WATCH_MS = 1_000;
/** Poll interval for a process that seems to be ending. */
const QUICK_POLL_MS = 5;
const QUICK_POLLS_MAX = 400;
/** Time from `quit` to SIGKILL. */
const QUIT_MS = 2_000;
const RESUME_MS = 3_000;
/** The reasons that QEMU has: `guest-shutdown`, `host-qmp-quit` and others. */
const REASON = /^[a-z-]{1,40}$/;
/** How long to wait for the last output of a VMM that is about to be killed. */
const LAST_OUTPUT_MS = 500;

export class Vmm {
  readonly record: VmRecord;
  readonly group: VmmOptions["group"];
  readonly exited: Promise<VmExit>;
  readonly fence: VmmFence;
  /** Called when the guest has powered off, before its VMM ends; may take QUIT_MS. */
  beforeQuit: (() => Promise<unknown>) | null = null;
  readonly #child: ChildProcess | null;
  readonly #output: VmmOutput | null;
  #directory: string;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #released = new AbortController();
  /** Aborted when the process is about to end, as far as known: polls quickly from then on. */
  readonly #ending = new AbortController();
  #qmp: Qmp | null = null;
  #isEndedByUs = false;
  #excess: VmmExcess | null = null;
  #shutdownReason: string | null = null;
  #console = "";
  #exit: { readonly code: number | null; readonly signal: string | null } | null = null;
  /** Paused at a write that failed. */
  #isOutOfSpace = false;
  #onDiskPause: ((isPaused: boolean) => void) | null = null;
  /** Paused by `pauseFor`: nothing else may resume it. */
  #isHeld = false;

  constructor({ record, child, group, directory, output, lease, clock, log }: VmmOptions) {
    this.record = record;
    this.group = group;
    this.#child = child;
    this.#directory = directory;
    this.#output = output;
    this.#clock = clock;
    this.#log = log.child({ boot: record.bootId, pid: record.pid });
    this.fence = new VmmFence({ lease, qmp: () => this.#qmp, clock, log: this.#log });
    this.exited = this.#watch();
    void output?.excess.then((bytes) => this.#endFor({ cause: "output", bytes }));
  }

  /**
   * Starts using the control channel. Resolves when the VM's state is known and the reaction to it has begun.
   */
  async attach(qmp: Qmp, { staysPaused = false } = {}): Promise<void> {
    this.#qmp = qmp;
    this.fence.connected();
    this.#isHeld = staysPaused;
    void qmp.closed.then(() => this.#ending.abort());
    const status = await statusOf(qmp);
    if (status === "io-error") void this.#resumeLater();
    if (status === "shutdown" && this.#shutdownReason === null) await this.#end(null);
    // An earlier agent ended while it saved or loaded the guest's memory. Memory that is saved or not loaded
    // completely is in the machine's journal, and its VMM is killed instead (machines/plan.ts).
    if (status === "paused" && !staysPaused) await qmp.execute("cont");
    if (status === "running" && staysPaused) await this.#stop(qmp);
  }

  /** The control channel. Throws when it is closed. */
  get control(): Qmp {
    if (this.#qmp === null) throw new Error("the VMM's control channel is closed");
    return this.#qmp;
  }

  /** Whether the guest has shut down; the VMM ends soon after. */
  get hasShutDown(): boolean {
    return this.#shutdownReason !== null;
  }

  /** The last message of the guest or the VMM, for errors. */
  async lastOutput(): Promise<string | null> {
    await this.#readConsole();
    return lastMessage(this.#console) ?? lastMessage(this.#output?.text ?? "");
  }

  /** The same, for a VMM that may not answer any more: null after LAST_OUTPUT_MS. */
  lastOutputIfAny(): Promise<string | null> {
    return Promise.race([this.lastOutput(), this.#clock.sleep(LAST_OUTPUT_MS).then(() => null)]);
  }

  readonly onEvent = (event: QmpEvent): void => {
    // Only the first reason counts: ending the VMM causes another.
    if (event.name === "SHUTDOWN" && this.#shutdownReason === null) void this.#end(reasonIn(event));
    if (event.name === "BLOCK_IO_ERROR" && event.data["action"] === "stop") void this.#resumeLater();
  };

  /** Whether the guest is paused at a write that the host's disk did not take. */
  get isOutOfSpace(): boolean {
    return this.#isOutOfSpace;
  }

  /** As that of a Vm. */
  watchDiskPause(onChange: (isPaused: boolean) => void): void {
    this.#onDiskPause = onChange;
    if (this.#isOutOfSpace) onChange(true);
  }

  /** Pauses the guest until `unpause`. Rejects, and the guest runs on, when it cannot be paused. */
  async pause(): Promise<void> {
    const qmp = this.control;
    const status = await statusOf(qmp);
    if (status !== "running") throw new Error(`the VM does not run: it is ${status}`);
    this.#isHeld = true;
    try {
      await this.#stop(qmp);
    } catch (error) {
      await this.unpause().catch(() => undefined);
      throw error;
    }
  }

  async unpause(): Promise<void> {
    this.#isHeld = false;
    await this.control.execute("cont");
  }

  async #stop(qmp: Qmp): Promise<void> {
    await qmp.execute("stop");
    const paused = await statusOf(qmp);
    if (paused !== "paused") throw new Error(`the VM could not be paused: it is ${paused}`);
  }

  /** Its boot directory was renamed. */
  moved(bootDirectory: string): void {
    this.#directory = bootDirectory;
  }

  /**
   * Has `work` do something with the guest paused. Leaves it paused when `work` resolves; otherwise the guest
   * runs on, unless it was paused before. Rejects with SuspendRefused when the guest does not run.
   */
  async pauseFor(work: (qmp: Qmp) => Promise<void>): Promise<void> {
    const qmp = this.control;
    if (this.#isHeld) return await work(qmp);
    const status = await statusOf(qmp);
    if (status !== "running") throw new SuspendRefused("conflict", `the machine's VM does not run: it is ${status}`);
    this.#isHeld = true;
    try {
      await this.#stop(qmp);
      await work(qmp);
    } catch (error) {
      this.#isHeld = false;
      await qmp.execute("cont").catch((reason: unknown) => {
        if (isAlive(this.record)) this.#log.error({ reason: messageOf(reason) }, "a paused VM could not be resumed");
      });
      throw error;
    }
  }

  /** Kills the process and waits until it is gone. */
  async kill(): Promise<void> {
    this.#isEndedByUs = true;
    // Keeps this process alive until the child has ended.
    this.#child?.ref();
    killNow(this.record);
    this.#ending.abort();
    await this.exited;
  }

  /** Ends a VMM that takes more of the host than it may. */
  async #endFor(excess: VmmExcess): Promise<void> {
    if (this.#excess !== null || this.#released.signal.aborted || !isAlive(this.record)) return;
    this.#excess = excess;
    this.#log.warn({ ...excess, output: lastMessage(this.#output?.text ?? "") }, "a VMM is ended: it prints too much");
    await this.kill();
  }

  /** Resolves when the process that has ended was read to its end. */
  async #lastPrinted(): Promise<void> {
    await Promise.race([this.#output?.ended, this.#clock.sleep(LAST_OUTPUT_MS, this.#released.signal)]);
    this.#output?.close();
  }

  release(): void {
    this.#released.abort();
    this.#ending.abort();
    this.fence.close();
    this.#qmp?.close();
    this.#output?.close();
    this.#child?.removeAllListeners();
  }

  async #watch(): Promise<VmExit> {
    if (this.#child === null) await this.#untilGone();
    else this.#exit = await exitOf(this.#child);
    const fencedAt = this.fence.endedAt();
    this.fence.close();
    this.#qmp?.close();
    const [isOutOfMemory] = await Promise.all([this.group?.hasRunOutOfMemory() ?? false, this.#lastPrinted()]);
    // Before another VMM of this boot may create a group of the same name.
    await this.group?.remove();
    return explainExit({
      isOutOfMemory,
      fencedAt,
      isEndedByUs: this.#isEndedByUs,
      shutdownReason: this.#shutdownReason,
      exit: this.#exit,
      excess: this.#excess,
      log: this.#output?.text ?? "",
      console: this.#console,
    });
  }

  /**
   * Waits for a process that is not our child: its control channel ends with it, and /proc shows when it is
   * gone.
   */
  async #untilGone(): Promise<void> {
    for (let quickPolls = 0; isAlive(this.record); ) {
      if (!this.#ending.signal.aborted) {
        await this.#clock.sleep(WATCH_MS, this.#ending.signal);
      } else {
        await this.#clock.sleep(quickPolls < QUICK_POLLS_MAX ? QUICK_POLL_MS : WATCH_MS, this.#released.signal);
        quickPolls += 1;
      }
      if (this.#released.signal.aborted) return new Promise(() => {}); // Released: never resolves.
    }
  }

  /** The guest has shut down; `reason` is null if no agent observed it. */
  async #end(reason: string | null): Promise<void> {
    this.#shutdownReason = reason ?? "guest-shutdown";
    await this.#readConsole();
    if (reason === null) this.#shutdownReason = shutdownReasonIn(this.#console);
    const prepared = this.beforeQuit?.().catch((error: unknown) =>
      this.#log.warn({ reason: messageOf(error) }, "what the guest wrote last is not known"),
    );
    await Promise.race([prepared, this.#clock.sleep(QUIT_MS, this.#released.signal)]);
    this.#qmp?.execute("quit").catch(() => {});
    await Promise.race([this.exited, this.#clock.sleep(QUIT_MS, this.#released.signal)]);
    if (!this.#released.signal.aborted) killNow(this.record);
  }

  async #resumeLater(): Promise<void> {
    // Several writes may fail before the guest is paused.
    if (this.#isOutOfSpace) return;
    this.#isOutOfSpace = true;
    this.#log.error(
      {},
      "the machine is paused, because the host's disk is full or failing; free disk space to resume it",
    );
    this.#onDiskPause?.(true);
    do await this.#clock.sleep(RESUME_MS, this.#released.signal);
    while (!this.#released.signal.aborted && !(await mayGrowAgain(this.#directory).catch(() => true)));
    this.#isOutOfSpace = false;
    if (this.#released.signal.aborted) return;
    this.#onDiskPause?.(false);
    if (!this.#isHeld) await this.#qmp?.execute("cont").catch(() => {});
  }

  /** Appends the guest's console output since the last call; reading empties the ring buffer. */
  async #readConsole(): Promise<void> {
    if (this.#qmp === null) return;
    const text = await this.#qmp
      .execute("ringbuf-read", { device: CONSOLE_ID, size: CONSOLE_BYTES, format: "utf8" })
      .catch((error: unknown) => {
        this.#log.debug({ reason: messageOf(error) }, "the guest's console could not be read");
        return "";
      });
    this.#console = `${this.#console}${textOf(text) ?? ""}`.slice(-CONSOLE_BYTES);
  }
}

/** Why a VMM shuts down. One that was taken over by its guest may say anything. */
function reasonIn({ data }: QmpEvent): string {
  const reason = textOf(data["reason"]);
  return reason !== null && REASON.test(reason) ? reason : "unknown";
}

async function statusOf(qmp: Qmp): Promise<unknown> {
  return ((await qmp.execute("query-status")) as { readonly status?: unknown }).status;
}

function exitOf(child: ChildProcess): Promise<{ readonly code: number | null; readonly signal: string | null }> {
  return new Promise((resolve) => {
    child.once("exit", (code, signal) => resolve({ code, signal }));
    child.once("error", () => resolve({ code: 127, signal: null }));
  });
}
