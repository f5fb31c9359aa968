/**
 * What Flotilla adds to an exec: `true` through the public API (HTTP, server, link, node agent, guest channel)
 * against the guest channel alone, in the same machine in the same run. The figure is that of a plain kept-alive
 * connection; the SDK's, which uses `fetch`, is beside it, because the client's own cost is not Flotilla's.
 *
 * The node agent holds the channel while it runs, so the second half is measured after `flotilla up` has stopped,
 * which leaves the machine running; then it is started again and deletes the machine.
 */
import { once } from "node:events";
import { Agent, type IncomingMessage, request } from "node:http";
import { json } from "node:stream/consumers";
import { channelBelow } from "./support/bare-vm.ts";
import { timed } from "./support/clock.ts";
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import { processorMs } from "./support/host.ts";
import type { Finding } from "./support/report.ts";
import { atMost, type Summary, summarize } from "./support/statistics.ts";
import type { Guest } from "../node/src/guest/guest.ts";

/**
 * Emulated code is translated when it first runs, and ours is compiled when it has run often: both halves begin after
 * that.
 */
const WARM_UPS = 1500;
const COMMAND = ["true"];

/** Takes n samples of each. */
export async function execRoundTrip(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  flotilla.requireOwn();
  await flotilla.liftLimits();
  await flotilla.untilPrepared(1);
  const { machine } = await flotilla.make();
  // Preparing a VM meanwhile would be measured too.
  await flotilla.untilPrepared(1);
  const [vmm] = await flotilla.machineVmms();
  if (vmm === undefined) throw new Error("the machine's VMM was not found");
  const programs = { server: await flotilla.pidOf("server"), "node agent": await flotilla.pidOf("node") };
  const ends = { VMM: vmm.pid, "this program": process.pid };
  const bySdk = await samples(n, { ...ends, ...programs }, () => flotilla.execTrue(machine.id));
  const connection = new Agent({ keepAlive: true, maxSockets: 1 });
  const ours = await samples(n, { ...ends, ...programs }, () => execOver(connection, flotilla, machine.id));
  connection.destroy();
  await flotilla.stop();
  const guest = await channelBelow(flotilla.dataDirectory, vmm.bootId);
  const bare = await samples(n, ends, () => execOn(guest));
  guest.close();
  return {
    name: "exec-round-trip",
    series: [
      { what: "exec `true` through the API", summary: ours.summary },
      { what: "exec `true` with the SDK", summary: bySdk.summary },
      { what: "exec `true` on the guest channel", summary: bare.summary, isBaseline: true },
    ],
    reaches: [
      atMost("added, p50", ours.summary.p50Ms - bare.summary.p50Ms, 1.5),
      atMost("added, p99", ours.summary.p99Ms - bare.summary.p99Ms, 5),
    ],
    setting: { image: IMAGE, size: "default" },
    notes: [
      `processor time for each, through the API: ${ours.processorTime}`,
      `processor time for each, with the SDK: ${bySdk.processorTime}`,
      `processor time for each, on the guest channel: ${bare.processorTime}`,
    ],
  };
}

interface Samples {
  readonly summary: Summary;
  /** Processor time of each process per exec, as text. */
  readonly processorTime: string;
}

async function samples(n: number, pids: Readonly<Record<string, number>>, work: () => Promise<void>): Promise<Samples> {
  for (let warmUp = 0; warmUp < WARM_UPS; warmUp++) await work();
  const usedMs = (): Promise<readonly number[]> => Promise.all(Object.values(pids).map(processorMs));
  const before = await usedMs();
  const found: number[] = [];
  for (let sample = 0; sample < n; sample++) found.push(await timed(work));
  const after = await usedMs();
  const micros = after.map((ms, at) => ((ms - (before[at] ?? ms)) * 1000) / n);
  const parts = Object.keys(pids).map((name, at) => `${name} ${micros[at]?.toFixed(0)} µs`);
  return { summary: summarize(found), processorTime: parts.join(", ") };
}

async function execOver(agent: Agent, { access }: BenchFlotilla, machineId: string): Promise<void> {
  const body = JSON.stringify({ command: COMMAND });
  const headers = { ...access.headers, "content-length": Buffer.byteLength(body) };
  const asked = request(`${access.url}/v1/machines/${machineId}/exec`, { method: "POST", agent, headers });
  asked.end(body);
  const [answer] = (await once(asked, "response")) as [IncomingMessage];
  const { exitCode } = (await json(answer)) as { readonly exitCode?: number };
  if (exitCode !== 0) throw new Error(`exec of true was answered with ${answer.statusCode}, exit code ${exitCode}`);
}

async function execOn(guest: Guest): Promise<void> {
  const request = { argv: COMMAND, cwd: null, env: {}, user: null, hasStdin: false, terminal: null };
  const exec = guest.exec({ ...request, isBackground: false, needsPid: false });
  exec.stdout.resume();
  exec.stderr.resume();
  const { exitCode } = await exec.exit;
  if (exitCode !== 0) throw new Error(`exec ended with ${exitCode}`);
}
