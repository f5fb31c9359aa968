/**
 * A claim from a pool in which machines wait, and its first exec, against create and start of the same
 * machine.
 *
 * The pool is full before the first sample, and refills while it is measured. Claims and starts take turns.
 */
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import { sleep, timed } from "./support/clock.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";

const SIZE = { cpus: 1, memoryMb: 512 } as const;
const POLL_MS = 200;

/** Takes n samples, out of a pool of n machines. */
export async function poolClaim(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  flotilla.requireOwn();
  const { client } = flotilla;
  const pool = await client.createPool({ image: IMAGE, targetSize: n, ...SIZE });
  while ((await client.listPools()).some(({ idleCount }) => idleCount < n)) await sleep(POLL_MS);
  const [claims, execs, starts]: [number[], number[], number[]] = [[], [], []];
  for (let sample = 0; sample < n; sample++) {
    let id = "";
    claims.push(await timed(async () => ({ id } = await client.claimMachine(pool.id))));
    execs.push(await timed(() => client.exec(id, { command: ["true"] })));
    await client.deleteMachine(id);
    const start = async (): Promise<void> => {
      ({ id } = await client.createMachine({ source: { type: "image", reference: IMAGE }, resources: SIZE }));
      await client.startMachine(id);
    };
    starts.push(await timed(start));
    await client.deleteMachine(id);
  }
  await client.deletePool(pool.id);
  const ours = summarize(claims);
  return {
    name: "pool-claim",
    series: [
      { what: "claim", summary: ours },
      { what: "first exec after it", summary: summarize(execs) },
      { what: "create and start", summary: summarize(starts) },
    ],
    reaches: [atMost("p50", ours.p50Ms, 15)],
    setting: { image: IMAGE, size: `${SIZE.cpus} processor, ${SIZE.memoryMb} MB`, "machines that wait": n },
    notes: [],
  };
}
