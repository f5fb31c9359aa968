/**
 * What Flotilla adds to an exec: `true` through the public API (SDK, HTTP, server, link, node agent, guest channel) against
 * the guest channel alone, in the same machine in the same run.
 *
 * The node agent holds the channel while it runs, so the second half is measured after `flotilla up` has stopped, which
 * leaves the machine running; then it is started again and deletes the machine.
 */
import { channelBelow } from "./support/bare-vm.ts";
import { timed } from "./support/clock.ts";
import { BenchFlotilla } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { compare } from "./support/statistics.ts";
import type { Guest } from "../node/src/guest/guest.ts";

const SIZE = { cpus: 1, memoryMb: 256 };
const IMAGE = "local/busybox";
/** Emulated code is translated when it is first met: neither half begins with that. */
const WARM_UPS = 20;
const COMMAND = ["true"];

/** Takes n samples of each. */
export async function execRoundTrip(n: number): Promise<Finding> {
  const flotilla = await BenchFlotilla.create();
  try {
    await flotilla.start();
    const { client } = flotilla;
    const source = { type: "image", reference: IMAGE } as const;
    const { id } = await client.createMachine({ source, resources: { ...SIZE, diskGb: 1 } });
    await client.startMachine(id);
    const ours = await samples(n, async () => {
      const { exitCode } = await client.exec(id, { command: COMMAND });
      if (exitCode !== 0) throw new Error(`exec ended with ${exitCode}`);
    });
    await flotilla.stop();
    const guest = await channelBelow(flotilla.dataDirectory);
    const bare = await samples(n, () => execOn(guest));
    guest.close();
    return {
      name: "exec-round-trip",
      ours: "exec `true` through the API",
      bare: "exec `true` on the guest channel",
      comparison: compare(ours, bare),
      setting: { image: IMAGE, ...SIZE },
    };
  } finally {
    await flotilla.remove();
  }
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
  const exec = guest.exec({ ...request, isBackground: false });
  exec.stdout.resume();
  exec.stderr.resume();
  const { exitCode } = await exec.exit;
  if (exitCode !== 0) throw new Error(`exec ended with ${exitCode}`);
}
