/**
 * A machine's workload, as its node sees it: started with the machine, heard, and written to the machine's log.
 *
 * Always:
 * - the guest is told that output is safe after it stands in the log, so neither an agent that dies nor a channel that
 *   breaks loses or doubles any of it: what was not safe is sent again;
 * - a guest that says a lot is slowed to LOG_BYTES_PER_SECOND after a burst, by taking its words later; a full disk does
 *   the same. Held here is no more than the guest's window;
 * - its end is said once: as a line of the log, and as an event when nobody asked for it. It is not started again: what
 *   must run again is started by the workload itself, or by whoever hears that it ended.
 *
 * Idle between the words of the workload: no timer, no open file.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import type { MachineSpec } from "@flotilla/contract/link";
import type { EventLevel } from "@flotilla/contract/machines";
import type { Guest, GuestWorkload } from "../guest/guest.ts";
import type { ImageConfiguration } from "../images/images.ts";
import { type LogKind, logLine, type MachineLog } from "./machine-log.ts";

/** Of a longer line the rest stands on the next ones. */
const LINE_BYTES_MAX = 16 * 1024;
/** What is written at once, and told to the guest in one message. */
const BATCH_BYTES = 128 * 1024;
/** As the log has them: two whole logs' worth of lines pass in 16 s. */
const LOG_BYTES_PER_SECOND = 1024 * 1024;
const LOG_BURST_BYTES = 8 * 1024 * 1024;
const RETRY_MS = 1_000;
const LAST_OUTPUT_MS = 1_000;

/** Programs that only wait for somebody's words. Nobody gives a workload any, so they would end at once. */
const PROMPTS = ["sh", "ash", "bash", "dash", "zsh", "fish", "python", "python3", "node", "irb", "php", "lua"];

/** What runs from the machine's start on; null: nothing, as with an image that is only a place to work in. */
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
  /** The boot's directory name: what its lines are marked with. */
  readonly boot: string;
  /** The machine is to end, so its workload's end needs no event. */
  readonly isEnding: () => boolean;
}

/** Lines that wait to be written. */
interface Batch {
  readonly lines: Buffer;
  /** Of the output behind them, and how many bytes of the guest's they are. */
  readonly offset: number;
  readonly bytes: number;
}

export class Workload {
  readonly #options: WorkloadOptions;
  /** Each guest that is heard, and nobody before it. */
  #reader: OutputReader | null = null;

  constructor(options: WorkloadOptions) {
    this.#options = options;
  }

  /** Starts the workload in the guest, or goes on hearing it. A guest that is lost is heard no more. */
  async attach(guest: Guest, run: WorkloadRun): Promise<void> {
    await this.release();
    // An earlier agent, or an earlier channel, may have heard some of it.
    const progress = await this.#options.machineLog.progressOf(run.boot);
    this.#reader = new OutputReader(this.#options, run, progress);
    await this.#reader.begin(guest);
  }

  /** The guest has ended: resolves when all that it said stands in the log, whole lines or not. */
  async finish(): Promise<void> {
    const hearing = this.#reader;
    this.#reader = null;
    await hearing?.finish();
  }

  /** Lets go: what does not stand in the log yet is heard again by whoever comes next. */
  async release(): Promise<void> {
    const hearing = this.#reader;
    this.#reader = null;
    await hearing?.release();
  }
}

class OutputReader {
  readonly #options: WorkloadOptions;
  readonly #run: WorkloadRun;
  readonly #isOver = new AbortController();
  #guest: Guest | null = null;
  #guestWorkload: GuestWorkload | null = null;
  #hasEnded: boolean;
  /** Of the next byte to come, and of those that stand in a line. */
  #readOffset: number;
  #lineOffset: number;
  #partial = "";
  #batches: Batch[] = [];
  /** The batch that is being filled. */
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
    // A VM's end and its last words are seen apart.
    await Promise.race([this.#guest?.closed, this.#options.clock.sleep(LAST_OUTPUT_MS, this.#isOver.signal)]);
    this.#endLine();
    // Whoever waits for room, or for a disk that is full, is not waited for.
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

  /** What stands behind the last line break becomes a line. */
  #endLine(): void {
    if (this.#partial !== "") this.#addOutput(this.#partial, this.#partial.length);
    this.#partial = "";
    if (this.#text !== "" || this.#batches.length > 0) this.#writing ??= this.#write();
  }

  /** `bytes`: of the guest's. A line that is too long becomes several. */
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

  /** As bytes, because a text that was put together line by line takes many times its size. */
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

  /** Writes what waits, as long as something does. */
  async #write(): Promise<void> {
    const { clock, machineLog, log } = this.#options;
    const { signal } = this.#isOver;
    // What the present turn of the event loop still brings goes along.
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

  /** How long a guest waits that has said so much. */
  #throttleMs(bytes: number): number {
    const now = this.#options.clock.monotonic();
    const refill = ((now - this.#tokensAt) * LOG_BYTES_PER_SECOND) / 1000;
    this.#tokens = Math.min(LOG_BURST_BYTES, this.#tokens + refill) - bytes;
    this.#tokensAt = now;
    return this.#tokens >= 0 ? 0 : (-this.#tokens * 1000) / LOG_BYTES_PER_SECOND;
  }
}
