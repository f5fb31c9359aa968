/**
 * A machine's workload on its node: starts it with the machine, reads its output and writes it to the machine's log.
 *
 * Always:
 * - Output is acknowledged to the guest after it is in the log. The guest sends unacknowledged output again, so neither a
 *   crash of the agent nor a broken channel loses or duplicates output.
 * - After a burst, a guest's output is throttled to LOG_BYTES_PER_SECOND by delaying acknowledgements. A full disk also
 *   delays them. At most the guest's window is buffered here.
 * - The end is recorded once: as a line of the log, and as an event unless the machine was to stop. A workload that ended is
 *   not restarted here.
 *
 * Between outputs there is no timer and no open file.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import type { MachineSpec } from "@flotilla/contract/link";
import type { EventLevel } from "@flotilla/contract/machines";
import type { Guest, GuestWorkload } from "../guest/guest.ts";
import type { ImageConfiguration } from "../images/images.ts";
import { type LogKind, logLine, type MachineLog } from "./machine-log.ts";

/** A longer line is split. */
const LINE_BYTES_MAX = 16 * 1024;
/** Written, and acknowledged to the guest, together. */
const BATCH_BYTES = 128 * 1024;
/** Of lines in the log's format: the two log files are overwritten once in 16 s at most. */
const LOG_BYTES_PER_SECOND = 1024 * 1024;
const LOG_BURST_BYTES = 8 * 1024 * 1024;
const RETRY_MS = 1_000;
const LAST_OUTPUT_MS = 1_000;

/** Programs that only read commands from standard input. A workload's is empty, so they would exit immediately. */
const PROMPTS = ["sh", "ash", "bash", "dash", "zsh", "fish", "python", "python3", "node", "irb", "php", "lua"];

/** The command to run when the machine starts; null: none, for an image that is only an environment to work in. */
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
  readonly onEvent: (level: EventLevel, message: string) => void;
}

export interface WorkloadRun {
  readonly argv: readonly string[];
  /** The boot's directory name, which marks its lines. */
  readonly boot: string;
  /** Whether the machine is to stop, so that the workload's end needs no event. */
  readonly isEnding: () => boolean;
}

/** Lines that are queued to be written. */
interface Batch {
  readonly lines: Buffer;
  /** Offset of the output after them, and how many bytes of output they are. */
  readonly offset: number;
  readonly bytes: number;
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
  #hasEnded: boolean;
  /** Offsets of the next byte to come, and of the end of the last complete line. */
  #readOffset: number;
  #lineOffset: number;
  #partial = "";
  #batches: Batch[] = [];
  /** The batch being filled. */
  #text = "";
  #textBytes = 0;
  #writing: Promise<void> | null = null;
  #tokens = LOG_BURST_BYTES;
  #tokensAt: number;

  constructor(options: WorkloadOptions, run: WorkloadRun, progress: { offset: number; hasEnded: boolean }) {
    this.#options = options;
    this.#run = run;
    this.#readOffset = progress.offset;
    this.#lineOffset = progress.offset;
    this.#hasEnded = progress.hasEnded;
    this.#tokensAt = options.clock.monotonic();
  }

  async begin(guest: Guest): Promise<void> {
    this.#guest = guest;
    try {
      this.#guestWorkload = guest.workload({
        argv: this.#run.argv,
        offset: this.#readOffset,
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
    this.#endLine();
    // Throttling and retries on a full disk end now.
    this.#isOver.abort();
    await this.#writing;
  }

  async release(): Promise<void> {
    this.#isOver.abort();
    this.#batches = [];
    this.#text = "";
    await this.#writing;
  }

  #read(offset: number, bytes: Buffer): void {
    if (this.#isOver.signal.aborted) return;
    const lost = offset - this.#readOffset;
    if (lost > 0) {
      this.#endLine();
      this.#lineOffset = offset;
      this.#add("note", `${lost} bytes of the workload's output were lost: no reader could take them`, 0);
    }
    this.#readOffset = offset + bytes.byteLength;
    const lines = `${this.#partial}${bytes.toString("latin1")}`.split("\n");
    this.#partial = lines.pop() ?? "";
    for (const line of lines) this.#addOutput(line, line.length + 1);
    while (this.#partial.length >= LINE_BYTES_MAX) {
      this.#addOutput(this.#partial.slice(0, LINE_BYTES_MAX), LINE_BYTES_MAX);
      this.#partial = this.#partial.slice(LINE_BYTES_MAX);
    }
    this.#writing ??= this.#write();
  }

  #onEnd(exitCode: number): void {
    if (this.#hasEnded || this.#isOver.signal.aborted) return;
    this.#endLine();
    this.#hasEnded = true;
    const message = `the workload ended with exit code ${exitCode}`;
    this.#add("end", message, 0);
    this.#writing ??= this.#write();
    if (!this.#run.isEnding()) this.#options.onEvent(exitCode === 0 ? "info" : "warn", message);
  }

  /** The text after the last line break becomes a line. */
  #endLine(): void {
    if (this.#partial !== "") this.#addOutput(this.#partial, this.#partial.length);
    this.#partial = "";
    if (this.#text !== "" || this.#batches.length > 0) this.#writing ??= this.#write();
  }

  /** `bytes`: of output. A line that is too long becomes several. */
  #addOutput(line: string, bytes: number): void {
    let rest = line;
    while (rest.length > LINE_BYTES_MAX) {
      this.#addOutput(rest.slice(0, LINE_BYTES_MAX), LINE_BYTES_MAX);
      rest = rest.slice(LINE_BYTES_MAX);
    }
    const left = bytes - (line.length - rest.length);
    this.#lineOffset += left;
    this.#add(this.#hasEnded ? "after" : "output", rest.endsWith("\r") ? rest.slice(0, -1) : rest, left);
  }

  #add(kind: LogKind, text: string, bytes: number): void {
    this.#text += logLine(this.#options.clock.now(), this.#run.boot, this.#lineOffset, kind, text);
    this.#textBytes += bytes;
    if (this.#text.length >= BATCH_BYTES) this.#closeBatch();
  }

  /** As bytes, because a string that was concatenated line by line takes many times its size. */
  #closeBatch(): void {
    if (this.#text === "") return;
    const lines = Buffer.from(this.#text, "latin1");
    this.#batches.push({ lines, offset: this.#lineOffset, bytes: this.#textBytes });
    this.#text = "";
    this.#textBytes = 0;
  }

  #nextBatch(): Batch | undefined {
    if (this.#batches.length === 0) this.#closeBatch();
    return this.#batches.shift();
  }

  /** Writes until the queue is empty. */
  async #write(): Promise<void> {
    const { clock, machineLog, log } = this.#options;
    const { signal } = this.#isOver;
    // Output that arrives in this turn of the event loop goes into the same batch.
    await Promise.resolve();
    for (let batch = this.#nextBatch(); batch !== undefined; batch = this.#nextBatch()) {
      try {
        await machineLog.append(batch.lines);
      } catch (error) {
        log.warn({ error }, "the machine's log could not be written");
        if (signal.aborted) break;
        this.#batches.unshift(batch);
        await clock.sleep(RETRY_MS, signal);
        continue;
      }
      const waitMs = this.#throttleMs(batch.lines.byteLength);
      if (waitMs > 0) await clock.sleep(waitMs, signal);
      if (batch.bytes > 0 && !signal.aborted) this.#guestWorkload?.acknowledge(batch.offset, batch.bytes);
    }
    this.#writing = null;
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
