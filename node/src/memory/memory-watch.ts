/**
 * Which pages of a VMM's guest memory have changed while the guest runs: the program
 * node/native/memory-watch.c, and its requests.
 *
 * Always: the watch ends with the program, which ends with this process. A program that fails or is silent
 * ends the watch, and its caller sends the memory in another way.
 */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import type { Clock } from "@flotilla/base/clock";
import { BytesReader, type Extent } from "../images/blocks.ts";
import type { MemoryRange } from "./process-pages.ts";

const ANSWER_MS = 10_000;
/** As many runs as an answer may have: each is followed by a page that is not in it. */
const RUNS_MAX = 2 ** 24;
const ROUND = Buffer.from("r");
const MESSAGE_BYTES_MAX = 4096;

export interface WatchedProcess {
  readonly program: string;
  readonly pid: number;
  readonly range: MemoryRange;
  readonly clock: Clock;
}

type Program = ChildProcessByStdio<Writable, Readable, Readable>;

export class MemoryRounds {
  readonly #program: Program;
  readonly #reader: BytesReader;
  readonly #bytes: number;
  readonly #clock: Clock;
  #message = "";

  private constructor(program: Program, { range, clock }: WatchedProcess) {
    this.#program = program;
    this.#bytes = range.bytes;
    this.#clock = clock;
    this.#reader = new BytesReader(program.stdout as AsyncIterable<Buffer>);
    program.stderr.on("data", (chunk: Buffer) => {
      if (this.#message.length < MESSAGE_BYTES_MAX) this.#message += chunk.toString();
    });
    // The next request reports it.
    program.on("error", () => undefined);
    program.stdin.on("error", () => undefined);
  }

  /**
   * Rejects with the reason when the process cannot be watched. Check afterwards that it is still the
   * intended one.
   */
  static async begin(watched: WatchedProcess): Promise<MemoryRounds> {
    const { program, pid, range } = watched;
    const argv = [`${pid}`, `0x${range.address.toString(16)}`, `${range.bytes}`];
    const rounds = new MemoryRounds(spawn(program, argv, { stdio: ["pipe", "pipe", "pipe"], env: {} }), watched);
    try {
      await rounds.#answer();
      return rounds;
    } catch (error) {
      rounds.end();
      throw error;
    }
  }

  /** The parts that have changed since the last call, in order; at first all that differ from the base. */
  async take(): Promise<readonly Extent[]> {
    this.#program.stdin.write(ROUND);
    return await this.#answer();
  }

  end(): void {
    this.#program.stdin.end();
    this.#program.kill();
  }

  async #answer(): Promise<readonly Extent[]> {
    const late = this.#clock.timer(ANSWER_MS, () => void this.#program.kill());
    try {
      const count = Number((await this.#reader.take(8)).readBigUInt64LE());
      if (count > RUNS_MAX) throw new Error(`${count} runs of pages`);
      return readRuns(await this.#reader.take(count * 16), this.#bytes);
    } catch (error) {
      throw new Error(this.#message.trim() || "the pages that a guest has written are not known", { cause: error });
    } finally {
      late.cancel();
    }
  }
}

/**
 * Runs of pages from the program's answer, of a guest with `bytes` of memory. Pure; throws for runs outside
 * of it.
 */
export function readRuns(answer: Buffer, bytes: number): readonly Extent[] {
  const runs: Extent[] = [];
  let reached = 0;
  for (let at = 0; at < answer.byteLength; at += 16) {
    const start = Number(answer.readBigUInt64LE(at));
    const end = start + Number(answer.readBigUInt64LE(at + 8));
    if (start < reached || end <= start || end > bytes) throw new Error("a run of pages is outside of the memory");
    runs.push({ start, end });
    reached = end;
  }
  return runs;
}
