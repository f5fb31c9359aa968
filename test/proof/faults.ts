/**
 * What is done to the cluster, one after the other.
 *
 * A killed program is started again by its supervisor at once. The standby of a killed primary is promoted,
 * and the killed one becomes its standby. A stopped program continues, and a pulled cable is plugged in,
 * after a time. No fault is repaired in any other way.
 */
import { type Cluster, DATABASES, NODES, SERVERS } from "./cluster.ts";

export interface Fault {
  /** As in the table. */
  readonly name: string;
  /** From its begin to its end, in milliseconds. 0: it is over when `begin` has resolved. */
  readonly lastsMs: number;
  begin(cluster: Cluster): Promise<void> | void;
  end?(cluster: Cluster): Promise<void> | void;
}

/** Longer than servers and nodes wait for an answer of each other before they use another connection. */
const STOPPED_MS = 10_000;
/** Longer than a node may be silent before it is unreachable. */
const NODE_UNPLUGGED_MS = 25_000;

const killProgram = (name: string): Fault => ({
  name: `${name} killed`,
  lastsMs: 0,
  async begin(cluster) {
    await cluster.program(name).kill();
    await cluster.program(name).start();
  },
});

const stopProgram = (name: string): Fault => ({
  name: `${name} stopped`,
  lastsMs: STOPPED_MS,
  begin: (cluster) => cluster.program(name).signal("SIGSTOP"),
  end: (cluster) => cluster.program(name).signal("SIGCONT"),
});

const unplug = (name: string, lastsMs: number): Fault => ({
  name: `cable of ${name} pulled`,
  lastsMs,
  begin: (cluster) => cluster.host(name).unplug(),
  end: (cluster) => cluster.host(name).plugIn(),
});

const databaseFaults: readonly Fault[] = [
  {
    name: "primary killed, standby promoted",
    lastsMs: 0,
    async begin({ postgres }) {
      await postgres.primary.signal("SIGKILL");
      await postgres.failOver();
    },
  },
  {
    name: "primary stopped",
    lastsMs: STOPPED_MS,
    begin: ({ postgres }) => postgres.primary.signal("SIGSTOP"),
    end: ({ postgres }) => postgres.primary.signal("SIGCONT"),
  },
  {
    name: "cable of the primary pulled",
    lastsMs: STOPPED_MS,
    begin: (cluster) => cluster.host(primaryHost(cluster)).unplug(),
    end: (cluster) => cluster.host(primaryHost(cluster)).plugIn(),
  },
  {
    name: "standby killed",
    lastsMs: 0,
    async begin({ postgres }) {
      await postgres.standby.stop();
      await postgres.standby.start();
    },
  },
  {
    name: "standby stopped",
    lastsMs: STOPPED_MS,
    begin: ({ postgres }) => postgres.standby.signal("SIGSTOP"),
    end: ({ postgres }) => postgres.standby.signal("SIGCONT"),
  },
];

function primaryHost({ hosts, postgres }: Cluster): string {
  const name = DATABASES.find((each) => hosts.get(each)?.address === postgres.primary.place.address);
  if (name === undefined) throw new Error("the primary is on no host");
  return name;
}

/** The VMMs of machines, from outside. */
function machineVmm(cluster: Cluster): number {
  const vmm = cluster.vmms().find(({ machines }) => machines.length > 0);
  if (vmm === undefined) throw new Error("no machine runs");
  return vmm.pid;
}

/** A VMM keeps the signal's target while it is stopped: others may start meanwhile. */
function vmmFaults(): readonly Fault[] {
  let stopped = 0;
  return [
    {
      name: "a VMM killed",
      lastsMs: 0,
      begin: (cluster) => void process.kill(machineVmm(cluster), "SIGKILL"),
    },
    {
      name: "a VMM stopped",
      lastsMs: STOPPED_MS,
      begin(cluster) {
        stopped = machineVmm(cluster);
        process.kill(stopped, "SIGSTOP");
      },
      end: () => continueProcess(stopped),
    },
  ];
}

function continueProcess(pid: number): void {
  try {
    process.kill(pid, "SIGCONT");
  } catch {
    // It was ended meanwhile: a stop does not wait for a guest that does not answer.
  }
}

export const FAULTS: readonly Fault[] = [
  ...NODES.map((name) => killProgram(name)),
  ...NODES.map((name) => unplug(name, NODE_UNPLUGGED_MS)),
  ...databaseFaults,
  ...SERVERS.map((name) => killProgram(name)),
  ...SERVERS.map((name) => stopProgram(name)),
  ...SERVERS.map((name) => unplug(name, STOPPED_MS)),
  ...NODES.map((name) => stopProgram(name)),
  ...vmmFaults(),
];
