/**
 * `npm run bench -- <name> [--n N] [--json]`: takes samples of what Flotilla does and of the least that the same could take,
 * in the same run, and prints both and their ratio.
 *
 * Always: the number of samples is bounded, so that nobody waits for hours by a typing error; whatever happens, the
 * machines and directories of a run are gone afterwards.
 */
import { parseArgs } from "node:util";
import { createToExec } from "./create-to-exec.ts";
import { execRoundTrip } from "./exec-round-trip.ts";
import { vmFacts } from "./support/bare-vm.ts";
import { type Finding, printFinding } from "./support/report.ts";

interface Bench {
  readonly run: (n: number) => Promise<Finding>;
  readonly samplesDefault: number;
  readonly samplesMax: number;
}

const BENCHES: Readonly<Record<string, Bench>> = {
  "create-to-exec": { run: createToExec, samplesDefault: 10, samplesMax: 200 },
  "exec-round-trip": { run: execRoundTrip, samplesDefault: 200, samplesMax: 10_000 },
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { n: { type: "string" }, json: { type: "boolean", default: false } },
});
const [name = ""] = positionals;
const bench = BENCHES[name];
if (bench === undefined || positionals.length !== 1) {
  process.stderr.write(`usage: npm run bench -- <${Object.keys(BENCHES).join(" | ")}> [--n N] [--json]\n`);
  process.exitCode = 2;
} else {
  const n = Number(values.n ?? bench.samplesDefault);
  if (!Number.isInteger(n) || n < 1 || n > bench.samplesMax) {
    process.stderr.write(`--n is "${values.n}": expected a whole number from 1 to ${bench.samplesMax}\n`);
    process.exitCode = 2;
  } else printFinding(await bench.run(n), await vmFacts(), values.json);
}
