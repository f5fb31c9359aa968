/**
 * `npm run bench -- <name… | all> [--n N] [--json]`: measures Flotilla and what it is compared with in the
 * same run, and prints both, their ratio and the target.
 *
 * Always: the number of samples is bounded, so that a typing error does not cost hours. Whatever happens,
 * Ctrl-C included, the machines and directories of a run are removed. With `all`, a benchmark that cannot run
 * says why and the others continue.
 */
import { parseArgs } from "node:util";
import { ownMessageOf } from "@flotilla/base/errors";
import { agents } from "./agents.ts";
import { appDeploy } from "./app-deploy.ts";
import { appRequests } from "./app-requests.ts";
import { appRoutes } from "./app-routes.ts";
import { branchBatch, branches } from "./branches.ts";
import { burst } from "./burst.ts";
import { consoleLogs } from "./console-logs.ts";
import { controlPlane } from "./control-plane.ts";
import { createToExec } from "./create-to-exec.ts";
import { execRoundTrip } from "./exec-round-trip.ts";
import { fleetSize } from "./fleet-size.ts";
import { fromNowhere } from "./from-nowhere.ts";
import { idle } from "./idle.ts";
import { ingress } from "./ingress.ts";
import { liveMoves } from "./live-moves.ts";
import { packages } from "./packages.ts";
import { poolClaim } from "./pool-claim.ts";
import { movePause } from "./move-pause.ts";
import { nodeLoss } from "./node-loss.ts";
import { noisyNeighbour } from "./noisy-neighbour.ts";
import { execThroughput, read } from "./server-load.ts";
import { startStopped } from "./start-stopped.ts";
import { vmFacts } from "./support/vm.ts";
import { handleInterrupts, unlessInterrupted } from "./support/interrupt.ts";
import { type Finding, loadNow, printFinding } from "./support/report.ts";
import { fileThroughput, streamThroughput } from "./throughput.ts";

interface Bench {
  readonly run: (n: number) => Promise<Finding>;
  readonly samplesDefault: number;
  readonly samplesMax: number;
}

/**
 * `--n` counts machines for `burst` and `idle`, seconds for `fleet-size`, alternations of seconds for the
 * loads, samples for the others.
 */
const BENCHES: Readonly<Record<string, Bench>> = {
  "create-to-exec": { run: createToExec, samplesDefault: 20, samplesMax: 90 },
  "from-nowhere": { run: fromNowhere, samplesDefault: 30, samplesMax: 90 },
  "pool-claim": { run: poolClaim, samplesDefault: 20, samplesMax: 90 },
  "move-pause": { run: (n) => movePause(n, { writtenGb: 0 }), samplesDefault: 20, samplesMax: 100 },
  "live-moves": { run: liveMoves, samplesDefault: 20, samplesMax: 100 },
  "move-written": { run: (n) => movePause(n, { writtenGb: 10 }), samplesDefault: 1, samplesMax: 10 },
  "start-stopped": { run: startStopped, samplesDefault: 15, samplesMax: 200 },
  "control-plane": { run: controlPlane, samplesDefault: 300, samplesMax: 2_000 },
  "console-logs": { run: consoleLogs, samplesDefault: 10, samplesMax: 100 },
  branches: { run: branches, samplesDefault: 20, samplesMax: 200 },
  "branch-16": { run: (n) => branchBatch(16, n, 2_000), samplesDefault: 5, samplesMax: 20 },
  "branch-48": { run: (n) => branchBatch(48, n, 8_000), samplesDefault: 3, samplesMax: 20 },
  agents: { run: agents, samplesDefault: 20, samplesMax: 100 },
  packages: { run: packages, samplesDefault: 20, samplesMax: 200 },
  "burst-20": { run: () => burst(20), samplesDefault: 1, samplesMax: 1 },
  "burst-100": { run: () => burst(100), samplesDefault: 1, samplesMax: 1 },
  "node-loss": { run: nodeLoss, samplesDefault: 1, samplesMax: 1 },
  "exec-round-trip": { run: execRoundTrip, samplesDefault: 300, samplesMax: 10_000 },
  "exec-throughput": { run: execThroughput, samplesDefault: 5, samplesMax: 100 },
  read: { run: read, samplesDefault: 5, samplesMax: 100 },
  "noisy-neighbour": { run: noisyNeighbour, samplesDefault: 12, samplesMax: 20 },
  "file-throughput": { run: fileThroughput, samplesDefault: 1, samplesMax: 20 },
  "stream-throughput": { run: streamThroughput, samplesDefault: 3, samplesMax: 50 },
  ingress: { run: ingress, samplesDefault: 3, samplesMax: 30 },
  "app-requests": { run: appRequests, samplesDefault: 3, samplesMax: 30 },
  "app-deploy": { run: appDeploy, samplesDefault: 5, samplesMax: 50 },
  "app-routes": { run: appRoutes, samplesDefault: 500, samplesMax: 2_000 },
  "fleet-size": { run: fleetSize, samplesDefault: 20, samplesMax: 600 },
  idle: { run: idle, samplesDefault: 100, samplesMax: 500 },
};
const NAMES = Object.keys(BENCHES);

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { n: { type: "string" }, json: { type: "boolean", default: false } },
});
const isAll = positionals.length === 1 && positionals[0] === "all";
const chosen = (isAll ? NAMES : positionals).map((name) => ({ name, bench: BENCHES[name] }));
if (chosen.length === 0 || chosen.some(({ bench }) => bench === undefined)) {
  process.stderr.write(`usage: npm run bench -- <${[...NAMES, "all"].join(" | ")}>… [--n N] [--json]\n`);
  process.exitCode = 2;
} else {
  handleInterrupts();
  const facts = await vmFacts();
  for (const { name, bench } of chosen) if (bench !== undefined) await runOne(name, bench, facts);
}

async function runOne(name: string, bench: Bench, facts: Awaited<ReturnType<typeof vmFacts>>): Promise<void> {
  const n = Number(values.n ?? bench.samplesDefault);
  if (!Number.isInteger(n) || n < 1 || n > bench.samplesMax) {
    process.stderr.write(`${name}: --n is "${values.n}": expected a whole number from 1 to ${bench.samplesMax}\n`);
    process.exitCode = 2;
    return;
  }
  const load = loadNow();
  try {
    printFinding(await bench.run(n), { facts, load, isJson: values.json });
  } catch (error) {
    await unlessInterrupted();
    if (!isAll) throw error;
    process.stderr.write(`${name}: ${ownMessageOf(error)}\n`);
    process.exitCode = 1;
  }
}
