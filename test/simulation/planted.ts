/**
 * Bugs that a simulation must find: each replaces a piece of the shipped source when it is imported.
 */
import { registerHooks } from "node:module";

interface Bug {
  /** The end of the file's path. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

export const BUGS: Readonly<Record<string, Bug>> = {
  "a node obeys an older request": {
    file: "node/src/machines/supervisor.ts",
    from: 'if (generation <= known.generation || known.desired === "absent") return "stale";',
    to: 'if (known.desired === "absent") return "stale";',
  },
  "a node forgets that it may have a VM": {
    file: "node/src/machines/held-vm.ts",
    from: 'this.state = options.hasBoot ? "lost" : null;',
    to: "this.state = null;",
  },
  "a journal is written in place": {
    file: "node/src/machines/journal.ts",
    from: "await rename(this.#temporaryPath, this.#path);",
    to: "",
  },
  "the end of a run is not recorded": {
    file: "node/src/machines/run-journal.ts",
    from: "if (known === undefined || known.endedAt !== null) return this.saved();",
    to: "if (known !== undefined) return this.saved();",
  },
  "a failed report is forgotten": {
    file: "node/src/link/report.ts",
    from: "    this.#isComplete = true;\n    this.#failures += 1;",
    to: "    this.#failures += 1;",
  },
  "runs are acknowledged that were not sent": {
    file: "server/src/machines/apply-runs.ts",
    from: "return isComplete ? sequence : (runs.at(-1)?.sequence ?? 0);",
    to: "return sequence + 60_000;",
  },
  "a write has no fence": {
    file: "server/src/machines/store.ts",
    from: "WHERE m.id = c.id AND m.revision = c.revision\n",
    to: "WHERE m.id = c.id\n",
  },
  "the plan's ceiling is not checked": {
    file: "server/src/machines/store.ts",
    from: "active_machines_locked(m.tenant_id) < c.active_max",
    to: "active_machines_locked(m.tenant_id) < c.active_max + 4",
  },
  "a node's room is not checked": {
    file: "server/src/machines/store.ts",
    from: "THEN node_admits_start(c.node_id, c.is_new, m.cpus, m.memory_mb, c.cpu_overcommit, c.memory_overcommit)",
    to: "THEN true",
  },
  "a machine that is started while it moves takes no room": {
    file: "server/src/machines/store.ts",
    from: "ELSE nodes_admit_start_in_move(",
    to: "ELSE true OR nodes_admit_start_in_move(",
  },
  "a late report is believed": {
    file: "server/src/machines/observe.ts",
    from: "if (report.generation < machine.observedGeneration) return true;",
    to: "",
  },
  "an unreached state is not sent again": {
    file: "server/src/machines/change.ts",
    from: "return isSettled(machine) ? null : now + RECONCILE_AFTER_MS;",
    to: "return null;",
  },
  "a delete is sent once": {
    file: "server/src/machines/store.ts",
    from: "reconcile_at = CASE WHEN node_id IS NULL THEN NULL ELSE ${now}::timestamptz END",
    to: "reconcile_at = NULL",
  },
  "the work of a dead server is not continued": {
    file: "server/src/operations/run.ts",
    from: "export const OPERATION_LEASE_MS = 10_000;",
    to: "export const OPERATION_LEASE_MS = 10_000_000_000;",
  },
  "a machine that moves receives what is desired": {
    file: "server/src/machines/state.ts",
    from: 'desiredState === "running" && moveId !== null ? "stopped" : desiredState;',
    to: "desiredState;",
  },
  "an owner's disk is removed as a copy": {
    file: "server/src/moves/store.ts",
    from: "m.node_id <> c.node_id AND m.move_node_id IS DISTINCT FROM c.node_id",
    to: "m.move_node_id IS DISTINCT FROM c.node_id",
  },
  "a move changes a machine that it does not hold": {
    file: "server/src/moves/store.ts",
    from: "WHERE id = ${machine.id} AND revision = ${machine.revision} AND move_id = ${moveId} AND deleted_at IS NULL\n      RETURNING *),\n    noted",
    to: "WHERE id = ${machine.id}\n      RETURNING *),\n    noted",
  },
  "a failed move is not undone": {
    file: "server/src/moves/worker.ts",
    from: "const released = await releaseMachine(context, { machineId, moveId: operation.id });",
    to: "const released = await releaseMachine(context, { machineId, moveId: `${operation.id}0` });",
  },
  "two claims get one machine": {
    file: "server/src/pools/store.ts",
    from: "w.claimed_at IS NULL AND w.discarded_at IS NULL AND m.deleted_at IS NULL AND m.desired_state = 'running'",
    to: "w.discarded_at IS NULL AND m.deleted_at IS NULL AND m.desired_state = 'running'",
  },
  "a stop gives away what its node may have started": {
    file: "server/src/machines/change.ts",
    from: "const mayRun = machine.moveId === null && isActive(machine) && !isActive(stopped);",
    to: "const mayRun = false;",
  },
  "a drain is begun in two writes": {
    file: "server/src/nodes/drain.ts",
    from: "const node = await beginDrain(transaction, nodeId);",
    to: "const node = await beginDrain(context.db, nodeId);",
  },
  "a run of an earlier agent is not ended": {
    file: "node/src/machines/actions/end.ts",
    from: "if (!wasWritten && !held.isInherited) return null;",
    to: "if (!wasWritten) return null;",
  },
  "copies are forgotten when their node does not answer": {
    file: "server/src/reconcilers/copies.ts",
    from: "const copies = await listRemovableCopies(services.context.db, COPIES_PER_ACTIVATION_MAX);",
    to: "const copies = await listRemovableCopies(services.context.db, 0);",
  },
};

/** Plants a bug in what is imported from now on. The process fails when its source is not found. */
export function plant(name: string): void {
  const bug = BUGS[name];
  if (bug === undefined) throw new Error(`no bug is called ${name}`);
  let isPlanted = false;
  registerHooks({
    load(url, context, next) {
      const loaded = next(url, context);
      if (!url.endsWith(`/${bug.file}`)) return loaded;
      const source = Buffer.from(loaded.source as Uint8Array).toString();
      if (source.split(bug.from).length !== 2) throw new Error(`${bug.file} does not have once: ${bug.from}`);
      isPlanted = true;
      return { ...loaded, source: source.replace(bug.from, () => bug.to) };
    },
  });
  process.on("exit", () => {
    if (!isPlanted) process.exitCode = 1;
  });
}
