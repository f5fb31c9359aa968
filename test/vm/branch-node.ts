/**
 * A node agent without a server and without a process: machines and their points on real VMs, which have no
 * network.
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { systemClock } from "@flotilla/base/clock";
import type { ObservedMachine } from "@flotilla/contract/link/link";
import type { MadePoint } from "@flotilla/contract/link/points";
import { Branches } from "../../node/src/branches/branches.ts";
import { openQcow2Disks } from "../../node/src/disks/disks.ts";
import type { Driver } from "../../node/src/driver/driver.ts";
import { FakeImages } from "../../node/src/driver/fake/images.ts";
import type { Guest } from "../../node/src/guest/guest.ts";
import type { RootFile } from "../../node/src/images/images.ts";
import { makeLog } from "../../node/src/log.ts";
import { adoptMachines } from "../../node/src/machines/adopt.ts";
import { Fleet } from "../../node/src/machines/fleet.ts";
import { type MachineDeps, makeMachineDeps } from "../../node/src/machines/machine-deps.ts";
import type { RunningMachine } from "../../node/src/machines/node-machine.ts";
import { RunJournal } from "../../node/src/machines/run-journal.ts";
import { specOf, type Want } from "../../node/test/support/in-process.ts";
import { launcherPath } from "../support/launcher.ts";
import type { NodePlace } from "./vm-fixture.ts";

/** Every image has the file system of the place. */
class PlacedImages extends FakeImages {
  readonly #root: RootFile;

  constructor(root: RootFile) {
    super(systemClock, "amd64");
    this.#root = root;
  }

  override rootFor(): Promise<RootFile> {
    return Promise.resolve(this.#root);
  }
}

export interface BranchNode {
  readonly fleet: Fleet;
  readonly deps: MachineDeps;
  readonly branches: Branches;
  readonly logLines: readonly string[];
  want(
    machineId: string,
    generation: number,
    state: "running" | "stopped" | "absent",
    more?: Want,
  ): Promise<ObservedMachine>;
  guestOf(machineId: string): Guest;
  runningOf(machineId: string): Promise<RunningMachine>;
  point(machineId: string, hasMemory?: boolean): Promise<MadePoint>;
}

const WAIT_MS = 240_000;

export async function startBranchNode(place: NodePlace, driver: Driver): Promise<BranchNode> {
  const machinesDirectory = join(place.directory, "machines");
  const logLines: string[] = [];
  const log = makeLog({ level: "debug", clock: systemClock, write: (line) => logLines.push(line) });
  const path = join(place.directory, "runs.journal");
  const runs = await RunJournal.open({ path, clock: systemClock, log, onChange: () => undefined });
  const deps = makeMachineDeps({
    ...{ runs, machinesDirectory, driver, log, clock: systemClock, lastAliveAt: null },
    preparedDirectory: join(place.directory, "prepared"),
    observeResources: () => Promise.reject(new Error("not observed")),
    images: new PlacedImages(place.image),
    disks: openQcow2Disks({ launcher: await launcherPath(), clock: systemClock }),
    onEvent: () => undefined,
    onChange: () => undefined,
  });
  const roomy: MachineDeps = { ...deps, ensureMemoryRoom: () => Promise.resolve() };
  const fleet = new Fleet(roomy);
  await adoptMachines(fleet, roomy);
  const branches = new Branches(fleet, roomy);
  return {
    ...{ fleet, deps: roomy, branches, logLines },
    want: async (machineId, generation, state, more = {}) => {
      const spec = state === "absent" ? null : specOf(machineId, { image: "local/busybox", ...more });
      const wait = { waitMs: WAIT_MS, signal: new AbortController().signal };
      const { keepsMemory = false } = more;
      return (await fleet.apply(machineId, { generation, state, spec, keepsMemory }, wait)).observed;
    },
    guestOf: (machineId) => {
      const guest = fleet.find(machineId)?.access.guest ?? null;
      if (guest === null) throw new Error(`machine ${machineId} does not run`);
      return guest;
    },
    runningOf: async (machineId) => {
      const found = fleet.find(machineId);
      const running = found === undefined || found.known === null ? null : await found.running();
      if (running === null) throw new Error(`machine ${machineId} does not run`);
      return running;
    },
    point: (machineId, hasMemory = true) =>
      branches.make({ pointId: `point-${randomBytes(16).toString("hex")}`, machineId, hasMemory }),
  };
}
