/**
 * What Flotilla adds to an exec: `true` through the public API (SDK, HTTP, server, link, node agent, guest channel) against
 * the guest channel alone, in the same machine in the same run.
 *
 * The node agent holds the channel while it runs, so the second half is measured after `flotilla up` has stopped, which
 * leaves the machine running; then it is started again and deletes the machine.
 */
import { channelBelow } from "./support/bare-vm.ts";
import { timed } from "./support/clock.ts";
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import { processorMs } from "./support/host.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";
import type { Guest } from "../node/src/guest/guest.ts";

/** Emulated code is translated when it is first met, and ours compiled when it has been met often: neither half begins with that. */
const WARM_UPS = 1500;
const COMMAND = ["true"];

/** Takes n samples of each. */
export async function execRoundTrip(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  flotilla.requireOwn();
  await flotilla.liftRateLimit();
  await flotilla.untilPrepared(1);
  const { machine } = await flotilla.make();
  // VMs that are being prepared would be measured along with it.
  await flotilla.untilPrepared(1);
  const pids = [await flotilla.pidOf("server"), await flotilla.pidOf("node")];
  const usedMs = async () => Promise.all(pids.map(processorMs));
  const before = await usedMs();
  const ours = summarize(await samples(n, () => flotilla.execTrue(machine.id)));
  const [serverMicros = 0, nodeMicros = 0] = (await usedMs()).map(
    (ms, index) => ((ms - (before[index] ?? 0)) * 1000) / (n + WARM_UPS),
  );
  const [vmm] = await flotilla.machineVmms();
  await flotilla.stop();
  const guest = await channelBelow(flotilla.dataDirectory, vmm?.bootId ?? "");
  const bare = summarize(await samples(n, () => execOn(guest)));
  guest.close();
  return {
    name: "exec-round-trip",
    series: [
      { what: "exec `true` through the API", summary: ours },
      { what: "exec `true` on the guest channel", summary: bare, isBaseline: true },
    ],
    reaches: [atMost("added, p50", ours.p50Ms - bare.p50Ms, 1.5), atMost("added, p99", ours.p99Ms - bare.p99Ms, 5)],
    setting: { image: IMAGE, size: "default" },
    notes: [`processor time for each: server ${serverMicros.toFixed(0)} µs, node agent ${nodeMicros.toFixed(0)} µs`],
  };
}

async function samples(n: number, work: () => Promise<void>): Promise<number[]> {
  const found: number[] = [];
  for (let sample = -WARM_UPS; sample < n; sample++) {
    const tookMs = await timed(work);
    if (sample >= 0) found.push(tookMs);
  }
  return found;
}

async function execOn(guest: Guest): Promise<void> {
  const request = { argv: COMMAND, cwd: null, env: {}, user: null, hasStdin: false, terminal: null };
  const exec = guest.exec({ ...request, isBackground: false, needsPid: false });
  exec.stdout.resume();
  exec.stderr.resume();
  const { exitCode } = await exec.exit;
  if (exitCode !== 0) throw new Error(`exec ended with ${exitCode}`);
}
