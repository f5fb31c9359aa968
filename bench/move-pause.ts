/**
 * How long a running machine is down while it moves between two nodes of this host, back and forth:
 * `downtimeMs` of the operation.
 *
 * The machine was restored from a template. Where nothing is written on its disk its first two moves are not
 * counted: they carry what the nodes have from then on.
 */
import type { Flotilla } from "@flotilla/sdk/client";
import { sleep } from "./support/clock.ts";
import { machineOfTemplate, moved, removeMachine, SIZE } from "./support/moves.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";
import { startTwoNodes } from "./support/two-nodes.ts";

const WARM_UPS = 2;
const POLL_MS = 50;
const GIB = 2 ** 30;
const WRITE_BYTES = 64 * 2 ** 20;

interface MovePauseOptions {
  /** On its disk, before it moves. */
  readonly writtenGb: number;
}

export async function movePause(n: number, { writtenGb }: MovePauseOptions): Promise<Finding> {
  await using fleet = await startTwoNodes();
  const { client } = fleet;
  const id = await machineOfTemplate(client, writtenGb + 5);
  if (writtenGb > 0) await write(client, id, writtenGb);
  const downtimes = { migrate: [] as number[], restart: [] as number[] };
  const notes: string[] = [];
  const first = writtenGb > 0 ? 0 : WARM_UPS;
  for (const kind of ["migrate", "restart"] as const) {
    await client.updateMachine(id, { disruption: kind });
    for (let move = 0; move < first + n; move += 1) {
      const { steps, status, error } = await moved(client, id);
      if (status !== "succeeded") throw new Error(`the move ended: ${error}`);
      if (move < first) continue;
      downtimes[kind].push(steps[4]?.downtimeMs ?? Number.NaN);
      if (move === first) notes.push(`${kind}: ${steps[2]?.message}`);
    }
  }
  await removeMachine(client, id);
  const ours = summarize(downtimes.migrate);
  const restarts = summarize(downtimes.restart);
  const small = [atMost("p50", ours.p50Ms, 60), atMost("p99", ours.p99Ms, 200)];
  const large = [atMost("slowest", ours.maxMs, 3000), atMost("slowest restart", restarts.maxMs, 3000)];
  return {
    name: writtenGb === 0 ? "move-pause" : "move-written",
    series: [
      { what: "pause with its memory", summary: ours },
      { what: "down with a restart", summary: restarts },
    ],
    reaches: writtenGb === 0 ? small : large,
    setting: { size: `${SIZE.cpus} processor, ${SIZE.memoryMb} MB`, "written on the disk": `${writtenGb} GiB` },
    notes,
  };
}

/**
 * The same random bytes again and again, each time after a number, so that no two blocks are alike and a
 * guest writes them fast.
 */
async function write(client: Flotilla, id: string, gib: number): Promise<void> {
  const fill = `i=0; while [ $i -lt ${(gib * GIB) / WRITE_BYTES} ]; do echo $i; cat /dev/shm/random; i=$((i+1)); done >/workspace/written`;
  const all = `head -c ${WRITE_BYTES} /dev/urandom >/dev/shm/random; ${fill}; sync; rm /dev/shm/random; touch /workspace/done`;
  await client.exec(id, { command: `(${all}) >/dev/null 2>&1 &` });
  while ((await client.exec(id, { command: "test -e /workspace/done" })).exitCode !== 0) await sleep(POLL_MS * 20);
}
