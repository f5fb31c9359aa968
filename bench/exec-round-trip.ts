/**
 * What Flotilla adds to an exec: `true` through the public API (HTTP, server, link, node agent, guest
 * channel) against the guest channel alone of a machine of the same kind, in turns. The figure is that of a
 * plain kept-alive connection; the SDK's, which uses `fetch`, is beside it, because the client's own cost is
 * not Flotilla's.
 */
import { once } from "node:events";
import { Agent, type IncomingMessage, request } from "node:http";
import { json } from "node:stream/consumers";
import { aboveAndBelow, takeTurns, usedNote } from "./support/above-and-below.ts";
import { type BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";
import type { Guest } from "../node/src/guest/guest.ts";

/**
 * Emulated code is translated when it first runs, and ours is compiled when it has run often: the samples
 * begin after that.
 */
const WARM_UPS = 1500;
const TOGETHER = 50;
const COMMAND = ["true"];

/** Takes n samples of each. */
export async function execRoundTrip(n: number): Promise<Finding> {
  const measured = await aboveAndBelow(async (above, below) => {
    const connection = new Agent({ keepAlive: true, maxSockets: 1 });
    const sides = [
      { work: () => execOver(connection, above.flotilla, above.id), pids: above.pids },
      { work: () => above.flotilla.execTrue(above.id), pids: above.pids },
      { work: () => execOn(below.guest), pids: below.pids },
    ];
    try {
      return await takeTurns(sides, { count: n, warmUps: WARM_UPS, together: TOGETHER });
    } finally {
      connection.destroy();
    }
  });
  const [ours, bySdk, bare] = measured;
  if (!ours || !bySdk || !bare) throw new Error("nothing was measured");
  const [plain, alone] = [summarize(ours.tookMs), summarize(bare.tookMs)];
  return {
    name: "exec-round-trip",
    series: [
      { what: "exec `true` through the API", summary: plain },
      { what: "exec `true` with the SDK", summary: summarize(bySdk.tookMs) },
      { what: "exec `true` on the guest channel", summary: alone, isBaseline: true },
    ],
    reaches: [atMost("added, p50", plain.p50Ms - alone.p50Ms, 1.5), atMost("added, p99", plain.p99Ms - alone.p99Ms, 5)],
    setting: { image: IMAGE, size: "default" },
    notes: [
      `through the API, ${usedNote(ours, n, "exec")}`,
      `with the SDK, ${usedNote(bySdk, n, "exec")}`,
      `on the guest channel, ${usedNote(bare, n, "exec")}`,
    ],
  };
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
