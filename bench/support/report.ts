/**
 * Prints the results of a benchmark: the environment, then each series and the target, as text or as one line
 * of JSON.
 *
 * Always: figures come with the environment they were measured in, including the host's load, because they
 * mean nothing without it.
 */
import { cpus, loadavg, release, totalmem } from "node:os";
import type { DriverFacts } from "../../node/src/driver/driver.ts";
import { isReached, type Reach, type Summary } from "./statistics.ts";

/** Samples of one thing. */
export interface Series {
  /** Description. */
  readonly what: string;
  readonly summary: Summary;
  /** The comparison for ours, the first series. */
  readonly isBaseline?: true;
}

export interface Finding {
  readonly name: string;
  /** Ours first. */
  readonly series: readonly Series[];
  readonly reaches: readonly Reach[];
  /** Other relevant facts, such as the machine's size. */
  readonly setting: Readonly<Record<string, string | number>>;
  readonly notes: readonly string[];
}

/** The host's load before a benchmark begins: other programs affect every figure. */
export const loadNow = (): string =>
  loadavg()
    .map((load) => load.toFixed(1))
    .join(" ");

export function printFinding(
  finding: Finding,
  { facts, load, isJson }: { readonly facts: DriverFacts; readonly load: string; readonly isJson: boolean },
): void {
  const environment = { ...environmentOf(facts), "load before": load };
  if (isJson) {
    process.stdout.write(`${JSON.stringify({ ...finding, environment })}\n`);
    return;
  }
  const setting = Object.entries(finding.setting).map(([name, value]) => `${name} ${value}`);
  const lines = [
    finding.name,
    ...Object.entries(environment).map(([name, value]) => `  ${name.padEnd(12)} ${value}`),
    `  ${"setting".padEnd(12)} ${setting.join(", ")}`,
    `  ${"".padEnd(52)}${["n", "p50 ms", "p99 ms", "min", "max"].map((word) => word.padStart(9)).join("")}`,
    ...finding.series.map(row),
    ...ratioRows(finding.series),
    ...finding.reaches.map(reachRow),
    ...finding.notes.map((note) => `  note: ${note}`),
  ];
  process.stdout.write(`${lines.join("\n")}\n`);
}

function row({ what, summary: { n, p50Ms, p99Ms, minMs, maxMs } }: Series): string {
  const figures = [p50Ms, p99Ms, minMs, maxMs].map((ms) => ms.toFixed(ms < 10 ? 2 : 1).padStart(9));
  return `  ${what.padEnd(52)}${String(n).padStart(9)}${figures.join("")}`;
}

/** The first series against each baseline. */
function ratioRows([ours, ...others]: readonly Series[]): readonly string[] {
  if (ours === undefined) return [];
  return others
    .filter(({ isBaseline }) => isBaseline)
    .map(({ what, summary }) => {
      const ratios = [ours.summary.p50Ms / summary.p50Ms, ours.summary.p99Ms / summary.p99Ms];
      const figures = ratios.map((ratio) => ratio.toFixed(2).padStart(9)).join("");
      return `  ${`ratio to ${what}`.padEnd(52)}${"".padStart(9)}${figures}`;
    });
}

function reachRow(reach: Reach): string {
  const { what, found, limit, is, unit } = reach;
  const verdict = isReached(reach) ? "reached" : "missed";
  return `  ${verdict.padEnd(8)} ${what}: ${found.toFixed(found < 100 ? 2 : 0)} ${unit} (${is} ${limit})`.replace(
    / +\(/,
    " (",
  );
}

function environmentOf(facts: DriverFacts): Readonly<Record<string, string>> {
  const processors = cpus();
  return {
    host: `${processors.length} × ${processors[0]?.model ?? "unknown"}, ${Math.round(totalmem() / 2 ** 30)} GiB`,
    kernel: release(),
    node: process.version,
    vm: `${facts.runtime}, ${facts.accelerator}`,
  };
}
