/**
 * A control group of its own for each VMM: what it may have of the host's memory, tasks and processors.
 *
 * Owns `flotilla-<node>/<boot id>/` at the top of the host's trees (cgroup-layout.ts). At the top, because VMMs outlive
 * the agent and must be found again by an agent that runs elsewhere; so limits of the agent's own group do not bound them.
 *
 * Always: a group is made with its limits before a process joins it, and removed when its VMM has ended. A host without
 * usable groups, or one that refuses a controller, limits less, and machines run all the same. A crash leaves groups: those
 * of VMMs that live are found by the boot's id, empty ones are removed by `sweep`.
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

const REMOVE_LOOKS_MAX = 100;
const REMOVE_LOOK_MS = 20;
const MAKE_ATTEMPTS_MAX = 3;

export interface CgroupsOptions {
  /** Tells two nodes of one host apart. */
  readonly nodeDirectory: string;
  readonly clock: Clock;
  readonly log: Log;
}

/** The group of one VMM. */
export interface VmmGroup {
  /** A process joins it by writing 0 into each. */
  readonly procsPaths: readonly string[];
  /** Whether the kernel has ended a process of it for want of memory. Never rejects. */
  hasRunOutOfMemory(): Promise<boolean>;
  /** When all of its processes have ended. Never rejects. */
  remove(): Promise<void>;
}

/** The group of a VMM that this agent has started. */
export interface NewVmmGroup extends VmmGroup {
  /** Lets a process of it have the processors and disks that nothing else wants, or its share of them. Never rejects. */
  share(pid: number, share: "background" | "usual"): Promise<void>;
}

/** What this host has; undefined when it can not limit a machine's memory so. */
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

/** Whether this host weighs disk requests of groups. Never rejects. */
export async function readsDiskWeights({ trees }: CgroupLayout): Promise<boolean> {
  const tree = trees.get("io");
  if (tree === undefined) return false;
  const top = await readdir(tree, { withFileTypes: true }).catch(() => []);
  const groups = top.filter((entry) => entry.isDirectory()).map(({ name }) => join(tree, name));
  const below = await Promise.all(groups.map((group) => readdir(group).catch(() => [])));
  return weighsDisks([...top.map(({ name }) => name), ...below.flat()]);
}

/** null: VMMs run without groups, and the log says why. */
export async function openCgroups(options: CgroupsOptions): Promise<Cgroups | null> {
  const layout = await readCgroupLayout();
  if (layout === undefined) {
    options.log.warn({}, "this host has no control groups for memory: machines are bounded by their VMMs alone");
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
      "no control groups can be made: machines are bounded by their VMMs alone",
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

  /** The group that all of the node's are in. Rejects when memory can not be limited here. */
  async makeNodeGroup(): Promise<void> {
    const { version, trees } = this.#layout;
    for (const [controller, tree] of trees) {
      // In version 2 a tree's controllers must be handed down, level by level.
      if (version === 2) await this.#handDown(tree, controller);
      await mkdir(join(tree, this.#name), { recursive: true });
      if (version === 2) await this.#handDown(join(tree, this.#name), controller);
    }
    const host = { memoryBytes: totalmem(), processors: availableParallelism() };
    for (const file of nodeFiles(version, host)) await this.#write(this.#name, file);
  }

  /** Makes the group of a boot. Rejects when its memory can not be limited. */
  async make(bootId: string, limits: GroupLimits): Promise<NewVmmGroup> {
    for (let attempts = 1; ; attempts += 1) {
      try {
        for (const directory of this.#directories(bootId)) await mkdir(directory, { recursive: false });
        break;
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        // The last group of the node went, and the node's with it; or an earlier attempt of this boot left its own.
        if (attempts === MAKE_ATTEMPTS_MAX || (code !== "ENOENT" && code !== "EEXIST")) throw error;
        if (code === "EEXIST") await this.find(bootId).remove();
        else await this.makeNodeGroup();
      }
    }
    for (const file of limitFiles(this.#layout.version, limits)) await this.#write(join(this.#name, bootId), file);
    return { ...this.find(bootId), share: (pid, share) => this.#share(bootId, pid, { share, cpus: limits.cpus }) };
  }

  /** The group of a boot that an earlier agent has made; it need not exist. */
  find(bootId: string): VmmGroup {
    const directories = this.#directories(bootId);
    return {
      procsPaths: directories.map((directory) => join(directory, "cgroup.procs")),
      hasRunOutOfMemory: () => this.#hasRunOutOfMemory(bootId),
      remove: () => this.#remove(directories),
    };
  }

  /** Removes all groups without processes, also the node's. Before any is made. */
  async sweep(): Promise<void> {
    for (const tree of this.#trees()) {
      const names = await readdir(join(tree, this.#name), { withFileTypes: true }).catch(() => []);
      // One that has a process refuses.
      for (const entry of names)
        if (entry.isDirectory()) await rmdir(join(tree, this.#name, entry.name)).catch(() => {});
      await rmdir(join(tree, this.#name)).catch(() => {});
    }
  }

  async #handDown(directory: string, controller: Controller): Promise<void> {
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
   * An idle task is one only within its group, so what is to have the processors that nothing else wants must be in none.
   * In one tree for all controllers that would take its other limits as well: there it only counts little.
   */
  async #share(
    bootId: string,
    pid: number,
    { share, cpus }: { readonly share: "background" | "usual"; readonly cpus: number },
  ): Promise<void> {
    const { version, trees } = this.#layout;
    for (const file of diskWeightFiles(version, share)) await this.#write(join(this.#name, bootId), file);
    const tree = trees.get("cpu");
    if (tree === undefined) return;
    const group = join(tree, this.#name, bootId);
    const usual = shareFile(version, cpus);
    const [path, value] =
      version === 1
        ? [join(share === "background" ? tree : group, "cgroup.procs"), String(pid)]
        : [join(group, usual.name), share === "background" ? "1" : usual.value];
    await writeFile(path, value).catch(() => {}); // The VMM has ended.
  }

  async #hasRunOutOfMemory(bootId: string): Promise<boolean> {
    const tree = this.#layout.trees.get("memory") ?? "";
    const path = join(tree, this.#name, bootId, memoryKillsFile(this.#layout.version));
    return memoryKills(await readFile(path, "utf8").catch(() => "")) > 0;
  }

  /** A process leaves its group a moment after it has ended. */
  async #remove(directories: readonly string[]): Promise<void> {
    for (const directory of directories) {
      for (let looks = 0; looks < REMOVE_LOOKS_MAX; looks += 1) {
        const code = await rmdir(directory).then(
          () => null,
          (error: NodeJS.ErrnoException) => error.code,
        );
        if (code !== "EBUSY") break;
        await this.#clock.sleep(REMOVE_LOOK_MS);
      }
      await rmdir(join(directory, "..")).catch(() => {}); // The node's own, when this was the last.
    }
  }
}
