/**
 * A machine's workload on its node: starts it with the machine, reads its output and writes it to the
 * machine's log.
 *
 * Always:
 * - Output is acknowledged to the guest after it is in the log. The guest sends unacknowledged output again,
 *   so neither a crash of the agent nor a broken channel loses or duplicates output.
 * - After a burst, a guest's output is throttled to LOG_BYTES_PER_SECOND by delaying acknowledgements. A full
 *   disk also delays them. At most the guest's window is buffered here, as raw bytes, and one batch of lines.
 * - The end is recorded once: as a line of the log, and as an event unless the machine was to stop. A
 *   workload that ended is not restarted here.
 *
 * Between outputs there is no open file, and no timer unless a line overwrites itself.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import type { MachineSpec } from "@flotilla/contract/link/link";
import type { NewEvent } from "@flotilla/contract/event-types";
import type { Guest, GuestWorkload } from "../../guest/guest.ts";
import type { ImageConfiguration } from "../../images/images.ts";
import type { BootProgress, MachineLog } from "./machine-log.ts";
import { type Batch, WorkloadOutput } from "./workload-output.ts";

/** Rate of lines in the log's format: the two log files are overwritten once in 16 s at most. */
const LOG_BYTES_PER_SECOND = 1024 * 1024;
const LOG_BURST_BYTES = 8 * 1024 * 1024;
/** The least that a write costs of the rate: at most 256 writes a second, which lines then share. */
const WRITE_BYTES_MIN = 4 * 1024;
const RETRY_MS = 1_000;
/** A line that overwrites itself, as a progress bar does, is logged again after so long. */
const PROGRESS_MS = 1_000;
const LAST_OUTPUT_MS = 1_000;

/** Programs that only read commands from their input, which is empty here: they would exit immediately. */
const PROMPTS = ["sh", "ash", "bash", "dash", "zsh", "fish", "python", "python3", "node", "irb", "php", "lua"];

/** The command to run when the machine starts; null for an image that is only an environment to work in. */
export function workloadCommand(spec: MachineSpec, image: ImageConfiguration): readonly string[] | null {
  if (spec.command !== null && spec.command.length > 0) return spec.command;
  const argv = [...image.entrypoint, ...image.command];
  const [program = "", ...args] = argv;
  if (program === "") return null;
  return args.length === 0 && PROMPTS.includes(program.slice(program.lastIndexOf("/") + 1)) ? null : argv;
}

export interface WorkloadOptions {
  readonly machineLog: MachineLog;
  readonly clock: Clock;
  readonly log: Log;
  readonly onEvent: (event: NewEvent) => void;
}

export interface WorkloadRun {
  readonly argv: readonly string[];
  /** The boot's directory name, which marks its lines. */
  readonly boot: string;
  /** Whether the machine is to stop, so that the workload's end needs no event. */
  readonly isEnding: () => boolean;
}

export class Workload {
  readonly #options: WorkloadOptions;
  /** Reads the output of the present guest. */
  #reader: OutputReader | null = null;

  constructor(options: WorkloadOptions) {
    this.#options = options;
  }

  /** Starts the workload in the guest, or continues to read its output. Stops reading the previous guest. */
  async attach(guest: Guest, run: WorkloadRun): Promise<void> {
    await this.release();
    // An earlier agent, or an earlier channel, may have read some of it.
    const progress = await this.#options.machineLog.progressOf(run.boot);
    this.#reader = new OutputReader(this.#options, run, progress);
    await this.#reader.begin(guest);
  }

  /** The guest has ended: resolves when all of its output is in the log, whole lines or not. */
  async finish(): Promise<void> {
    const reader = this.#reader;
    this.#reader = null;
    await reader?.finish();
  }

  /** Stops reading. Output that is not in the log yet is sent again to the next reader. */
  async release(): Promise<void> {
    const reader = this.#reader;
    this.#reader = null;
    await reader?.release();
  }
}

class OutputReader {
  readonly #options: WorkloadOptions;
  readonly #run: WorkloadRun;
  readonly #isOver = new AbortController();
  #guest: Guest | null = null;
  #guestWorkload: GuestWorkload | null = null;
  /** Not in the log yet. */
  readonly #output: WorkloadOutput;
  readonly #offset: number;
  #writing: Promise<void> | null = null;
  #isProgressAwaited = false;
  #isProgressDue = false;
  #tokens = LOG_BURST_BYTES;
  #tokensAt: number;

  constructor(options: WorkloadOptions, run: WorkloadRun, progress: BootProgress) {
    this.#options = options;
    this.#run = run;
    this.#offset = progress.offset;
    this.#output = new WorkloadOutput(run.boot, progress);
    this.#tokensAt = options.clock.monotonic();
  }

  async begin(guest: Guest): Promise<void> {
    this.#guest = guest;
    try {
      this.#guestWorkload = guest.workload({
        argv: this.#run.argv,
        offset: this.#offset,
        onOutput: (offset, bytes) => this.#read(offset, bytes),
        onEnd: (exitCode) => this.#onEnd(exitCode),
      });
      await this.#guestWorkload.started;
    } catch (error) {
      if (!this.#isOver.signal.aborted) this.#options.log.warn({ error }, "the workload could not be started");
    }
  }

  async finish(): Promise<void> {
    // The last output may arrive after the end of the VM.
    await Promise.race([this.#guest?.closed, this.#options.clock.sleep(LAST_OUTPUT_MS, this.#isOver.signal)]);
    this.#output.close();
    this.#writing ??= this.#write();
    // Throttling and retries on a full disk end now.
    this.#isOver.abort();
    await this.#writing;
  }

  async release(): Promise<void> {
    this.#isOver.abort();
    this.#output.clear();
    await this.#writing;
  }

  #read(offset: number, bytes: Buffer): void {
    if (this.#isOver.signal.aborted) return;
    this.#output.add(this.#options.clock.now(), offset, bytes);
    this.#writing ??= this.#write();
  }

  #onEnd(exitCode: number): void {
    if (this.#output.hasEnded || this.#isOver.signal.aborted) return;
    const message = `the workload ended with exit code ${exitCode}`;
    this.#output.end(this.#options.clock.now(), message);
    this.#writing ??= this.#write();
    if (this.#run.isEnding()) return;
    this.#options.onEvent(
      exitCode === 0
        ? { type: "machine.workloadEnded", data: {} }
        : { type: "machine.workloadFailed", data: { exitCode } },
    );
  }

  /** Writes until no complete line is left. */
  async #write(): Promise<void> {
    const { signal } = this.#isOver;
    // Output that arrives in this turn of the event loop goes into the same batch.
    await Promise.resolve();
    for (let batch = this.#take(); batch !== null; batch = this.#take()) {
      if (!(await this.#store(batch))) break;
      const waitMs = this.#throttleMs(Math.max(batch.lines.byteLength, WRITE_BYTES_MIN));
      if (waitMs > 0) await this.#options.clock.sleep(waitMs, signal);
      if (batch.bytes > 0 && !signal.aborted) this.#guestWorkload?.acknowledge(batch.offset, batch.bytes);
    }
    this.#writing = null;
    if (!signal.aborted && !this.#isProgressAwaited && this.#output.overwritesItself) void this.#awaitProgress();
  }

  #take(): Batch | null {
    const withOverwritten = this.#isProgressDue;
    this.#isProgressDue = false;
    return this.#output.take({ withOverwritten });
  }

  async #awaitProgress(): Promise<void> {
    const { signal } = this.#isOver;
    this.#isProgressAwaited = true;
    await this.#options.clock.sleep(PROGRESS_MS, signal);
    this.#isProgressAwaited = false;
    if (signal.aborted) return;
    this.#isProgressDue = true;
    this.#writing ??= this.#write();
  }

  /** Whether the lines are in the log. Retries until they are, or until this reader is over. */
  async #store({ lines }: Batch): Promise<boolean> {
    const { clock, machineLog, log } = this.#options;
    const { signal } = this.#isOver;
    for (;;) {
      try {
        await machineLog.append(lines);
        return true;
      } catch (error) {
        log.warn({ error }, "the machine's log could not be written");
        if (signal.aborted) return false;
        await clock.sleep(RETRY_MS, signal);
      }
    }
  }

  /** How long to delay the acknowledgement of this many bytes, in milliseconds. */
  #throttleMs(bytes: number): number {
    const now = this.#options.clock.monotonic();
    const refill = ((now - this.#tokensAt) * LOG_BYTES_PER_SECOND) / 1000;
    this.#tokens = Math.min(LOG_BURST_BYTES, this.#tokens + refill) - bytes;
    this.#tokensAt = now;
    return this.#tokens >= 0 ? 0 : (-this.#tokens * 1000) / LOG_BYTES_PER_SECOND;
  }
}
