/**
 * What users notice of many moves of one machine that runs, back and forth between two nodes of this host:
 * `downtimeMs` of each, how many were not handed over while they ran and why, and how many of the short
 * commands failed that ran in it one after the other.
 *
 * The machine was restored from a template. It has random content in its memory, which is compared after each
 * move, and a process that writes new content all the time.
 */
import type { Flotilla, Operation } from "@flotilla/sdk/client";
import { machineOfTemplate, moved, removeMachine, SIZE } from "./support/moves.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";
import { startTwoNodes } from "./support/two-nodes.ts";

const DISK_GB = 5;
const KEPT_MB = 48;
const FILL = `head -c ${KEPT_MB}000000 /dev/urandom >/dev/shm/kept; sha256sum /dev/shm/kept >/dev/shm/sum`;
const WRITER =
  "(while sleep 0.05; do head -c 500000 /dev/urandom >/dev/shm/next; mv /dev/shm/next /dev/shm/latest; done) >/dev/null 2>&1 &";
const CHECK = "sha256sum -c /dev/shm/sum && cat /proc/sys/kernel/random/boot_id";
const LIVE = /^it was paused, and its memory is on the other node$/;

export async function liveMoves(n: number): Promise<Finding> {
  await using fleet = await startTwoNodes();
  const { client } = fleet;
  const id = await machineOfTemplate(client, DISK_GB);
  await client.exec(id, { command: `${FILL}; ${WRITER}` });
  const before = await client.exec(id, { command: CHECK });
  const commands = new Commands(client, id);
  const seen = { downtimes: [] as number[], live: 0, others: [] as string[], lost: 0 };
  for (let move = 0; move < n; move += 1) {
    const operation = await moved(client, id);
    const { downtimeMs } = operation.steps[4] ?? {};
    if (downtimeMs !== undefined && downtimeMs !== null) seen.downtimes.push(downtimeMs);
    if (isLive(operation)) seen.live += 1;
    else seen.others.push(`move ${move + 1}: ${operation.status}: ${operation.error ?? operation.steps[1]?.message}`);
    const after = await client.exec(id, { command: CHECK });
    if (after.stdout !== before.stdout) seen.lost += 1;
  }
  await commands.end();
  await removeMachine(client, id);
  const pauses = summarize(seen.downtimes);
  return {
    name: "live-moves",
    series: [{ what: "pause with its memory", summary: pauses }],
    reaches: [
      atMost("p99", pauses.p99Ms, 500),
      atMost("moves that were not live", n - seen.live, 0, ""),
      atMost("moves after which its memory or its boot was another", seen.lost, 0, ""),
      atMost("commands that failed", commands.failures.length, 0, ""),
    ],
    setting: { size: `${SIZE.cpus} processor, ${SIZE.memoryMb} MB`, "MB of content": KEPT_MB },
    notes: [`${commands.count} commands ran in it meanwhile`, ...seen.others, ...commands.failures],
  };
}

const isLive = ({ status, steps }: Operation): boolean => status === "succeeded" && LIVE.test(steps[1]?.message ?? "");

/** Short commands, one after the other. */
class Commands {
  count = 0;
  readonly failures: string[] = [];
  readonly #client: Flotilla;
  readonly #id: string;
  readonly #ended: Promise<void>;
  #isOver = false;

  constructor(client: Flotilla, id: string) {
    this.#client = client;
    this.#id = id;
    this.#ended = this.#run();
  }

  async #run(): Promise<void> {
    for (; !this.#isOver; this.count += 1) {
      try {
        const { stdout } = await this.#client.exec(this.#id, { command: "sleep 0.1; echo $((6 * 7))" });
        if (stdout !== "42\n") this.failures.push(`a command printed ${JSON.stringify(stdout)}`);
      } catch (error) {
        this.failures.push(`a command failed: ${String(error)}`);
      }
    }
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await this.#ended;
  }
}
