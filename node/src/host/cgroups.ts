/**
 * One control group per VMM, with limits on memory, tasks and processor time.
 *
 * Owns `flotilla-<node>/<boot id>/` at the top of the host's trees (cgroup-layout.ts). At the top, because
 * VMMs outlive the agent and must be found by an agent that is started elsewhere. So the limits of the
 * agent's own group do not apply to them.
 *
 * Always:
 * - a group has its limits before a process joins it, and is removed when its VMM has ended;
 * - machines run also on a host without usable groups or controllers, with fewer limits.
 *
 * A crash leaves groups: those of live VMMs are found by the boot's id; `sweep` removes empty ones.
 */
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rmdir, writeFile } from "node:fs/promises";
import { availableParallelism, totalmem } from "node:os";
import { join } from "node:path";
import type { Clock } from "@flotilla/base/clock";
import { messageOf } from "@flotilla/base/errors";
import type { Log } from "@flotilla/base/log";
import {
  type CgroupLayout,
  type Controller,
  cgroupLayout,
  diskWeightFiles,
  type GroupFile,
  type GroupLimits,
  limitFiles,
  memoryKills,
  memoryKillsFile,
  nodeFiles,
  shareFile,
  weighsDisks,
} from "./cgroup-layout.ts";

const REMOVE_ATTEMPTS_MAX = 100;
const REMOVE_RETRY_MS = 20;
const MAKE_ATTEMPTS_MAX = 3;

export interface CgroupsOptions {
  /** Distinguishes the nodes of one host. */
  readonly nodeDirectory: string;
  readonly clock: Clock;
  readonly log: Log;
}

/** The group of one VMM. */
export interface VmmGroup {
  /** A process joins the group by writing 0 into each file. */
  readonly procsPaths: readonly string[];
  /** Whether the kernel killed a process of the group because memory ran out. Never rejects. */
  hasRunOutOfMemory(): Promise<boolean>;
  /** Call when all its processes have ended. Never rejects. */
  remove(): Promise<void>;
}

/** The group of a VMM that this agent started. */
export interface NewVmmGroup extends VmmGroup {
  /**
   * Gives a process of the group only idle processor and disk time (`background`), or its normal share. Never
   * rejects.
   */
  share(pid: number, share: "background" | "normal"): Promise<void>;
}

/** The host's layout; undefined when control groups cannot limit memory here. */
export async function readCgroupLayout(): Promise<CgroupLayout | undefined> {
  const mounts = await readFile("/proc/mounts", "utf8").catch(() => "");
  const [, at = ""] =
    mounts
      .split("\n")
      .map((line) => line.split(" "))
      .find(([, , type]) => type === "cgroup2") ?? [];
  const controllers = await readFile(join(at, "cgroup.controllers"), "utf8").catch(() => null);
  return cgroupLayout(mounts, () => controllers);
}

/** Whether this host weights disk requests by group. Never rejects. */
export async function readsDiskWeights({ trees }: CgroupLayout): Promise<boolean> {
  const tree = trees.get("io");
  if (tree === undefined) return false;
  const top = await readdir(tree, { withFileTypes: true }).catch(() => []);
  const groups = top.filter((entry) => entry.isDirectory()).map(({ name }) => join(tree, name));
  const below = await Promise.all(groups.map((group) => readdir(group).catch(() => [])));
  return weighsDisks([...top.map(({ name }) => name), ...below.flat()]);
}

/** null: VMMs run without control groups; the log says why. */
export async function openCgroups(options: CgroupsOptions): Promise<Cgroups | null> {
  const layout = await readCgroupLayout();
  if (layout === undefined) {
    options.log.warn({}, "control groups cannot limit memory on this host; only the VMMs themselves limit machines");
    return null;
  }
  const cgroups = new Cgroups(layout, options);
  try {
    await cgroups.makeNodeGroup();
    await cgroups.sweep();
    return cgroups;
  } catch (error) {
    options.log.warn(
      { reason: messageOf(error) },
      "control groups cannot be created; only the VMMs themselves limit machines",
    );
    return null;
  }
}

export class Cgroups {
  readonly #layout: CgroupLayout;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #name: string;

  constructor(layout: CgroupLayout, { nodeDirectory, clock, log }: CgroupsOptions) {
    this.#layout = layout;
    this.#clock = clock;
    this.#log = log;
    this.#name = `flotilla-${createHash("sha256").update(nodeDirectory).digest("hex").slice(0, 12)}`;
  }

  /** Creates the group that contains all groups of the node. Rejects when memory cannot be limited here. */
  async makeNodeGroup(): Promise<void> {
    const { version, trees } = this.#layout;
    for (const [controller, tree] of trees) {
      // In version 2 each level must delegate its controllers to the next.
      if (version === 2) await this.#delegate(tree, controller);
      await mkdir(join(tree, this.#name), { recursive: true });
      if (version === 2) await this.#delegate(join(tree, this.#name), controller);
    }
    const host = { memoryBytes: totalmem(), processors: availableParallelism() };
    for (const file of nodeFiles(version, host)) await this.#write(this.#name, file);
  }

  /** Creates the group of a boot. Rejects when its memory cannot be limited. */
  async make(bootId: string, limits: GroupLimits): Promise<NewVmmGroup> {
    for (let attempts = 1; ; attempts += 1) {
      try {
        for (const directory of this.#directories(bootId)) await mkdir(directory, { recursive: false });
        break;
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        // ENOENT: the node's group was removed with its last child. EEXIST: an earlier attempt of this boot
        // left a group.
        if (attempts === MAKE_ATTEMPTS_MAX || (code !== "ENOENT" && code !== "EEXIST")) throw error;
        if (code === "EEXIST") await this.find(bootId).remove();
        else await this.makeNodeGroup();
      }
    }
    for (const file of limitFiles(this.#layout.version, limits)) await this.#write(join(this.#name, bootId), file);
    return { ...this.find(bootId), share: (pid, share) => this.#share(bootId, pid, { share, cpus: limits.cpus }) };
  }

  /** The group of a boot that an earlier agent started; need not exist. */
  find(bootId: string): VmmGroup {
    const directories = this.#directories(bootId);
    return {
      procsPaths: directories.map((directory) => join(directory, "cgroup.procs")),
      hasRunOutOfMemory: () => this.#hasRunOutOfMemory(bootId),
      remove: () => this.#remove(directories),
    };
  }

  /** Removes all groups without processes, including the node's. Call before any is created. */
  async sweep(): Promise<void> {
    for (const tree of this.#trees()) {
      const names = await readdir(join(tree, this.#name), { withFileTypes: true }).catch(() => []);
      // rmdir fails for a group with processes.
      for (const entry of names)
        if (entry.isDirectory()) await rmdir(join(tree, this.#name, entry.name)).catch(() => {});
      await rmdir(join(tree, this.#name)).catch(() => {});
    }
  }

  async #delegate(directory: string, controller: Controller): Promise<void> {
    try {
      await writeFile(join(directory, "cgroup.subtree_control"), `+${controller}`);
    } catch (error) {
      if (controller === "memory") throw error;
    }
  }

  #trees(): ReadonlySet<string> {
    return new Set(this.#layout.trees.values());
  }

  #directories(bootId: string): readonly string[] {
    return [...this.#trees()].map((tree) => join(tree, this.#name, bootId));
  }

  async #write(group: string, { controller, name, value }: GroupFile): Promise<void> {
    const tree = this.#layout.trees.get(controller);
    if (tree === undefined) return;
    try {
      await writeFile(join(tree, group, name), value);
    } catch (error) {
      if (controller === "memory") throw error;
      this.#log.debug({ group, name, reason: messageOf(error) }, "a limit could not be set");
    }
  }

  /**
   * The kernel's idle class works only within a group, so a task that is to run only when the host is idle
   * must be outside all groups. In version 2's single tree that would also drop the other limits, so there
   * the group gets the least weight.
   */
  async #share(
    bootId: string,
    pid: number,
    { share, cpus }: { readonly share: "background" | "normal"; readonly cpus: number },
  ): Promise<void> {
    const { version, trees } = this.#layout;
    for (const file of diskWeightFiles(version, share)) await this.#write(join(this.#name, bootId), file);
    const tree = trees.get("cpu");
    if (tree === undefined) return;
    const group = join(tree, this.#name, bootId);
    const normal = shareFile(version, cpus);
    const [path, value] =
      version === 1
        ? [join(share === "background" ? tree : group, "cgroup.procs"), String(pid)]
        : [join(group, normal.name), share === "background" ? "1" : normal.value];
    await writeFile(path, value).catch(() => {}); // The VMM has ended.
  }

  async #hasRunOutOfMemory(bootId: string): Promise<boolean> {
    const tree = this.#layout.trees.get("memory") ?? "";
    const path = join(tree, this.#name, bootId, memoryKillsFile(this.#layout.version));
    return memoryKills(await readFile(path, "utf8").catch(() => "")) > 0;
  }

  /** A process leaves its group shortly after it has ended. */
  async #remove(directories: readonly string[]): Promise<void> {
    for (const directory of directories) {
      for (let attempts = 0; attempts < REMOVE_ATTEMPTS_MAX; attempts += 1) {
        const code = await rmdir(directory).then(
          () => null,
          (error: NodeJS.ErrnoException) => error.code,
        );
        if (code !== "EBUSY") break;
        await this.#clock.sleep(REMOVE_RETRY_MS);
      }
      await rmdir(join(directory, "..")).catch(() => {}); // The node's group, if this was its last.
    }
  }
}
