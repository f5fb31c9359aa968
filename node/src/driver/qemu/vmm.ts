/**
 * One VMM process that this node agent watches: spawned by it, or found again after a restart.
 *
 * Owns the control channel and the knowledge of how the process ends. Leaves the guest's channel to index.ts.
 *
 * Always: `exited` resolves once, when the process is gone; after `release` nothing more happens here and the process
 * lives on. A guest that powers off leaves its VMM paused, so that even a node agent that was away learns of it; the
 * VMM is ended from here, after its console has been read.
 *
 * A host's full disk pauses the guest at the write that did not fit; it is resumed once there is room beyond what the
 * database needs, and the write is tried again, so that a full disk costs time and no data.
 */
import type { ChildProcess } from "node:child_process";
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import { isNearlyFull } from "../../disks/disks.ts";
import type { NewVmmGroup, VmmGroup } from "../../host/cgroups.ts";
import type { VmExit, VmRecord } from "../driver.ts";
import { CONSOLE_BYTES, CONSOLE_ID } from "./argv.ts";
import { explainExit, lastWords, shutdownReasonIn } from "./last-words.ts";
import { isAlive, killNow } from "./processes.ts";
import type { Qmp, QmpEvent } from "./qmp.ts";

export interface VmmOptions {
  readonly record: VmRecord;
  /** null when an earlier node agent has spawned it. */
  readonly child: ChildProcess | null;
  /** null: it has none. */
  readonly group: (VmmGroup & Partial<NewVmmGroup>) | null;
  /** Where the VMM's own messages go. Stands in a directory that the VMM may write. */
  readonly logPath: string;
  readonly clock: Clock;
  readonly log: Log;
}

/** How long a process that is not our child may be gone before it is noticed without its control channel's end. */
const WATCH_MS = 1_000;
/** Between the first looks at a process that seems to be ending. */
const QUICK_LOOK_MS = 5;
const QUICK_LOOKS_MAX = 400;
/** From `quit` to SIGKILL. */
const QUIT_MS = 2_000;
const RESUME_MS = 3_000;
const LOG_TAIL_BYTES = 8_192;
/** How long a VMM that is being given up may take to say why. */
const LAST_WORDS_MS = 500;

export class Vmm {
  readonly record: VmRecord;
  readonly group: VmmOptions["group"];
  readonly exited: Promise<VmExit>;
  readonly #child: ChildProcess | null;
  #logPath: string;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #released = new AbortController();
  /** The process is about to end, for all that is known: look closely. */
  readonly #ending = new AbortController();
  #qmp: Qmp | null = null;
  #isEndedByUs = false;
  #shutdownReason: string | null = null;
  #console = "";
  #exit: { readonly code: number | null; readonly signal: string | null } | null = null;
  #hasWarned = false;

  constructor({ record, child, group, logPath, clock, log }: VmmOptions) {
    this.record = record;
    this.group = group;
    this.#child = child;
    this.#logPath = logPath;
    this.#clock = clock;
    this.#log = log.child({ boot: record.bootId, pid: record.pid });
    this.exited = this.#watch();
  }

  /** Takes up the control channel. Resolves when the VM's state is known and what it asks for has begun. */
  async attach(qmp: Qmp): Promise<void> {
    this.#qmp = qmp;
    void qmp.closed.then(() => this.#ending.abort());
    const status = (await qmp.execute("query-status")) as { readonly status?: unknown };
    if (status.status === "io-error") void this.#resumeLater();
    if (status.status === "shutdown" && this.#shutdownReason === null) await this.#end(null);
  }

  /** The guest has ended by itself and the VMM follows. */
  get hasShutDown(): boolean {
    return this.#shutdownReason !== null;
  }

  /** What the guest and the VMM said last; for errors. */
  async lastWords(): Promise<string | null> {
    await this.#readConsole();
    return lastWords(this.#console) ?? lastWords(await this.#readLog());
  }

  /** The same of a VMM that is being given up and may not answer any more. */
  saidLast(): Promise<string | null> {
    return Promise.race([this.lastWords(), this.#clock.sleep(LAST_WORDS_MS).then(() => null)]);
  }

  readonly onEvent = (event: QmpEvent): void => {
    // The first reason is the one: ending the VMM gives another.
    if (event.name === "SHUTDOWN" && this.#shutdownReason === null) void this.#end(String(event.data["reason"]));
    if (event.name === "BLOCK_IO_ERROR" && event.data["action"] === "stop") void this.#resumeLater();
  };

  /** Its boot directory has another name now. */
  moved(bootDirectory: string): void {
    this.#logPath = join(bootDirectory, basename(this.#logPath));
  }

  /** Ends the process and waits until it is gone. */
  async kill(): Promise<void> {
    this.#isEndedByUs = true;
    // Whoever waits for its end waits also when this is the last thing the process does.
    this.#child?.ref();
    killNow(this.record);
    this.#ending.abort();
    await this.exited;
  }

  release(): void {
    this.#released.abort();
    this.#ending.abort();
    this.#qmp?.close();
    this.#child?.removeAllListeners();
  }

  async #watch(): Promise<VmExit> {
    if (this.#child === null) await this.#untilGone();
    else this.#exit = await exitOf(this.#child);
    this.#qmp?.close();
    const [log, isOutOfMemory] = await Promise.all([this.#readLog(), this.group?.hasRunOutOfMemory() ?? false]);
    // Before another VMM of the boot may have one of the same name.
    await this.group?.remove();
    return explainExit({
      isOutOfMemory,
      isEndedByUs: this.#isEndedByUs,
      shutdownReason: this.#shutdownReason,
      exit: this.#exit,
      log,
      console: this.#console,
    });
  }

  /** For a process that is not our child: its control channel ends with it, and /proc says when it is gone. */
  async #untilGone(): Promise<void> {
    for (let quickLooks = 0; isAlive(this.record); ) {
      if (!this.#ending.signal.aborted) {
        await this.#clock.sleep(WATCH_MS, this.#ending.signal);
      } else {
        await this.#clock.sleep(quickLooks < QUICK_LOOKS_MAX ? QUICK_LOOK_MS : WATCH_MS, this.#released.signal);
        quickLooks += 1;
      }
      if (this.#released.signal.aborted) return new Promise(() => {}); // It has not ended, and nobody waits.
    }
  }

  /** The guest has ended; `reason` is null when it did so while nobody watched. */
  async #end(reason: string | null): Promise<void> {
    this.#shutdownReason = reason ?? "guest-shutdown";
    await this.#readConsole();
    if (reason === null) this.#shutdownReason = shutdownReasonIn(this.#console);
    this.#qmp?.execute("quit").catch(() => {});
    await Promise.race([this.exited, this.#clock.sleep(QUIT_MS, this.#released.signal)]);
    if (!this.#released.signal.aborted) killNow(this.record);
  }

  async #resumeLater(): Promise<void> {
    if (!this.#hasWarned) {
      this.#log.error({}, "the machine waits: its disk can not be written, the host's disk is full or broken");
    }
    this.#hasWarned = true;
    do await this.#clock.sleep(RESUME_MS, this.#released.signal);
    while (!this.#released.signal.aborted && (await isNearlyFull(dirname(this.#logPath)).catch(() => false)));
    if (!this.#released.signal.aborted) await this.#qmp?.execute("cont").catch(() => {});
  }

  /** Adds what the guest's console has since the last look; the ring forgets what it has given. */
  async #readConsole(): Promise<void> {
    if (this.#qmp === null) return;
    const text = await this.#qmp
      .execute("ringbuf-read", { device: CONSOLE_ID, size: CONSOLE_BYTES, format: "utf8" })
      .catch((error: unknown) => {
        this.#log.debug({ reason: messageOf(error) }, "the guest's console could not be read");
        return "";
      });
    this.#console = `${this.#console}${String(text)}`.slice(-CONSOLE_BYTES);
  }

  /** The VMM may have put anything in the place of its log, so nothing is followed and nothing is waited for. */
  async #readLog(): Promise<string> {
    try {
      const handle = await open(this.#logPath, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
      try {
        const stat = await handle.stat();
        if (!stat.isFile()) return "";
        const tail = Buffer.alloc(Math.min(stat.size, LOG_TAIL_BYTES));
        const { bytesRead } = await handle.read(tail, 0, tail.length, stat.size - tail.length);
        return tail.toString("utf8", 0, bytesRead);
      } finally {
        await handle.close();
      }
    } catch {
      return "";
    }
  }
}

function exitOf(child: ChildProcess): Promise<{ readonly code: number | null; readonly signal: string | null }> {
  return new Promise((resolve) => {
    child.once("exit", (code, signal) => resolve({ code, signal }));
    child.once("error", () => resolve({ code: 127, signal: null }));
  });
}
