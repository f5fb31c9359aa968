/**
 * What must be true of a cluster: after every step, and at the end, when no request comes any more and every
 * fault has healed. That no machine runs twice and that no second disk is made is watched at every write of a
 * file (cluster.ts).
 */
import { isSettled, phaseOf } from "../../server/src/machines/state.ts";
import { MOVES_PER_NODE_MAX } from "../../server/src/moves/store.ts";
import type { Cluster } from "./cluster.ts";
import type { AppRow, MachineRow, Rows, RunRow } from "./rows.ts";

const ENDED = new Set(["succeeded", "failed", "canceled"]);

/** What callers rely on. */
export interface Promised {
  /** Machines whose creation was acknowledged. */
  readonly created: ReadonlySet<string>;
  /** Machines whose deletion was requested, whatever came of it. */
  readonly deletions: ReadonlySet<string>;
  /** Since when there are no more faults, in virtual milliseconds; null: there are. */
  readonly healedAt: number | null;
}

/** What is there, and what was there after the step before. */
export interface Seen {
  readonly before: Rows | null;
  readonly rows: Rows;
}

/** How long a statement is under way to the database and back, while other requests are answered. */
const STATEMENT_MS_MAX = 100;
/** A canceled operation ends within this time, also when another server continues it. */
const CANCELED_MS_MAX = 45_000;

/** After every step. */
export function checkStep(cluster: Cluster, { before, rows }: Seen, { created, deletions, healedAt }: Promised): void {
  const { world, running } = cluster;
  const byId = new Map(rows.machines.map((machine) => [machine.id, machine]));
  for (const id of created) {
    const machine = byId.get(id);
    if (machine === undefined || (machine.isDeleted && !deletions.has(id)))
      world.violate(`machine ${id} is lost: its creation was acknowledged, and no caller deleted it`);
  }
  for (const [id, count] of cluster.disksMade)
    if (count > 1 && !deletions.has(id)) world.violate(`machine ${id} got another, empty disk: its first one is lost`);
  for (const { machineId, node, isPaused } of running) {
    // The former node of a machine that was handed over still has it.
    if (isPaused) continue;
    const machine = byId.get(machineId);
    if (machine === undefined)
      world.violate(`a VM of machine ${machineId} runs on ${node}, and the machine does not exist`);
    else if (machine.nodeId !== node && !machine.isDeleted)
      world.violate(`machine ${machineId} runs on ${node}, and ${machine.nodeId} owns it`);
  }
  for (const { id, nodeId, isDeleted } of rows.machines) {
    if (isDeleted || !cluster.disksMade.has(id) || nodeId === null) continue;
    if (!cluster.files.has(`/simulated/${nodeId}/node/machines/${id}/disk`))
      world.violate(`machine ${id} has no disk any more on its node ${nodeId}`);
  }
  checkCapacity(cluster, rows);
  const active = rows.machines.filter(({ isActive }) => isActive).map(({ id }) => id);
  if (active.join() !== rows.held.join())
    world.violate(`something is held for ${rows.held.join()}, and ${active.join()} are active`);
  for (const { id, members, targetSize, isDeleted } of rows.pools)
    if (members > targetSize && !isDeleted)
      world.violate(`pool ${id} has ${members} machines instead of ${targetSize}`);
  checkMoves(cluster, rows);
  checkApps(cluster, rows);
  if (before !== null) checkChanges(cluster, before, rows);
  checkCanceled(cluster, rows, healedAt);
}

/** No ingress sends a request to an instance that may be stopped, and every instance is in a row. */
function checkApps({ world, liveServers }: Cluster, { apps, machines }: Rows): void {
  const instances = new Map(apps.flatMap((app) => app.instances.map((instance) => [instance.machineId, instance])));
  for (const { id, appId, isDeleted } of machines)
    if (appId !== null && !isDeleted && !instances.has(id)) world.violate(`machine ${id} is left of app ${appId}`);
  for (const server of liveServers) {
    for (const { id } of apps) {
      const chosen = server.chooseInstance(id)?.target.machine.id;
      if (chosen === undefined) continue;
      const instance = instances.get(chosen);
      if (instance === undefined || instance.isRemoved)
        world.violate(`${server.program.name} serves app ${id} by ${chosen}, which may be stopped`);
    }
  }
}

/** A node sends at most two machines at a time, and a machine is held only by a move that runs. */
function checkMoves({ world, nodes }: Cluster, { machines, operations }: Rows): void {
  const status = new Map(operations.map((operation) => [operation.id, operation.status]));
  const moving = machines.filter(({ moveId }) => moveId !== null);
  for (const { name } of nodes) {
    const leaving = moving.filter(({ nodeId }) => nodeId === name).length;
    if (leaving > MOVES_PER_NODE_MAX) world.violate(`${leaving} machines leave ${name} at a time`);
  }
  for (const { id, moveId } of moving)
    if (ENDED.has(status.get(moveId ?? "") ?? "")) world.violate(`machine ${id} is held by ${moveId}, which has ended`);
}

/** What a step may have changed of machines: their nodes, and what is known of them. */
function checkChanges({ world }: Cluster, before: Rows, { machines, nodes }: Rows): void {
  const known = new Map(before.machines.map((machine) => [machine.id, machine]));
  const cordonedBefore = new Map(before.nodes.map(({ id, cordonedAt }) => [id, cordonedAt]));
  const isCordoned = (name: string | null): boolean =>
    nodes.some(({ id, cordonedAt }) => id === name && cordonedAt !== null && cordonedAt === cordonedBefore.get(id));
  for (const { id, nodeId, moveNodeId, movedBy, observedGeneration, isDeleted } of machines) {
    const was = known.get(id);
    const from = was?.nodeId ?? null;
    if (from !== null && from !== nodeId && was?.movedBy === movedBy)
      world.violate(`machine ${id} went from ${from} to ${nodeId} without a move, or twice by one`);
    if (from === null && isCordoned(nodeId)) world.violate(`machine ${id} was placed on ${nodeId}, which is cordoned`);
    if (moveNodeId !== (was?.moveNodeId ?? null) && isCordoned(moveNodeId))
      world.violate(`machine ${id} moves to ${moveNodeId}, which is cordoned`);
    // 0: its node has lost it, or another one owns it. Of a deleted one any remains are known.
    const seen = was?.observedGeneration ?? 0;
    if (observedGeneration < seen && observedGeneration !== 0 && from === nodeId && !isDeleted)
      world.violate(`a report of generation ${observedGeneration} of machine ${id} was applied after one of ${seen}`);
  }
}

/** A canceled operation begins no step any more, and ends. */
function checkCanceled({ world, serversApartMs }: Cluster, { operations }: Rows, healedAt: number | null): void {
  for (const { id, kind, status, canceledAt, stepSince } of operations) {
    if (stepSince !== null && stepSince.ms > serversApartMs + STATEMENT_MS_MAX)
      world.violate(`operation ${id} (${kind}) was canceled before it began to ${stepSince.name}`);
    if (canceledAt === null || healedAt === null || ENDED.has(status)) continue;
    const ms = world.toEpoch(world.now) - Math.max(canceledAt, world.toEpoch(healedAt));
    if (ms > CANCELED_MS_MAX + serversApartMs)
      world.violate(`operation ${id} (${kind}) was canceled ${ms.toFixed()} ms ago, and runs`);
  }
}

/** Checks the capacity of the plan and of each node, as promised and as it really runs. */
function checkCapacity({ world, nodes, running }: Cluster, { machines, activeMax }: Rows): void {
  const active = machines.filter(({ isActive }) => isActive);
  for (const [tenantId, { length }] of Map.groupBy(active, (machine) => machine.tenantId))
    if (length > activeMax)
      world.violate(`${length} machines of ${tenantId} are active, and the plan allows ${activeMax}`);
  const byId = new Map(machines.map((machine) => [machine.id, machine]));
  for (const { name, resources } of nodes) {
    const promised = sum(active.filter((machine) => isHeldFor(machine, name)).map(({ cpus }) => cpus));
    if (promised > resources.cpus)
      world.violate(
        `${promised} processors of ${name} are promised, and it has ${resources.cpus}: ${JSON.stringify(active.filter((machine) => isHeldFor(machine, name)))}`,
      );
    const used = sum(
      running.map((vm) => {
        const machine = byId.get(vm.machineId);
        // A VM that was handed over uses no processor. Only its memory stays until its node is notified, also
        // when a server dies before that.
        const isHandedOver = vm.isPaused && machine?.nodeId !== name;
        return vm.node === name && machine?.isDeleted === false && !isHandedOver ? machine.cpus : 0;
      }),
    );
    if (used > resources.cpus) world.violate(`VMs use ${used} processors of ${name}, and it has ${resources.cpus}`);
  }
}

const isHeldFor = ({ nodeId, moveNodeId, moveStops }: MachineRow, name: string): boolean =>
  nodeId === name || (moveNodeId === name && !moveStops);

const sum = (numbers: readonly number[]): number => numbers.reduce((total, each) => total + each, 0);

/**
 * Why the cluster is not at its end, after its last fault at `healedAt`; null: the desired state is reached.
 */
export function whatIsOpen(cluster: Cluster, rows: Rows, healedAt: number): string | null {
  // An app whose instances fail, as when the plan's ceiling refuses them, tries again later each time.
  const failing = new Set(rows.apps.flatMap(({ id, failure }) => (failure === null ? [] : [id])));
  for (const { id, kind, status, resourceId } of rows.operations)
    if (!ENDED.has(status) && !(kind === "app scale" && failing.has(resourceId)))
      return `operation ${id} (${kind}) is ${status}`;
  for (const machine of rows.machines) {
    if (machine.moveId !== null) return `machine ${machine.id} is still held by a move`;
    if (!isSettled(machine)) return `machine ${machine.id} is ${phaseOf(machine)}`;
    const vms = cluster.running.filter(({ machineId }) => machineId === machine.id);
    const isToRun = !machine.isDeleted && phaseOf(machine) === "running";
    if (isToRun !== vms.length > 0) return `machine ${machine.id} is ${phaseOf(machine)} and has ${vms.length} VMs`;
    if (isToRun && vms[0]?.bootId !== machine.observedBootId) return `machine ${machine.id} runs in another boot`;
  }
  for (const { name, directory, isRunning } of cluster.nodes) {
    if (!isRunning) return `${name} has no agent`;
    const status = rows.nodes.find(({ id }) => id === name)?.status ?? "unknown";
    if (status !== "ready" && status !== "drained") return `${name} is ${status}`;
    // A connection may break long after its fault.
    if (cluster.fences.acknowledgedAt(name) < healedAt) return `${name} has not reported yet`;
    for (const id of cluster.files.names(`${directory}/machines`)) {
      const machine = rows.machines.find((each) => each.id === id);
      if (machine === undefined || machine.isDeleted || machine.nodeId !== name)
        return `${name} has files of machine ${id}`;
    }
  }
  const branched = whatIsOpenOfBranches(cluster, rows);
  if (branched !== null) return branched;
  if (rows.copies.length > 0) return `copies are left: ${JSON.stringify(rows.copies)}`;
  for (const { id, isDeleted, idle, targetSize, error } of rows.pools) {
    if (isDeleted) return `pool ${id} is deleted and not gone`;
    // One that the ceiling of the plan or a full node keeps from it says so, and tries again later each time.
    if (idle < targetSize && error === null) return `${idle} of ${targetSize} machines wait in pool ${id}`;
  }
  for (const app of rows.apps) {
    const open = whatIsOpenOf(app, rows);
    if (open !== null) return `app ${app.name} ${open}`;
  }
  const fenced = rows.machines.find(({ fence, isInPool, isDeleted }) => fence !== null && !isInPool && !isDeleted);
  if (fenced !== undefined) return `machine ${fenced.id} was given to a caller, and is fenced`;
  const inPool = new Set(rows.machines.flatMap(({ id, isInPool }) => (isInPool ? [id] : [])));
  const timed = cluster.running.find(({ bootId, machineId }) => cluster.fences.has(bootId) && !inPool.has(machineId));
  if (timed !== undefined) return `the VM of machine ${timed.machineId} has a timer, and no pool has the machine`;
  return null;
}

/** All machines of a branch are there or none is, and nodes keep of points only the layers of disks. */
function whatIsOpenOfBranches({ nodes, files }: Cluster, { machines, operations, points }: Rows): string | null {
  const byId = new Map(machines.map((machine) => [machine.id, machine]));
  for (const { id, status, clones } of operations) {
    const left = clones.find((clone) => byId.get(clone)?.isDeleted === false);
    if (status !== "succeeded" && left !== undefined) return `machine ${left} is left of ${id}, which is ${status}`;
    const missing = clones.find((clone) => !byId.has(clone));
    if (status === "succeeded" && missing !== undefined) return `${id} has succeeded, and ${missing} is not there`;
  }
  if (points.length > 0) return `${points[0]} is kept, and no branch uses it`;
  for (const { name, directory } of nodes) {
    const journals = files.names(`${directory}/machines`).flatMap((id) => {
      const text = files.text(`${directory}/machines/${id}/journal.json`);
      return text === null ? [] : [{ id, layers: (JSON.parse(text) as { layers?: readonly string[] }).layers ?? [] }];
    });
    for (const { id, layers } of journals) {
      const lost = layers.find((layer) => !files.has(`${directory}/points/${layer}/disk.qcow2`));
      if (lost !== undefined) return `the disk of machine ${id} is on top of ${lost}, which ${name} has not any more`;
    }
    const needed = new Set(journals.flatMap(({ layers }) => layers));
    const left = files.names(`${directory}/points`).find((point) => !needed.has(point));
    if (left !== undefined) return `${name} has files of ${left}, which no disk is on top of`;
  }
  return null;
}

/** What an app does that is as it should be: nothing; or it says what keeps it from that. */
function whatIsOpenOf(app: AppRow, { machines }: Rows): string | null {
  const { count, currentRelease, failure, instances, isDestroyed, rollout, waitingFor } = app;
  if (isDestroyed) return instances.length === 0 ? null : `is destroyed, and has ${instances.length} instances`;
  if (rollout !== null) return rollout.phase === "awaitingPromotion" ? null : `is ${rollout.phase}: ${waitingFor}`;
  // It tries again later each time.
  if (failure !== null) return null;
  const asked = currentRelease === null ? 0 : count;
  if (instances.length !== asked) return `has ${instances.length} of ${asked} instances: ${waitingFor}`;
  const unserved = instances.find(({ machineId, isRouted, release }) => {
    const machine = machines.find(({ id }) => id === machineId);
    return !isRouted || release !== currentRelease || machine === undefined || phaseOf(machine) !== "running";
  });
  return unserved === undefined ? null : `has ${unserved.machineId}, which does not serve: ${waitingFor}`;
}

/**
 * What a server bills for longer than a fenced VM ran: its last heartbeat may have been on its way when it
 * ended.
 */
const SERVER_MS_MAX = 1_500;

/** At the end: what is billed is what ran. */
export function checkRuns(
  cluster: Cluster,
  rows: Rows,
  runs: readonly RunRow[],
  { toleranceMs, isForgiven }: { readonly toleranceMs: number; readonly isForgiven: (node: string) => boolean },
): void {
  const { world, vms, ran, unseen } = cluster;
  const byBoot = new Map(runs.map((run) => [run.bootId, run]));
  for (const [bootId, { machineId, node }] of ran) {
    const vm = vms.get(bootId);
    if (byBoot.has(bootId) || unseen.has(bootId) || vm === undefined || (vm.to !== null && isForgiven(node))) continue;
    world.violate(`machine ${machineId} ran as ${bootId} on ${node}, and no run was recorded`);
  }
  for (const run of runs) {
    const vm = vms.get(run.bootId);
    if (vm === undefined) {
      world.violate(`a run was recorded of boot ${run.bootId}, which never was`);
      continue;
    }
    if (vm.node !== run.nodeId || vm.machineId !== run.machineId)
      world.violate(`the run of ${run.bootId} is recorded for ${run.machineId} on ${run.nodeId}`);
    if ((run.endedAt === null) !== (vm.to === null))
      world.violate(
        `the run of ${run.bootId} is ${run.endedAt === null ? "open" : "ended"}, and its VM ${vm.to === null ? "runs" : "has ended"}`,
      );
    if (!vm.isConfigured) world.violate(`a run of ${run.bootId} was recorded, whose guest never ran`);
    checkTimes(cluster, run, toleranceMs);
  }
  const open = rows.machines.filter((machine) => !machine.isDeleted && phaseOf(machine) === "running");
  const owners = new Map(rows.machines.map(({ id, tenantId }) => [id, tenantId]));
  for (const { bootId, machineId, tenantId } of runs)
    if (owners.get(machineId) !== tenantId) world.violate(`the run of ${bootId} is recorded for ${tenantId}`);
  for (const { id, observedBootId } of open)
    if (byBoot.get(observedBootId ?? "")?.endedAt !== null)
      world.violate(`machine ${id} runs, and its run is not open`);
}

function checkTimes({ world, vms, fences, serversApartMs }: Cluster, run: RunRow, toleranceMs: number): void {
  const vm = vms.get(run.bootId);
  if (vm === undefined) return;
  const [from, to] = [world.toEpoch(vm.from), vm.to === null ? null : world.toEpoch(vm.to)];
  // What ran after the deletion of its machine is recorded at the deletion, and nothing of it counts.
  if (run.startedAt < Math.min(from, run.countedUntil ?? from) - toleranceMs)
    world.violate(`the run of ${run.bootId} began ${from - run.startedAt} ms before its VM`);
  if (run.endedAt !== null && to !== null && run.endedAt > to + toleranceMs)
    world.violate(`the run of ${run.bootId} ended ${run.endedAt - to} ms after its VM, because of ${run.cause}`);
  if (run.endedAt === null) return;
  const lengths = [run.endedAt - run.startedAt];
  // A deleted machine counts up to its deletion, also when its node reports an earlier end afterwards.
  if (run.countedUntil !== null) lengths.push(Math.max(0, run.countedUntil - run.startedAt));
  if (!lengths.some((length) => run.counted !== null && Math.abs(run.counted - length) <= 2))
    world.violate(`the run of ${run.bootId} took ${lengths.join(" or ")} ms, and ${run.counted} ms of it are counted`);
  // No server knows anything of another guest that ended by itself while its agent was stopped.
  if (to === null || run.counted === null || !fences.ended.has(run.bootId)) return;
  // It began by a clock that is ahead, and was deleted by one that is not: less is billed than ran.
  if (run.counted <= to - from) return;
  // A deletion ends what is billed by the clock of a server, which is right; a report by that of the node.
  const isByServer = run.countedUntil !== null && Math.abs(run.startedAt + run.counted - run.countedUntil) <= 2;
  const lateMs = run.startedAt + run.counted - to;
  if (lateMs > (isByServer ? SERVER_MS_MAX + serversApartMs : toleranceMs))
    world.violate(`the run of ${run.bootId} is billed until ${lateMs.toFixed()} ms after its fence ended it`);
}
