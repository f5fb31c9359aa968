/**
 * The rows of `flotilla bench`: the rows of the table in docs/benchmarks.md that can be measured through the
 * API alone.
 *
 * Always:
 * - Rows run one after the other, and leave only machines that a later row uses.
 * - A failed call ends the run with that call's error.
 * - There are fewer calls than a default plan's burst, so that the rate limit is not what is measured.
 */
import type { Clock } from "@flotilla/base/clock";
import type { Flotilla } from "@flotilla/sdk";
import { Failure } from "../failure.ts";
import { runMode } from "./create-modes.ts";
import type { BenchFleet } from "./fleet.ts";

export interface Row {
  readonly name: string;
  readonly samplesMs: readonly number[];
  /** The project's target on two cores without hardware virtualization; null where there is none. */
  readonly reach: string | null;
}

export interface RowsOptions {
  readonly count: number;
  readonly flotilla: Flotilla;
  readonly fleet: BenchFleet;
  readonly clock: Clock;
  readonly stopped: AbortSignal;
  readonly onStep: (what: string) => void;
}

/** Commands and reads for each requested machine. */
const CALLS_EACH = 5;
const CALLS_MAX = 200;
const BURST_OF_THE_TABLE = 20;

/** Yields each row as soon as it is measured. */
export async function* measureRows(options: RowsOptions): AsyncGenerator<Row> {
  const { count, fleet, flotilla, stopped, onStep } = options;
  const calls = Math.min(CALLS_MAX, count * CALLS_EACH);

  onStep(`making ${count} machines one after another`);
  const sequential = await createTimes(options, "sequential");
  yield row("create, start, first exec answered", sequential, "p50 ≤ 100 ms, p99 ≤ 300 ms");

  onStep("starting a stopped machine repeatedly");
  const { machine } = await fleet.make();
  const restarts = await samples(options, count, async () => {
    await flotilla.stopMachine(machine.id, { signal: stopped });
    return () => startUntilReady(options, machine.id);
  });
  yield row("start of a stopped machine until ready", restarts, "p50 ≤ 150 ms");

  onStep("running commands");
  const exec = await samples(options, calls, async () => () => fleet.runTrue(machine.id));
  yield row("exec `true`", exec, null);

  onStep("reading a machine");
  const reads = await samples(options, calls, async () => () => flotilla.getMachine(machine.id, { signal: stopped }));
  yield row("GET /v1/machines/{id}", reads, null);
  const least = await samples(options, calls, async () => () => flotilla.getLiveness({ signal: stopped }));
  yield row("GET /livez, the server's cheapest answer", least, null);
  await fleet.remove(machine.id);

  onStep(`making ${count} machines at once`);
  const burst = await createTimes(options, "burst");
  yield row(`${count} creates at once`, burst, count === BURST_OF_THE_TABLE ? "slowest ≤ 1500 ms" : null);
}

const row = (name: string, samplesMs: readonly number[], reach: string | null): Row => ({ name, samplesMs, reach });

async function createTimes(options: RowsOptions, mode: "sequential" | "burst"): Promise<readonly number[]> {
  const { outcomes } = await runMode({ ...options, mode, staggerMs: 0, onDone: () => {} });
  const failed = outcomes.filter(({ error }) => error !== null);
  if (failed.length > 0)
    throw new Failure(`${failed.length} of ${outcomes.length} machines did not answer: ${failed[0]?.error}`);
  return outcomes.map(({ ttiMs }) => ttiMs);
}

/** The time of `prepare` is not measured; its result is passed to the measured call. */
async function samples(
  { clock, stopped }: RowsOptions,
  count: number,
  prepare: () => Promise<() => Promise<unknown>>,
): Promise<readonly number[]> {
  const found: number[] = [];
  while (found.length < count) {
    stopped.throwIfAborted();
    const measured = await prepare();
    const startedAt = clock.monotonic();
    await measured();
    found.push(clock.monotonic() - startedAt);
  }
  return found;
}

async function startUntilReady({ flotilla, stopped }: RowsOptions, id: string): Promise<void> {
  let machine = await flotilla.startMachine(id, { signal: stopped });
  while (!machine.ready && machine.state === "started") machine = await flotilla.getMachine(id, { signal: stopped });
}
