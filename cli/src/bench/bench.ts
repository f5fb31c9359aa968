/**
 * `flotilla bench`: measures how fast machines are on a running Flotilla.
 *
 * Without --create: the rows of docs/benchmarks.md that need only the API, as a table. With --create: the
 * create benchmark of public sandbox leaderboards; with --computesdk over ComputeSDK's provider, in its form.
 *
 * Always:
 * - Every machine it made is removed before it ends, also on Ctrl-C (exit code 130).
 * - Machines have the server's default size.
 * - The exit code is 1 when a machine failed.
 */
import { availableParallelism, cpus, loadavg } from "node:os";
import { mapAtMost } from "@flotilla/base/concurrency";
import type { Call } from "../call.ts";
import { EXIT_REFUSED, usage } from "../failure.ts";
import { styled } from "../output.ts";
import type { BenchOptions, CreateMode } from "./options.ts";
import { type CreateResult, resultOf, runMode } from "./create-modes.ts";
import { BenchFleet } from "./fleet.ts";
import { measureRows, type Row } from "./rows.ts";
import { percentile, percentilesOf, roundMs } from "./statistics.ts";
import { EXIT_INTERRUPTED } from "../stoppable.ts";

/** Four calls each, all at the same time: what a default plan's rate limit allows as a burst. */
const COUNT_MAX = 300;
/** A node prepares as many VMs as are needed at once. A small host has the memory for these. */
const WARM_UP_AT_ONCE = 20;

export async function run(call: Call, _operands: readonly string[], options: BenchOptions): Promise<number> {
  const { count, image } = options;
  if (count > COUNT_MAX) throw usage(`--count is ${count}: at most ${COUNT_MAX}`);
  const { clock } = call.world;
  const stopping = new AbortController();
  const parts = { flotilla: call.flotilla(), clock, image, stopped: stopping.signal };
  const fleet = new BenchFleet(parts);
  const forget = call.world.onStopSignal(() => {
    if (!stopping.signal.aborted) call.output.note("stopping: removing the machines that were made");
    stopping.abort();
  });
  try {
    if (options.computesdk !== undefined) return await computesdk(call, options, stopping.signal);
    await warmUp(call, fleet, options, stopping.signal);
    const measured = { call, fleet, options, stopped: stopping.signal };
    return options.create === undefined ? await showRows(measured) : await showCreate(measured, options.create);
  } catch (error) {
    if (stopping.signal.aborted) return EXIT_INTERRUPTED;
    throw error;
  } finally {
    await removeAll(call, fleet);
    forget();
  }
}

/** Loaded when it is used: others do not wait for ComputeSDK. */
async function computesdk(call: Call, options: BenchOptions, stopped: AbortSignal): Promise<number> {
  const { runComputesdk } = await import("./computesdk.ts");
  return runComputesdk(call, options, stopped);
}

interface Measured {
  readonly call: Call;
  readonly fleet: BenchFleet;
  readonly options: BenchOptions;
  readonly stopped: AbortSignal;
}

/**
 * Makes one machine, so that the image is cached; with --warm-up as many as will be made, WARM_UP_AT_ONCE at
 * the same time, then time for the node to prepare VMs.
 */
async function warmUp(call: Call, fleet: BenchFleet, options: BenchOptions, stopped: AbortSignal): Promise<void> {
  using _progress = call.output.progress("warming up");
  const count = options.warmUp === undefined ? 1 : options.count;
  await mapAtMost(WARM_UP_AT_ONCE, Array.from({ length: count }), async () => {
    const { machine } = await fleet.make();
    await fleet.remove(machine.id);
  });
  if (options.warmUp !== undefined) await call.world.clock.sleep(options.warmUp * 1000, stopped);
  stopped.throwIfAborted();
}

async function showRows({ call, fleet, options, stopped }: Measured): Promise<number> {
  const { output, world } = call;
  const rows: Row[] = [];
  {
    using progress = output.progress("measuring");
    const onStep = (what: string): void => progress.say(what);
    const parts = { count: options.count, flotilla: call.flotilla(), fleet, clock: world.clock, stopped, onStep };
    for await (const row of measureRows(parts)) rows.push(row);
  }
  if (output.isJson) output.json({ environment: environment(), rows: rows.map(rowAsJson) });
  else {
    showEnvironment(call);
    output.table(
      ["WHAT", "SAMPLES", "P50 MS", "P99 MS", "SLOWEST MS", "TO REACH"],
      rows.map(({ name, samplesMs, reach }) => {
        const [p50 = "", p99 = "", slowest = ""] = [0.5, 0.99, 1].map((share) =>
          percentile(samplesMs, share).toFixed(1),
        );
        return [name, String(samplesMs.length), p50, p99, slowest, reach ?? ""];
      }),
    );
  }
  return 0;
}

const rowAsJson = ({ name, samplesMs, reach }: Row): object => {
  return { name, samples: samplesMs.length, ...percentilesOf(samplesMs), max: roundMs(Math.max(...samplesMs)), reach };
};

async function showCreate({ call, fleet, options, stopped }: Measured, mode: CreateMode): Promise<number> {
  const { output, world } = call;
  const { count } = options;
  let result: CreateResult;
  {
    using progress = output.progress(`making ${count} machines`);
    const onDone = (done: number): void => progress.say(`${done} of ${count} machines have answered`);
    const parts = { mode, count, staggerMs: options.stagger, fleet, clock: world.clock, stopped, onDone };
    result = resultOf(await runMode(parts));
  }
  if (output.isJson) {
    const config = { iterations: count, image: options.image, warmUpSeconds: options.warmUp ?? null };
    const timestamp = new Date(world.clock.now()).toISOString();
    output.json({ version: "1.1", timestamp, environment: environment(), config, results: [result] });
  } else showResult(call, result);
  return result.successCount === count ? 0 : EXIT_REFUSED;
}

function showResult(call: Call, { mode, summary, successCount, iterations, wallClockMs }: CreateResult): void {
  const { median, p95, p99 } = summary.ttiMs;
  showEnvironment(call);
  call.output.facts([
    ["mode", mode],
    ["succeeded", `${successCount} of ${iterations.length}`],
    ["p50", `${median.toFixed(1)} ms`],
    ["p95", `${p95.toFixed(1)} ms`],
    ["p99", `${p99.toFixed(1)} ms`],
    ["all together", wallClockMs === undefined ? null : `${wallClockMs.toFixed(1)} ms`],
    ["first error", iterations.find(({ error }) => error !== undefined)?.error ?? null],
  ]);
}

/** Facts of the host that sends the requests, which is the server's host when both run on one machine. */
function environment() {
  const [processor] = cpus();
  const load = roundMs(loadavg()[0] ?? 0);
  return {
    node: process.version,
    platform: process.platform,
    arch: process.arch,
    processors: `${availableParallelism()} × ${processor?.model ?? "unknown"}`,
    load,
  };
}

function showEnvironment({ output }: Call): void {
  const { processors, load } = environment();
  output.line(styled("dim", `asked from ${processors}, load ${load}`));
}

async function removeAll(call: Call, fleet: BenchFleet): Promise<void> {
  using _progress = call.output.progress("removing the machines that were made");
  await fleet.removeAll();
}
