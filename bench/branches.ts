/**
 * Branches of a machine of the default size that runs: from the request for one clone to the answer of its
 * first command, against the same of a machine that is created; the pauses of the source, and checkpoints of
 * its disk.
 *
 * The two alternate, as in create-to-exec.ts. Commands stream from the source all the time, and are counted
 * as dropped when one ends or a line of it is missing. After it all nothing but the source may be left.
 */
import { mapAtMost } from "@flotilla/base/concurrency";
import type { MachineInfo } from "@flotilla/sdk/client";
import { monotonic, sleep } from "./support/clock.ts";
import { BenchFlotilla, IMAGE } from "./support/flotilla.ts";
import { privateMemoryMb } from "./support/host.ts";
import type { Finding } from "./support/report.ts";
import { atMost, summarize } from "./support/statistics.ts";

const STREAMS = 5;
/** Slowly: clones continue it, and a process costs an emulated guest 10 ms. */
const COUNT = "i=0; while :; do echo $i; i=$((i + 1)); sleep 2; done";
/** Until a clone does nothing but wait. */
const SETTLE_MS = 10_000;
/** How many clones are idle when their memory is measured. */
const IDLE = 4;
const POLL_MS = 100;
const GONE_DEADLINE_MS = 60_000;
/** Each of a batch; so many of the default size would not fit into a small host. */
const SMALL = { cpus: 1, memoryMb: 128, diskGb: 1 } as const;

type Resources = { readonly cpus: number; readonly memoryMb: number; readonly diskGb: number };

/** Takes n samples of each. */
export async function branches(n: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  await flotilla.liftLimits();
  const waiting = await flotilla.warmUp(Math.min(n, 20));
  const source = await startSource(flotilla);
  const streams = Array.from({ length: STREAMS }, () => new CountingStream(flotilla, source.id));
  const [cloned, created]: [number[], number[]] = [[], []];
  // The first of everything is slower, on both sides: neither counts.
  for (let sample = -1; sample < n; sample += 1) {
    const one = await flotilla.make();
    await flotilla.client.deleteMachine(one.machine.id);
    const { tookMs, clones } = await branch(flotilla, source, 1);
    await remove(flotilla, clones);
    if (sample < 0) continue;
    created.push(one.answeredMs);
    cloned.push(tookMs);
  }
  const dropped = (await Promise.all(streams.map((stream) => stream.end()))).filter((why) => why !== null);
  const checkpoint = summarize(await checkpoints(flotilla, source, n));
  const pauses = summarize(await pausesOf(flotilla, source));
  const memory = flotilla.isOwn ? await idleMemoryMb(flotilla, source) : null;
  const left = await leftBeside(flotilla, source);
  const [clone, create] = [summarize(cloned), summarize(created)];
  return {
    name: "branches",
    series: [
      { what: "branch, first exec of the clone answered", summary: clone },
      { what: "create, start, first exec answered", summary: create, isBaseline: true },
      { what: "pause of the source", summary: pauses },
      { what: "checkpoint of the idle source's disk", summary: checkpoint },
    ],
    reaches: [
      atMost("pause p50", pauses.p50Ms, 20),
      atMost("pause p99", pauses.p99Ms, 60),
      atMost(`of ${STREAMS} streams of the source, dropped`, dropped.length, 0, ""),
      atMost("p50", clone.p50Ms, 150),
      atMost("checkpoint p50", checkpoint.p50Ms, 100),
      atMost("p50 ÷ that of a create", clone.p50Ms / create.p50Ms, 2, ""),
      ...(memory === null ? [] : [atMost("own memory of an idle clone, mean", memory, 15, "MB")]),
      atMost("machines and VMMs left", left, 0, ""),
    ],
    setting: { image: IMAGE, size: "default" },
    notes: [`${waiting ?? "an unknown number of"} prepared VMs before the first sample`, ...dropped],
  };
}

/** Takes n samples of a batch of that many clones, all of which have answered a command. */
export async function branchBatch(count: number, n: number, limitMs: number): Promise<Finding> {
  await using flotilla = await BenchFlotilla.start({ driver: "qemu" });
  await flotilla.liftLimits();
  await flotilla.untilPrepared(1);
  const source = await startSource(flotilla, SMALL);
  const took: number[] = [];
  for (let sample = 0; sample < n; sample += 1) {
    const { tookMs, clones } = await branch(flotilla, source, count);
    took.push(tookMs);
    await remove(flotilla, clones);
  }
  const left = await leftBeside(flotilla, source);
  const batch = summarize(took);
  return {
    name: `branch-${count}`,
    series: [{ what: `branch into ${count}, a command answered by each`, summary: batch }],
    reaches: [atMost("p50", batch.p50Ms, limitMs), atMost("machines and VMMs left", left, 0, "")],
    setting: { image: IMAGE, memory: `${SMALL.memoryMb} MB`, clones: count },
    notes: [],
  };
}

async function startSource(flotilla: BenchFlotilla, resources?: Resources): Promise<MachineInfo> {
  const sized = resources === undefined ? {} : { resources };
  const { id } = await flotilla.create({ name: "source", branchable: true, ...sized });
  return await flotilla.client.startMachine(id);
}

/** Branches it, and waits until each clone has answered a command. */
async function branch(flotilla: BenchFlotilla, source: MachineInfo, count: number) {
  const since = monotonic();
  const { clones } = await flotilla.client.createBranches(source.id, { count });
  await Promise.all(clones.map(({ id }) => flotilla.execTrue(id)));
  return { tookMs: monotonic() - since, clones };
}

async function remove(flotilla: BenchFlotilla, clones: readonly MachineInfo[]): Promise<void> {
  await mapAtMost(4, clones, ({ id }) => flotilla.client.deleteMachine(id));
}

/** From the request for a checkpoint of its disk alone to the answer. */
async function checkpoints(flotilla: BenchFlotilla, { id }: MachineInfo, n: number): Promise<readonly number[]> {
  const took: number[] = [];
  for (let sample = 0; sample < n; sample += 1) {
    const since = monotonic();
    const checkpoint = await flotilla.client.createCheckpoint(id, { memory: false });
    took.push(monotonic() - since);
    await flotilla.client.deleteCheckpoint(checkpoint.id);
  }
  return took;
}

/** The pauses for all its branches, by the node's clock. */
async function pausesOf(flotilla: BenchFlotilla, { id }: MachineInfo): Promise<readonly number[]> {
  const operations = await flotilla.client.listOperations({ query: { limit: 1000 } });
  return operations
    .filter(({ kind, resource }) => kind === "machine branch" && resource.id === id)
    .flatMap(({ steps }) => steps.flatMap(({ downtimeMs }) => downtimeMs ?? []));
}

async function idleMemoryMb(flotilla: BenchFlotilla, source: MachineInfo): Promise<number> {
  const before = new Set((await flotilla.machineVmms()).map(({ pid }) => pid));
  const { clones } = await branch(flotilla, source, IDLE);
  await sleep(SETTLE_MS);
  const pids = (await flotilla.machineVmms()).map(({ pid }) => pid).filter((pid) => !before.has(pid));
  const memory = await Promise.all(pids.map(privateMemoryMb));
  await remove(flotilla, clones);
  return memory.reduce((sum, mb) => sum + mb, 0) / memory.length;
}

/** How many machines, or VMMs where they can be seen, are left. */
async function leftBeside(flotilla: BenchFlotilla, source: MachineInfo): Promise<number> {
  const deadline = monotonic() + GONE_DEADLINE_MS;
  for (;;) {
    const machines = (await flotilla.client.listMachines()).filter(({ id }) => id !== source.id).length;
    const vmms = flotilla.isOwn ? (await flotilla.machineVmms()).length - 1 : 0;
    if (machines + vmms <= 0 || monotonic() > deadline) return machines + vmms;
    await sleep(POLL_MS);
  }
}

/** A command of the source that counts, and never ends by itself. */
class CountingStream {
  readonly #abort = new AbortController();
  readonly #ended: Promise<string | null>;

  constructor(flotilla: BenchFlotilla, id: string) {
    this.#ended = this.#read(flotilla, id);
  }

  /** Why it counts as dropped; null: it streams, and no line was missing. */
  async #read({ client }: BenchFlotilla, id: string): Promise<string | null> {
    const { signal } = this.#abort;
    let [text, expected] = ["", 0];
    try {
      for await (const event of await client.streamExec(id, { command: COUNT }, { signal })) {
        if (event.kind === "exit") return `a stream ended with ${event.exitCode}`;
        if (event.kind !== "stdout") continue;
        text += Buffer.from(event.bytes).toString();
        const lines = text.split("\n");
        text = lines.pop() ?? "";
        for (const line of lines) {
          if (line !== String(expected)) return `a stream has ${line} instead of ${expected}`;
          expected += 1;
        }
      }
      return "a stream ended";
    } catch (error) {
      return signal.aborted && expected > 0 ? null : `a stream broke: ${String(error)}`;
    }
  }

  async end(): Promise<string | null> {
    this.#abort.abort();
    return await this.#ended;
  }
}
