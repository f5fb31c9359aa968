/**
 * A node agent without a process: a fleet with the fake driver on a temporary directory, for tests.
 *
 * `abandon` drops a fleet as a crash would: its timers and VM objects remain, it is not called again, and
 * nothing is closed. The clock can run faster than real time, so that deadlines of seconds pass in
 * milliseconds.
 */
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { type Clock, systemClock } from "@flotilla/base/clock";
import { printEvent } from "@flotilla/contract/event-types";
import type { DesiredState, MachineSpec, NodeResources, ObservedMachine } from "@flotilla/contract/link/link";
import { Branches } from "../../src/branches/branches.ts";
import type { Disks } from "../../src/disks/disks.ts";
import { fakeDisks } from "../../src/driver/fake/disks.ts";
import { FakeImages } from "../../src/driver/fake/images.ts";
import { FakeDriver } from "../../src/driver/fake/index.ts";
import type { FakePreparing } from "../../src/driver/fake/prepared.ts";
import type { Images } from "../../src/images/images.ts";
import { makeLog } from "../../src/log.ts";
import { type Adoption, adoptMachines } from "../../src/machines/adopt.ts";
import { Fleet } from "../../src/machines/fleet.ts";
import { RunJournal } from "../../src/machines/run-journal.ts";
import { makeMachineDeps, type MachineDeps } from "../../src/machines/machine-deps.ts";
import type { SupervisedMachine } from "../../src/machines/node-machine.ts";
import { Replacements } from "../../src/replacing/replacements.ts";

export interface TestNode {
  readonly fleet: Fleet;
  readonly replacements: Replacements;
  readonly branches: Branches;
  readonly deps: MachineDeps;
  readonly driver: FakeDriver;
  readonly images: FakeImages;
  readonly events: { readonly machineId: string; readonly level: string; readonly message: string }[];
  readonly logLines: string[];
  readonly clock: Clock;
  readonly adoption: Adoption;
  want(machineId: string, generation: number, state: DesiredState, more?: Want): Promise<ObservedMachine>;
}

export interface Want {
  readonly spec?: Partial<MachineSpec>;
  readonly env?: Readonly<Record<string, string>>;
  readonly image?: string;
  readonly waitMs?: number;
  readonly keepsMemory?: boolean;
  readonly isFenced?: boolean;
}

export const machineIdOf = (letter: string): string => `mach-${letter.repeat(32)}`;

export function specOf(machineId: string, { spec, env, image }: Want = {}): MachineSpec {
  return {
    machineId,
    tenantId: "tenant-1",
    hostname: "test",
    image: { reference: image ?? "local/busybox", arch: null },
    cpus: 1,
    memoryMb: 256,
    diskGb: 1,
    network: { mode: "open" },
    env: env ?? {},
    workdir: null,
    command: null,
    ports: [],
    restart: "always",
    disruption: "migrate",
    health: null,
    ...spec,
  };
}

export async function temporaryDirectory(): Promise<{ readonly path: string } & AsyncDisposable> {
  const path = await mkdtemp(join(tmpdir(), "flotilla-node-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true, maxRetries: 10 }) };
}

/** A clock whose timers fire `factor` times sooner. */
export function hurriedClock(factor: number): Clock {
  return {
    ...systemClock,
    sleep: (ms, signal) => systemClock.sleep(ms / factor, signal),
    timer: (ms, callback) => systemClock.timer(ms / factor, callback),
  };
}

const RESOURCES: NodeResources = {
  totalCpus: 2,
  totalMemoryMb: 16_384,
  availableMemoryMb: 16_384,
  totalDiskGb: 100,
  availableDiskGb: 100,
  usedCpus: 0,
  usedMemoryMb: 0,
  usedDiskGb: 0,
  pressure: null,
};

/** Starts a node on the directory, like a start of its process. */
export async function startTestNode(
  directory: string,
  options: {
    readonly clock?: Clock;
    readonly bootsAtOnceMax?: number;
    readonly availableMemoryMb?: () => number;
    readonly lastAliveAt?: number;
    /** What is installed when the agent starts. */
    readonly program?: string;
    /** The driver has none of the parts that it may lack. */
    readonly isPlain?: boolean;
    /** Simulates the preparation of a VM; absent: none is prepared. */
    readonly preparing?: FakePreparing["work"];
    /** Real ones; absent: fakes. */
    readonly disks?: Disks;
    readonly realImages?: Images;
  } = {},
): Promise<TestNode> {
  const clock = options.clock ?? systemClock;
  const events: { machineId: string; level: string; message: string }[] = [];
  const logLines: string[] = [];
  const log = makeLog({ level: "debug", clock, write: (line) => logLines.push(line) });
  const machinesDirectory = join(directory, "machines");
  const own: { fleet?: Fleet } = {};
  const environmentOf = (machineId: string): Readonly<Record<string, string>> =>
    own.fleet?.find(machineId)?.known?.journal.spec?.env ?? {};
  const preparedDirectory = join(directory, "prepared");
  const preparing = options.preparing && { directory: preparedDirectory, work: options.preparing };
  const { bootsAtOnceMax = 8 } = options;
  const driver = new FakeDriver({
    machinesDirectory,
    environmentOf,
    clock,
    log,
    bootsAtOnceMax,
    isPlain: options.isPlain === true,
    ...(options.program !== undefined && { program: options.program }),
    ...(preparing && { preparing }),
  });
  const images = new FakeImages(clock, "amd64");
  const runs = await RunJournal.open({
    path: join(directory, "runs.journal"),
    clock,
    log,
    onChange: () => undefined,
  });
  const deps = makeMachineDeps({
    runs,
    machinesDirectory,
    preparedDirectory,
    observeResources: () =>
      Promise.resolve({ ...RESOURCES, availableMemoryMb: options.availableMemoryMb?.() ?? 16_384 }),
    lastAliveAt: options.lastAliveAt ?? null,
    driver,
    images: options.realImages ?? images,
    disks: options.disks ?? fakeDisks,
    clock,
    log,
    onEvent: (machineId, event) => void events.push({ machineId, ...printEvent(event) }),
    onChange: () => undefined,
  });
  const fleet = new Fleet(deps);
  own.fleet = fleet;
  // What it retries in a directory that is gone would keep the process alive.
  after(() => void fleet.release().catch(() => undefined));
  const adoption = await adoptMachines(fleet, deps);
  return {
    fleet,
    replacements: new Replacements({ fleet, driver }),
    branches: new Branches(fleet, deps),
    deps,
    driver,
    images,
    events,
    logLines,
    clock,
    adoption,
    want: async (machineId, generation, state, more = {}) => {
      const spec = state === "absent" ? null : specOf(machineId, more);
      const wait = { waitMs: more.waitMs ?? 20_000, signal: new AbortController().signal };
      const { keepsMemory = false, isFenced = false } = more;
      return (await fleet.apply(machineId, { generation, state, spec, keepsMemory, isFenced }, wait)).observed;
    },
  };
}

/** A machine that is on the node, and whose files can be used. */
export function machineOf({ fleet }: TestNode, machineId: string): SupervisedMachine {
  const found = fleet.find(machineId);
  if (found === undefined || found.known === null) throw new Error(`machine ${machineId} is not on the node`);
  return found;
}

/** Every file and directory below, as relative paths. */
export async function listFiles(directory: string): Promise<readonly string[]> {
  const entries = await readdir(directory, { recursive: true });
  return entries.toSorted();
}
