/**
 * What the control plane itself costs: create, start, exec, stop and delete with the fake driver, whose
 * machines take no time, one after another.
 *
 * With FLOTILLA_BENCH_OTHER, the directory of another checkout with its packages installed, the same is
 * measured there, in turns, so that a host that gets slower does not favour one of them: what a change costs
 * on the path of a start.
 */
import { existsSync } from "node:fs";
import path from "node:path";
import { BenchFlotilla } from "./support/flotilla.ts";
import { monotonic } from "./support/clock.ts";
import type { Finding, Series } from "./support/report.ts";
import { atMost, type Reach, summarize } from "./support/statistics.ts";

const STEPS = ["create", "start", "exec", "stop", "delete"] as const;
type Step = (typeof STEPS)[number];
type Samples = Readonly<Record<Step, number[]>>;

const WARM_UP = 20;
/** The start may cost this much more than in the other checkout, at p50. */
const START_MORE_MS = 3;

/** Takes n samples of each step. */
export async function controlPlane(n: number): Promise<Finding> {
  const launcher = otherLauncher();
  await using ours = await BenchFlotilla.start({ driver: "fake" });
  await using other = launcher === null ? null : await BenchFlotilla.start({ driver: "fake", launcher });
  const samples = noSamples();
  const others = noSamples();
  for (let sample = -WARM_UP; sample < n; sample++) {
    const turns = [
      () => live(ours, sample < 0 ? noSamples() : samples),
      () => (other === null ? undefined : live(other, sample < 0 ? noSamples() : others)),
    ];
    // Each is first in every second turn.
    for (const turn of sample % 2 === 0 ? turns : turns.toReversed()) await turn();
  }
  return {
    name: "control-plane",
    series: STEPS.flatMap((step) => seriesOf(step, samples, other === null ? null : others)),
    reaches: other === null ? [] : [startReach(samples, others)],
    setting: { driver: "fake", ...(launcher === null ? {} : { other: "FLOTILLA_BENCH_OTHER" }) },
    notes: launcher === null ? ["FLOTILLA_BENCH_OTHER names no other checkout to compare with"] : [],
  };
}

const noSamples = (): Samples => ({ create: [], start: [], exec: [], stop: [], delete: [] });

async function live(flotilla: BenchFlotilla, samples: Samples): Promise<void> {
  let id = "";
  const steps: Readonly<Record<Step, () => Promise<unknown>>> = {
    create: async () => ({ id } = await flotilla.create()),
    start: () => flotilla.client.startMachine(id),
    exec: () => flotilla.execTrue(id),
    stop: () => flotilla.client.stopMachine(id),
    delete: () => flotilla.client.deleteMachine(id),
  };
  for (const step of STEPS) {
    const startedAt = monotonic();
    await steps[step]();
    samples[step].push(monotonic() - startedAt);
  }
}

function seriesOf(step: Step, samples: Samples, others: Samples | null): readonly Series[] {
  const own = { what: step, summary: summarize(samples[step]) };
  return others === null ? [own] : [own, { what: `${step}, the other checkout`, summary: summarize(others[step]) }];
}

const startReach = (samples: Samples, others: Samples): Reach =>
  atMost(
    "start p50, more than the other",
    summarize(samples.start).p50Ms - summarize(others.start).p50Ms,
    START_MORE_MS,
  );

function otherLauncher(): string | null {
  const directory = process.env["FLOTILLA_BENCH_OTHER"];
  if (!directory) return null;
  const launcher = path.resolve(directory, "flotilla");
  if (!existsSync(launcher)) throw new Error(`FLOTILLA_BENCH_OTHER is ${directory}, which has no file flotilla`);
  return launcher;
}
