/**
 * `flotilla bench --computesdk FOLDER`: ComputeSDK's public benchmark against one's own Flotilla, over its
 * provider. For each sandbox it measures the time from create to the answer of its first command.
 *
 * Writes `FOLDER/<mode>_tti/<date>.json` and `latest.json`, as the benchmark's repository has them.
 *
 * Always:
 * - Each sandbox is destroyed after its command, outside of its time, and all before the end, also on Ctrl-C.
 *   Machines of a killed run have the label `flotilla-bench`, and end after an hour.
 * - A file is written when its mode has ended, and none for a mode that was interrupted.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { flotilla as providerOf } from "@flotilla/computesdk";
import type { Clock } from "@flotilla/base/clock";
import type { Call } from "../call.ts";
import { EXIT_REFUSED, Failure, usage } from "../failure.ts";
import { type Outcome, runMode } from "./create-modes.ts";
import { CREATE_MS, FIRST_COMMAND, leaderboardResult, type LeaderboardResult } from "./leaderboard.ts";
import { type BenchOptions, CREATE_MODES, type CreateMode } from "./options.ts";

const TTL_MS = 3_600_000;
const COMMAND_MS = 30_000;
const DESTROYED_AT_ONCE = 8;

type Compute = ReturnType<typeof providerOf>;

/** Returns the exit code: 1 when a sandbox failed. */
export async function runComputesdk(call: Call, options: BenchOptions, stopped: AbortSignal): Promise<number> {
  const { url, key } = call.connect();
  if (key === null) throw usage("there is no API key", "set FLOTILLA_API_KEY, or `flotilla login`");
  const compute = providerOf({ url, apiKey: key, image: options.image, timeout: TTL_MS });
  const fleet = new Sandboxes({ compute, command: options.command ?? FIRST_COMMAND, clock: call.world.clock, stopped });
  const modes = options.create === undefined ? CREATE_MODES : [options.create];
  const written: { readonly file: string; readonly result: LeaderboardResult }[] = [];
  try {
    await warmUp(call, fleet, options, stopped);
    for (const mode of modes) {
      const outcomes = await measure(call, { mode, options, fleet, stopped });
      const result = leaderboardResult({ mode, staggerMs: options.stagger, outcomes });
      const file = write(call, { mode, options, result });
      written.push({ file, result });
      if (!call.output.isJson) show(call, result, file);
    }
    if (call.output.isJson) call.output.json(written.map(({ file, result }) => ({ file, ...result })));
  } finally {
    using _progress = call.output.progress("removing the machines that were made");
    await fleet.removeAll();
  }
  return written.every(({ result }) => result.successRate === 1) ? 0 : EXIT_REFUSED;
}

/** One sandbox that does not count, so that the image is cached; what it cannot run, none can. */
async function warmUp(call: Call, fleet: Sandboxes, options: BenchOptions, stopped: AbortSignal): Promise<void> {
  using _progress = call.output.progress("warming up");
  await fleet.make();
  await call.world.clock.sleep((options.warmUp ?? 0) * 1000, stopped);
  stopped.throwIfAborted();
}

interface Mode {
  readonly mode: CreateMode;
  readonly options: BenchOptions;
}

async function measure(
  call: Call,
  { mode, options, fleet, stopped }: Mode & { readonly fleet: Sandboxes; readonly stopped: AbortSignal },
): Promise<readonly Outcome[]> {
  const { count, stagger: staggerMs } = options;
  using progress = call.output.progress(`${mode}: making ${count} sandboxes`);
  const onDone = (done: number): void => progress.say(`${mode}: ${done} of ${count} sandboxes have answered`);
  const { outcomes } = await runMode({ mode, count, staggerMs, fleet, clock: call.world.clock, stopped, onDone });
  return outcomes;
}

/** Returns the file's path. */
function write(call: Call, { mode, options, result }: Mode & { readonly result: LeaderboardResult }): string {
  const { count, command, image } = options;
  const folder = path.resolve(call.world.directory, options.computesdk ?? ".", `${mode}_tti`);
  const timestamp = new Date(call.world.clock.now()).toISOString();
  const written = {
    version: "1.1",
    timestamp,
    environment: { node: process.version, platform: process.platform, arch: process.arch },
    // What the benchmark itself never varies is named when it is another.
    config: { iterations: count, timeoutMs: CREATE_MS, ...(command === undefined ? {} : { command, image }) },
    results: [result],
  };
  const file = path.join(folder, `${timestamp.slice(0, 10)}.json`);
  mkdirSync(folder, { recursive: true });
  for (const name of [file, path.join(folder, "latest.json")])
    writeFileSync(name, `${JSON.stringify(written, null, 2)}\n`);
  return file;
}

function show(call: Call, result: LeaderboardResult, file: string): void {
  const { mode, iterations, summary, compositeScore } = result;
  const { median, p95, p99 } = summary.ttiMs;
  call.output.facts([
    ["mode", mode],
    ["score", compositeScore.toFixed(2)],
    ["succeeded", `${iterations.filter(({ error }) => error === undefined).length} of ${iterations.length}`],
    ["p50, p95, p99", [median, p95, p99].map((ms) => `${ms.toFixed(1)} ms`).join(", ")],
    ["first error", iterations.find(({ error }) => error !== undefined)?.error ?? null],
    ["written to", file],
  ]);
}

/** The sandboxes of a run. */
class Sandboxes {
  readonly #compute: Compute;
  readonly #command: string;
  readonly #clock: Clock;
  readonly #stopped: AbortSignal;
  readonly #ids = new Set<string>();
  readonly #creating = new Set<Promise<unknown>>();

  constructor(parts: { compute: Compute; command: string; clock: Clock; stopped: AbortSignal }) {
    this.#compute = parts.compute;
    this.#command = parts.command;
    this.#clock = parts.clock;
    this.#stopped = parts.stopped;
  }

  /** Create, first command, destroy; the last is not part of the time. */
  async make(): Promise<{ readonly machine: { readonly id: string }; readonly ttiMs: number }> {
    const startedAt = this.#clock.monotonic();
    const sandbox = await this.#within(this.#create(), CREATE_MS, "Sandbox creation timed out");
    const { sandboxId: id } = sandbox;
    try {
      const ran = sandbox.runCommand(this.#command, { timeout: COMMAND_MS });
      const { exitCode, stderr } = await this.#within(ran, COMMAND_MS, "First command execution timed out");
      const ttiMs = this.#clock.monotonic() - startedAt;
      if (exitCode === 0) return { machine: { id }, ttiMs };
      const said = stderr.trim().slice(0, 200);
      throw new Failure(
        `\`${this.#command}\` ended with ${exitCode}: ${said}`,
        "--image names an image that has the program, --command another command",
      );
    } finally {
      await this.remove(id);
    }
  }

  async remove(id: string): Promise<void> {
    await this.#compute.sandbox.destroy(id);
    this.#ids.delete(id);
  }

  /** Also those whose creation was not awaited. Tries each, then throws the first error. */
  async removeAll(): Promise<void> {
    await Promise.allSettled(this.#creating);
    const left = [...this.#ids].values();
    const errors: unknown[] = [];
    const worker = async (): Promise<void> => {
      for (const id of left) await this.remove(id).catch((error: unknown) => errors.push(error));
    };
    await Promise.all(Array.from({ length: DESTROYED_AT_ONCE }, worker));
    if (errors.length > 0) throw errors[0];
  }

  async #create() {
    this.#stopped.throwIfAborted();
    const creating = this.#compute.sandbox.create({ metadata: { "flotilla-bench": true } });
    const noted = creating.then(
      ({ sandboxId }) => this.#ids.add(sandboxId),
      () => {},
    );
    this.#creating.add(noted);
    try {
      return await creating;
    } finally {
      this.#creating.delete(noted);
    }
  }

  async #within<T>(work: Promise<T>, ms: number, late: string): Promise<T> {
    const ended = Promise.withResolvers<never>();
    const timer = this.#clock.timer(ms, () => ended.reject(new Failure(late)));
    const stop = (): void => ended.reject(this.#stopped.reason);
    this.#stopped.addEventListener("abort", stop, { once: true });
    try {
      return await Promise.race([work, ended.promise]);
    } finally {
      timer.cancel();
      this.#stopped.removeEventListener("abort", stop);
    }
  }
}
