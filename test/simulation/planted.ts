/**
 * Bugs that a simulation must find: each replaces pieces of the shipped source when it is imported.
 */
import { registerHooks } from "node:module";

interface Change {
  /** The end of the file's path. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

interface Bug {
  readonly changes: readonly Change[];
}

export const BUGS: Readonly<Record<string, Bug>> = {
  "the end of a run is not recorded": {
    changes: [
      {
        file: "node/src/machines/run-journal.ts",
        from: "if (known === undefined || known.endedAt !== null) return this.saved();",
        to: "if (known !== undefined) return this.saved();",
      },
    ],
  },
  "a run of an earlier agent is not ended": {
    changes: [
      {
        file: "node/src/machines/actions/end.ts",
        from: "if (!wasWritten && !held.isInherited) return null;",
        to: "if (!wasWritten) return null;",
      },
    ],
  },
  "a report of all runs ends those that continue": {
    changes: [
      {
        file: "server/src/machines/apply-runs.ts",
        from: "const bootIds = runs.map(({ bootId }) => bootId);",
        to: "const bootIds: string[] = [];",
      },
    ],
  },
  "a report ends the runs of other boots": {
    changes: [
      {
        file: "server/src/machines/run-store.ts",
        from: "WHERE r.boot_id = run.boot_id AND r.node_id = run.node_id AND r.ended_at IS NULL",
        to: "WHERE r.machine_id = run.machine_id AND r.node_id = run.node_id AND r.ended_at IS NULL",
      },
    ],
  },
  "a boot is billed before its guest runs": {
    changes: [
      {
        file: "node/src/machines/actions/boot.ts",
        from: "machine.held.hold(vm);",
        to: "machine.held.hold(vm); machine.deps.runs.open({ bootId, machineId: machine.journal.machineId, startedAt: clock.now() });",
      },
    ],
  },
  "a VM is forgotten when its agent starts again": {
    changes: [
      {
        file: "node/src/machines/adopt.ts",
        from: "fleet.restore(journal);",
        to: "fleet.restore({ ...journal, boot: null });",
      },
      {
        file: "node/src/machines/adopt.ts",
        from: "const swept = await driver.sweep(liveBoots);",
        to: "const swept = 0;",
      },
    ],
  },
  "a node obeys a late request": {
    changes: [
      {
        file: "node/src/machines/supervisor.ts",
        from: 'if (generation <= known.generation || known.desired === "absent") return "stale";',
        to: 'if (known.desired === "absent") return "stale";',
      },
    ],
  },
  "a report that was lost is not repeated": {
    changes: [
      {
        file: "node/src/link/report.ts",
        from: "const { joinToken } = this.#options;\n    this.#isComplete = true;",
        to: "const { joinToken } = this.#options;",
      },
    ],
  },
  "a late report is applied": {
    changes: [
      {
        file: "server/src/machines/observe.ts",
        from: "if (report.generation < machine.observedGeneration) return !isRunningAfterFailure(machine, report);",
        to: "",
      },
      {
        file: "server/src/machines/observe.ts",
        from: "return isApplied(machine) && position[report.state] < position[machine.observedState];",
        to: "return false;",
      },
      {
        file: "server/src/machines/observe.ts",
        from: 'if (endedBoots.has(uncertainBoot(machine, report) ?? "")) return true;',
        to: "",
      },
      {
        file: "server/src/machines/observe.ts",
        from: 'if (machine.observedState === "stopped" && report.bootId === machine.observedBootId && isBoot(report)) return true;',
        to: "",
      },
    ],
  },
  "writes are not fenced": {
    changes: [
      {
        file: "server/src/machines/store.ts",
        from: "WHERE m.id = c.id AND m.revision = c.revision",
        to: "WHERE m.id = c.id",
      },
    ],
  },
  "the machines of a plan are not counted": {
    changes: [
      {
        file: "server/src/machines/store.ts",
        from: "ELSE tenant_admits_start(m.tenant_id, c.active_max, m.cpus, m.memory_mb)",
        to: "ELSE true",
      },
    ],
  },
  "the room of a node is not counted": {
    changes: [
      {
        file: "server/src/machines/store.ts",
        from: "THEN node_admits_start(c.node_id, c.is_new, m.cpus, m.memory_mb, c.cpu_overcommit, c.memory_overcommit)",
        to: "THEN node_admits_start(c.node_id, c.is_new, 0, 0, c.cpu_overcommit, c.memory_overcommit)",
      },
    ],
  },
  "a machine that is started while it moves takes no room": {
    changes: [
      {
        file: "server/src/machines/store.ts",
        from: "ELSE nodes_admit_start_in_move(",
        to: "ELSE true OR nodes_admit_start_in_move(",
      },
    ],
  },
  "a stop gives away what its node may have started": {
    changes: [
      {
        file: "server/src/machines/change.ts",
        from: "const mayRun = machine.moveId === null && isActive(machine) && !isActive(stopped);",
        to: "const mayRun = false;",
      },
    ],
  },
  "a desired state is sent once": {
    changes: [
      {
        file: "server/src/machines/store.ts",
        from: "UPDATE machines SET reconcile_at = ${instantOf(now + leaseMs)} WHERE id IN",
        to: "UPDATE machines SET reconcile_at = NULL WHERE ${leaseMs} > 0 AND id IN",
      },
    ],
  },
  "a delete is sent once": {
    changes: [
      {
        file: "server/src/machines/store.ts",
        from: "reconcile_at = CASE WHEN node_id IS NULL THEN NULL ELSE ${now}::timestamptz END",
        to: "reconcile_at = NULL",
      },
    ],
  },
  "a deleted machine is answered from memory": {
    changes: [
      {
        file: "server/src/machines/machine-cache.ts",
        from: "if (entry === undefined || this.#context.clock.monotonic() - entry.readAt > AGE_MAX_MS) return undefined;",
        to: "if (entry === undefined) return undefined;",
      },
    ],
  },
  "a machine that is in memory is found by another tenant": {
    changes: [
      {
        file: "server/src/machines/machine-cache.ts",
        from: "return entry.machine.tenantId === name.tenantId ? entry.machine : undefined;",
        to: "return entry.machine;",
      },
    ],
  },
  "a cordoned node gets machines": {
    changes: [
      {
        file: "server/src/placement/place.ts",
        from: "excludes: ({ node }) => node.isCordoned,",
        to: "excludes: () => false,",
      },
      { file: "server/src/machines/store.ts", from: "is_new: reservation?.isNew ?? false,", to: "is_new: false," },
      {
        file: "server/src/moves/store.ts",
        from: "status = 'ready' AND cordoned_at IS NULL AS admits",
        to: "true AS admits",
      },
    ],
  },
  "the operations of a server that died are not continued": {
    changes: [
      {
        file: "server/src/operations/store.ts",
        from: "sql`leased_until <= ${instantOf(now)} AND (kind",
        to: "sql`attempt = 0 AND leased_until <= ${instantOf(now)} AND (kind",
      },
    ],
  },
  "an operation is begun only by a notification": {
    changes: [
      { file: "server/src/operations/operations-loop.ts", from: "periodMs: 1_000", to: "periodMs: 1_000_000_000" },
    ],
  },
  "a canceled operation continues": {
    changes: [
      {
        file: "server/src/operations/run.ts",
        from: 'if (outcome === "cancelRequested") this.#interruptions.onCancel();',
        to: "",
      },
    ],
  },
  "a move that is continued begins again": {
    changes: [
      { file: "server/src/operations/run.ts", from: 'if (known?.status === "succeeded") return;', to: "" },
      { file: "server/src/moves/worker.ts", from: 'this.#wasHeld = isOver("hold");', to: "this.#wasHeld = false;" },
      {
        file: "server/src/moves/worker.ts",
        from: "if (this.#hasMoved || machine.movedBy === this.#moveId) return",
        to: "if (this.#hasMoved) return",
      },
    ],
  },
  "a move hands over before the target has the machine": {
    changes: [
      {
        file: "server/src/moves/worker.ts",
        from: "const arrived = await commitIncoming(this.#services.link, target, call, { hasMemory: keepsMemory });\n      // One that was handed over while it ran is paused there.\n      hasMemory = arrived.suspendedAt !== null || arrived.bootId !== null;",
        to: "hasMemory = keepsMemory && call !== null && target !== null && commitIncoming !== null;",
      },
      // A machine that is handed over while it runs needs no commit.
      {
        file: "server/src/moves/early.ts",
        from: "const memoryPoint = movesMemory &&",
        to: "const memoryPoint = movesMemory && diskPoint === '' &&",
      },
    ],
  },
  "a move that fails keeps its machine": {
    changes: [
      {
        file: "server/src/moves/undo.ts",
        from: "const released = await releaseMachine(context, { machineId, moveId });",
        to: "const released = (await Promise.resolve(undefined)) as Awaited<ReturnType<typeof releaseMachine>>;",
      },
    ],
  },
  "a move takes no room of its target": {
    changes: [
      {
        file: "server/src/moves/store.ts",
        from: "OR node_admits_start(${nodeId}, true, ${machine.cpus}, ${machine.memoryMb},",
        to: "OR node_admits_start(${nodeId}, true, 0 * ${machine.cpus}, 0 * ${machine.memoryMb},",
      },
    ],
  },
  "any number of machines leaves a node": {
    changes: [{ file: "server/src/moves/store.ts", from: "AND leaving.moves < ${MOVES_PER_NODE_MAX} AND", to: "AND" }],
  },
  "copies are forgotten when their node does not answer": {
    changes: [
      {
        file: "server/src/moves/copies-loop.ts",
        from: "const copies = await listRemovableCopies(services.context.db, COPIES_PER_ACTIVATION_MAX);",
        to: "const copies = await listRemovableCopies(services.context.db, 0);",
      },
    ],
  },
  "a drain is begun in two writes": {
    changes: [
      {
        file: "server/src/nodes/drain.ts",
        from: "const beginning = context.db.transaction(async (transaction) => {",
        to: "const beginning = (async (work: any) => await work(context.db))(async (transaction: any) => {",
      },
    ],
  },
  "a drain that fails leaves its node closed": {
    changes: [{ file: "server/src/nodes/drain-worker.ts", from: 'await endDrain(db, nodeId, "drainFailed");', to: "" }],
  },
  "a pool gives a machine twice": {
    changes: [
      {
        file: "server/src/pools/store.ts",
        from: "DELETE FROM machine_owners WHERE NOT EXISTS (SELECT 1 FROM claimed)",
        to: "UPDATE machine_owners SET kind = kind WHERE NOT EXISTS (SELECT 1 FROM claimed)",
      },
      { file: "server/src/pools/store.ts", from: "FROM taken)", to: "FROM taken ON CONFLICT DO NOTHING)" },
    ],
  },
  "a pool is filled twice": {
    changes: [
      {
        file: "server/src/pools/store.ts",
        from: "WHERE u.position <= ${pool.targetSize} - (",
        to: "WHERE u.position <= ${pool.targetSize} - 0 * (",
      },
    ],
  },
  "a deleted pool keeps its machines": {
    changes: [
      {
        file: "server/src/pools/state.ts",
        from: "applies: (_, { isDeleted }) => isDeleted,",
        to: "applies: () => false,",
      },
    ],
  },
  "a fence lasts longer than a lost node is silent": {
    changes: [
      {
        file: "node/src/machines/fleet.ts",
        from: "this.#deps.driver.lease.renew(sentAt + FENCE_MS);",
        to: "this.#deps.driver.lease.renew(sentAt + 2 * FENCE_MS);",
      },
    ],
  },
  "a VM is reported as fenced and has no timer": {
    changes: [
      {
        file: "node/src/machines/fence.ts",
        from: 'return fence === "on" ? "on" : undefined;',
        to: "return undefined;",
      },
      {
        file: "node/src/machines/fence.ts",
        from: "if (fence === null || fence.isArmed === isOn || journal.fence === undefined) return;",
        to: "if (fence !== null || deps !== null || log !== null) return;",
      },
      {
        file: "node/src/machines/fence.ts",
        from: "if (held.vm !== null) return hasFence(held.vm);",
        to: "",
      },
      {
        file: "node/src/machines/fence.ts",
        from: "if (journal.boot !== null) return journal.boot.isFenced === true;",
        to: "",
      },
    ],
  },
  "a fence is on the wall clock": {
    changes: [
      {
        file: "node/src/link/report.ts",
        from: "const sentAtBoottime = clock.boottime();",
        to: "const sentAtBoottime = clock.now() - ((this as any).wall ??= clock.now() - clock.boottime());",
      },
    ],
  },
  "a lease begins when its heartbeat is answered": {
    changes: [
      {
        file: "node/src/link/report.ts",
        from: "await this.#options.acknowledged?.(sentAtBoottime, answer.absentMachines);",
        to: "await this.#options.acknowledged?.(Math.max(sentAtBoottime, clock.boottime()), answer.absentMachines);",
      },
    ],
  },
  "a fenced machine starts without a lease": {
    changes: [
      {
        file: "node/src/machines/machine.ts",
        from: 'return this.#journal.fence === "on" && !this.deps.driver.lease.hasRoom;',
        to: "return false;",
      },
    ],
  },
  "a returned node runs what was replaced": {
    changes: [
      {
        file: "node/src/machines/fleet.ts",
        from: "const removals = absent.map(",
        to: "const removals = absent.slice(absent.length).map(",
      },
    ],
  },
  "a fenced machine is billed until it is deleted": {
    changes: [
      {
        file: "server/src/machines/store.ts",
        from: "THEN n.last_heartbeat_at - n.last_late_ms * interval '1 ms' END))",
        to: "THEN ${now}::timestamptz END))",
      },
    ],
  },
  "what is discarded is not deleted when its node returns": {
    changes: [
      {
        file: "server/src/nodes/heartbeat.ts",
        from: "if (isBack) await deleteDiscarded(services, nodeId);",
        to: "",
      },
    ],
  },
  "machines are replaced a second too early": {
    changes: [
      {
        file: "server/src/nodes/nodes-loop.ts",
        from: "lostAfterMs: number = HEARTBEAT_LOST_MS,",
        to: "lostAfterMs: number = HEARTBEAT_LOST_MS - 1_000,",
      },
    ],
  },
  "the brake counts only nodes that are unreachable": {
    changes: [
      {
        file: "server/src/nodes/brake.ts",
        from: "const silent = expected.filter(({ seenAt }) => now - seenAt >= OVERDUE_MS);",
        to: 'const silent = expected.filter(({ status, seenAt }) => status === "unreachable" && now - seenAt >= OVERDUE_MS);',
      },
    ],
  },
  "the brake ignores that its server was away": {
    changes: [
      {
        file: "server/src/nodes/nodes-loop.ts",
        from: "this.#since = clock.monotonic();\n    log.warn(",
        to: "log.warn(",
      },
    ],
  },
  "a repeated claim takes another machine": {
    changes: [
      {
        file: "server/src/pools/store.ts",
        from: "WHERE NOT EXISTS (SELECT 1 FROM claimed) AND machine_id = (",
        to: "WHERE machine_id = (",
      },
    ],
  },
  "a machine that its owner uses stays in its pool": {
    changes: [
      {
        file: "server/src/machines/sessions/routes.ts",
        from: "await claimForUse(services, machine);",
        to: "void claimForUse;",
      },
    ],
  },
  "a claimed machine keeps its fence": {
    changes: [
      {
        file: "server/src/pools/claim.ts",
        from: "services.inBackground(`the fence of ${claimed}`, () => liftFence(services, claimed));",
        to: "void liftFence;",
      },
      {
        file: "server/src/pools/pools-loop.ts",
        from: "const given = await listGiven(services.context.db, GIVEN_AT_A_TIME);",
        to: "const given = await listGiven(services.context.db, 0 * GIVEN_AT_A_TIME);",
      },
    ],
  },
  "a late request fences a machine again": {
    changes: [
      {
        file: "node/src/machines/fence.ts",
        from: 'if (state === "absent" || known === "lifted") return known;',
        to: 'if (state === "absent") return known;',
      },
    ],
  },
  "a prepared VM is given to two machines": {
    changes: [
      {
        file: "node/src/machines/prepared/kinds.ts",
        from: "return { taken: kind.waiting.shift(), displaced };",
        to: "return { taken: kind.waiting[0], displaced };",
      },
    ],
  },
  "a branch that fails keeps a machine": {
    changes: [
      {
        file: "server/src/branches/worker.ts",
        from: "for (const { id } of clones) await deleteIfMade",
        to: "for (const { id } of clones.slice(1)) await deleteIfMade",
      },
    ],
  },
  "the points of branches stay on their nodes": {
    changes: [
      {
        file: "server/src/branches/points-loop.ts",
        from: "if (address !== null) await removePoint",
        to: "if (address === null) await removePoint",
      },
    ],
  },
  "a released point takes the disk below others": {
    changes: [
      {
        file: "node/src/points/points.ts",
        from: "const named = new Set([...layersOf(),",
        to: "const named = new Set([",
      },
    ],
  },
};

/** Plants a bug in what is imported from now on. The process fails when its source is not found. */
export function plant(name: string): void {
  const bug = BUGS[name];
  if (bug === undefined) throw new Error(`no bug is called ${name}`);
  const unplanted = new Set(bug.changes);
  registerHooks({
    load(url, context, next) {
      const loaded = next(url, context);
      const changes = bug.changes.filter(({ file }) => url.endsWith(`/${file}`));
      if (changes.length === 0) return loaded;
      let source = Buffer.from(loaded.source as Uint8Array).toString();
      for (const change of changes) {
        if (source.split(change.from).length !== 2)
          throw new Error(`${change.file} does not have once: ${change.from}`);
        source = source.replace(change.from, () => change.to);
        unplanted.delete(change);
      }
      return { ...loaded, source };
    },
  });
  process.on("exit", () => {
    if (unplanted.size > 0) process.exitCode = 1;
  });
}
