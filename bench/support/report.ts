/**
 * Prints what a benchmark found: the environment, then each comparison, as text or as one line of JSON.
 *
 * Always: figures come with the environment they were taken in, because they mean nothing without it.
 */
import { cpus, release, totalmem } from "node:os";
import type { DriverFacts } from "../../node/src/driver/driver.ts";
import type { Comparison, Summary } from "./statistics.ts";

export interface Finding {
  readonly name: string;
  /** What `ours` and `bare` are, in words. */
  readonly ours: string;
  readonly bare: string;
  readonly comparison: Comparison;
  /** Anything else that matters, such as the machine's size. */
  readonly setting: Readonly<Record<string, string | number>>;
}

export function printFinding(finding: Finding, facts: DriverFacts, isJson: boolean): void {
  const environment = environmentOf(facts);
  if (isJson) {
    process.stdout.write(`${JSON.stringify({ ...finding, environment })}\n`);
    return;
  }
  const { ours, bare, ratioP50, ratioP99 } = finding.comparison;
  const setting = Object.entries(finding.setting).map(([name, value]) => `${name} ${value}`);
  const lines = [
    finding.name,
    ...Object.entries(environment).map(([name, value]) => `  ${name.padEnd(12)} ${value}`),
    `  ${"setting".padEnd(12)} ${setting.join(", ")}`,
    `  ${"".padEnd(44)}${["n", "p50 ms", "p99 ms", "min", "max"].map((word) => word.padStart(9)).join("")}`,
    row(finding.ours, ours),
    row(finding.bare, bare),
    `  ${"ratio".padEnd(44)}${"".padStart(9)}${ratioP50.toFixed(2).padStart(9)}${ratioP99.toFixed(2).padStart(9)}`,
  ];
  process.stdout.write(`${lines.join("\n")}\n`);
}

function row(name: string, { n, p50Ms, p99Ms, minMs, maxMs }: Summary): string {
  const figures = [p50Ms, p99Ms, minMs, maxMs].map((ms) => ms.toFixed(1).padStart(9));
  return `  ${name.padEnd(44)}${String(n).padStart(9)}${figures.join("")}`;
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
