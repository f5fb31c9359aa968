/**
 * What a cluster is like, seen from outside its programs: from processes and files of the nodes; and whether that is what the
 * servers say.
 */
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { pause } from "../support/until.ts";
import { type Cluster, MACHINES_OF_NODE_MAX, NODES, SERVERS } from "./cluster.ts";
import type { Load } from "./load.ts";

const LOOK_EVERY_MS = 200;

/** Looks at the VMMs of all nodes until it is disposed of, and keeps what must never be. */
export class Watch implements Disposable {
  looks = 0;
  #faults = new Set<string>();
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
        const [machine] = machines;
        if (machines.length > 1) this.#faults.add(`${bootId} on ${node} runs ${machines.join(" and ")}`);
        const others = running.filter((vmm) => vmm.bootId !== bootId && vmm.machines.includes(machine ?? ""));
        for (const other of others)
          this.#faults.add(`${machine} runs twice: ${bootId} on ${node}, ${other.bootId} on ${other.node}`);
      }
      for (const node of NODES) {
        const there = running.filter((vmm) => vmm.node === node).flatMap(({ machines }) => machines);
        if (there.length > MACHINES_OF_NODE_MAX) this.#faults.add(`${node} runs ${there.join(" and ")}`);
      }
      this.looks += 1;
      await pause(LOOK_EVERY_MS);
    }
  }
}

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
