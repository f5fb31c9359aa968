/**
 * What a cluster is like, seen from outside its programs: from processes and files of the nodes; and whether
 * that is what the servers say.
 */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { pause } from "../support/until.ts";
import { type Cluster, MACHINES_OF_NODE_MAX, NODES, type SeenVmm, SERVERS } from "./cluster.ts";
import type { Load } from "./load.ts";

const LOOK_EVERY_MS = 200;
/** An idle guest uses more between two looks, under emulation and under KVM; a paused one uses nothing. */
const EXECUTED_NS_MIN = 300_000n;
/**
 * What the threads of virtual processors use in all before their guest executes, at most: they were seen to
 * use 0.9 to 1.3 ms.
 */
const BEGINNING_NS_MAX = 3_000_000n;
/**
 * A move pauses one VM and continues the other between two looks, so that both have executed since the look
 * before, once.
 */
const LOOKS_OF_TWO_MIN = 2;

/**
 * Looks at the VMMs of all nodes until it is disposed of, and keeps what must never be.
 *
 * A live move has a VM at each end, of which one is always paused: a machine runs twice only when both
 * execute its guest.
 */
export class Watch implements Disposable {
  /** Looks that saw a machine execute. */
  looks = 0;
  #faults = new Set<string>();
  /** By boot: what its virtual processors had used at the last look. */
  #used = new Map<string, bigint>();
  /** By machine: in how many looks in a row more than one VM had executed it. */
  #twice = new Map<string, number>();
  readonly #cluster: Cluster;
  #isOver = false;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
    void this.#run();
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
  }

  /** What was seen since the last call. */
  takeFaults(): readonly string[] {
    const found = [...this.#faults];
    this.#faults = new Set();
    return found;
  }

  async #run(): Promise<void> {
    while (!this.#isOver) {
      const running = this.#cluster.vmms().filter(({ machines }) => machines.length > 0);
      for (const { node, bootId, machines } of running) {
        if (machines.length > 1) this.#faults.add(`${bootId} on ${node} runs ${machines.join(" and ")}`);
      }
      const executed = this.#executed(running);
      this.#noteTwice(executed);
      for (const node of NODES) {
        const there = executed.filter((vmm) => vmm.node === node).flatMap(({ machines }) => machines);
        if (there.length > MACHINES_OF_NODE_MAX) this.#faults.add(`${node} runs ${there.join(" and ")}`);
      }
      if (executed.length > 0) this.looks += 1;
      await pause(LOOK_EVERY_MS);
    }
  }

  /** VMMs whose guests have executed since the last look. */
  #executed(running: readonly SeenVmm[]): readonly SeenVmm[] {
    const used = new Map(running.map(({ bootId, pid }) => [bootId, executedNs(pid)]));
    const before = this.#used;
    const hasExecuted = ({ bootId }: SeenVmm): boolean =>
      (used.get(bootId) ?? 0n) > BEGINNING_NS_MAX &&
      (used.get(bootId) ?? 0n) - (before.get(bootId) ?? used.get(bootId) ?? 0n) >= EXECUTED_NS_MIN;
    this.#used = used;
    return running.filter(hasExecuted);
  }

  #noteTwice(executed: readonly SeenVmm[]): void {
    const byMachine = Map.groupBy(executed, ({ machines }) => machines[0] ?? "");
    const twice = [...byMachine].filter(([, vmms]) => vmms.length > 1);
    this.#twice = new Map(twice.map(([machine]) => [machine, (this.#twice.get(machine) ?? 0) + 1]));
    for (const [machine, vmms] of twice)
      if ((this.#twice.get(machine) ?? 0) >= LOOKS_OF_TWO_MIN)
        this.#faults.add(`${machine} runs twice: ${vmms.map(({ bootId, node }) => `${bootId} on ${node}`).join(", ")}`);
  }
}

/** In the flags of a task: it is ending (include/linux/sched.h). */
const PF_EXITING = 0x4;
/** Index in the fields of a task's stat after its name. */
const FLAGS_AT = 6;

/**
 * What the virtual processors of a VMM have used, in nanoseconds. One that is ending executes no guest: it
 * uses some milliseconds to give back the memory, also when the VM was paused.
 */
function executedNs(pid: number): bigint {
  const tasks = join("/proc", String(pid), "task");
  const read = (path: string): string => {
    try {
      return readFileSync(path, "utf8");
    } catch {
      return ""; // It has ended.
    }
  };
  const ids = existsSync(tasks) ? readdirSync(tasks) : [];
  return ids
    .filter((id) => /^CPU \d+\//.test(read(join(tasks, id, "comm"))) && !isEnding(read(join(tasks, id, "stat"))))
    .map((id) => BigInt(read(join(tasks, id, "schedstat")).split(" ")[0] ?? 0))
    .reduce((sum, each) => sum + each, 0n);
}

const isEnding = (stat: string): boolean =>
  (Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[FLAGS_AT] ?? 0) & PF_EXITING) !== 0;

interface MachineView {
  readonly id: string;
  readonly name: string;
  readonly state: string;
  readonly error: string | null;
  readonly nodeId: string | null;
}

/** Throws with what is not as it was before the fault. The load must have settled. */
export async function assertHealed(cluster: Cluster, load: Load, owner: string): Promise<void> {
  for (const [index, name] of SERVERS.entries()) {
    const client = cluster.flotilla.client(index);
    assert.equal((await client.get("/readyz")).status, 200, `${name} is ready`);
    const nodes = (await client.get("/v1/nodes")).json as { id: string; status: string }[];
    const statuses = nodes.map(({ id, status }) => `${id} ${status}`).toSorted();
    assert.deepEqual(
      statuses,
      NODES.map((node) => `${node} ready`),
      name,
    );
    const operations = [
      ...(await client.get("/v1/operations")).json,
      ...(await client.withKey(owner).get("/v1/operations")).json,
    ] as { id: string; kind: string; status: string }[];
    const running = operations.filter(({ status }) => status === "running").map(({ id, kind }) => `${kind} ${id}`);
    assert.deepEqual(running, [], "operations that run");
    await assertMachines(cluster, load, (await client.withKey(owner).get("/v1/machines?limit=1000")).json);
  }
  const standbys = await cluster.postgres.primary.query("SELECT sync_state FROM pg_stat_replication");
  assert.deepEqual(standbys, [{ sync_state: "sync" }]);
}

async function assertMachines(cluster: Cluster, load: Load, listed: readonly MachineView[]): Promise<void> {
  const shown = listed.map(({ name, state, error }) => `${name} ${state} ${error ?? ""}`.trim()).toSorted();
  assert.deepEqual(shown, load.lasting.map(({ name }) => `${name} started`).toSorted());
  const running = cluster.vmms().filter(({ machines }) => machines.length > 0);
  assert.deepEqual(
    running.map(({ node, machines }) => `${machines.join()} on ${node}`).toSorted(),
    listed.map(({ id, nodeId }) => `${id} on ${nodeId}`).toSorted(),
    "VMMs of machines",
  );
  for (const node of NODES) {
    const directory = cluster.nodeDirectory(node);
    const own = listed.filter(({ nodeId }) => nodeId === node).map(({ id }) => id);
    assert.deepEqual((await readdir(join(directory, "machines"))).toSorted(), own.toSorted(), `disks on ${node}`);
    const incoming = await readdir(join(directory, "incoming")).catch(() => []);
    assert.deepEqual(incoming, [], `parts of moves on ${node}`);
  }
}
