/**
 * Templates: saved VMs with a booted, unconfigured guest, so that a machine can start without booting.
 *
 * Owns `<node directory>/templates/<key>/` with `memory` (the guest's RAM, sparse), `state` (its devices) and
 * `template.json`. The key covers everything a template depends on: kernel, agent and command line (by the guest files'
 * key and RECIPE), QEMU's version, accelerator, clock rate, size; with KVM also the host's processor and kernel.
 *
 * Always:
 * - A template contains nothing of any machine: its guest has no identity, has read no disk, and its random pool is
 *   reseeded when a machine is configured (GUEST-PROTOCOL.md, configure).
 * - A directory gets its name only when it is complete, and is never changed: its files belong to root and are
 *   read-only, also for VMMs (node/native/template-memory.c).
 * - There are at most TEMPLATES_MAX; the least recently used is removed. Templates with other ingredients, such as from an
 *   earlier version, are removed at start.
 *
 * A crash leaves `<key>.new`, which the next agent removes, and a VMM, which it kills.
 */
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { constants, createWriteStream } from "node:fs";
import {
  chmod,
  chown,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  statfs,
  utimes,
  writeFile,
} from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { orAborted } from "@flotilla/base/abort";
import { messageOf } from "@flotilla/base/errors";
import type { Guest } from "../../guest/guest.ts";
import { loadAdjustedMs } from "../../host/load-adjusted-timeout.ts";
import { syncToDisk } from "../../host/sync-to-disk.ts";
import type { Accelerator } from "./argv.ts";
import { VIEW } from "./jail.ts";
import { type Launcher, NOBODY_UID } from "./launcher.ts";
import type { Qmp } from "./qmp.ts";
import { AGENT_COMMAND, placeholderConfiguration } from "./placeholder-machine.ts";

/** The part of a machine's size that a template depends on. */
export interface VmSize {
  readonly cpus: number;
  readonly memoryMb: number;
}

export interface Template {
  readonly directory: string;
  readonly memoryPath: string;
  readonly statePath: string;
}

export interface TemplatesOptions {
  readonly launcher: Launcher;
  /** Everything a template depends on, except the size. */
  readonly ingredients: string;
}

/** Increment when the way templates are made changes. */
const RECIPE = 8;
const TEMPLATES_MAX = 6;
const MIB = 2 ** 20;
/** The part of its memory that a guest has touched when it is saved: 4 % measured, doubled. */
const TOUCHED_SHARE = 0.08;
/** Space that is left for machines' disks while a template is made. */
const FREE_MB_KEPT = 256;
const STATE_BYTES_MAX = 16 * 2 ** 20;
const MAKE_DEADLINE_MS = 120_000;
const POLL_MS = 5;
/** A template must be this old to be discarded because of a guest's crash. */
const FORGET_AGE_MS_MIN = 60 * 60_000;
/** Commands run in the guest before it is saved, so that the template contains the kernel's allocations for them. */
const WARM_UP_COMMANDS = 3;

/**
 * What a template depends on besides its size, as one string. Emulated processors differ between hosts only in their
 * clock rate.
 */
export function templateIngredients(facts: {
  readonly qemuVersion: string;
  readonly guestFiles: { readonly key: string };
  readonly accelerator: Accelerator;
  readonly tscKhz: number | null;
  readonly processor: string;
  readonly hasNetwork: boolean;
}): string {
  const { qemuVersion, guestFiles, accelerator, tscKhz, processor, hasNetwork } = facts;
  const visibleProcessor = accelerator === "kvm" ? processor : null;
  return JSON.stringify([qemuVersion, guestFiles.key, accelerator, tscKhz, visibleProcessor, hasNetwork]);
}

export class Templates {
  readonly directory: string;
  readonly #launcher: Launcher;
  readonly #ingredients: string;
  /** Templates being made, by key; concurrent callers share them. */
  readonly #making = new Map<string, Promise<Template>>();

  constructor({ launcher, ingredients }: TemplatesOptions) {
    this.directory = join(launcher.nodeDirectory, "templates");
    this.#launcher = launcher;
    this.#ingredients = ingredients;
  }

  /** Removes templates with other ingredients and what a crash left. Call before any is made. */
  async open(): Promise<void> {
    await mkdir(this.directory, { recursive: true, mode: 0o711 });
    const current = `-${this.#hash()}`;
    for (const name of await readdir(this.directory)) {
      if (!name.endsWith(current)) await rm(join(this.directory, name), { recursive: true, force: true });
    }
  }

  /**
   * The template of a size; makes it, in seconds, if there is none. Rejects with the reason when that fails or the first
   * caller's signal is aborted; the VMM has ended then.
   */
  async ensure({ cpus, memoryMb }: VmSize, signal: AbortSignal): Promise<Template> {
    const size = { cpus, memoryMb };
    const found = await this.find(size);
    if (found !== undefined) return found;
    const key = this.#key(size);
    const making = this.#making.get(key) ?? this.#make(key, size, signal).finally(() => this.#making.delete(key));
    this.#making.set(key, making);
    return making;
  }

  /** The directory of a size's template, whether or not it exists. */
  pathOf(size: VmSize): string {
    return join(this.directory, this.#key(size));
  }

  #hash(): string {
    return createHash("sha256").update(`${RECIPE} ${this.#ingredients}`).digest("hex").slice(0, 16);
  }

  #key({ cpus, memoryMb }: VmSize): string {
    return `${cpus}x${memoryMb}-${this.#hash()}`;
  }

  /** The template of a size if it exists or is being made, because a boot of one's own would not be faster. */
  async findOrAwait(size: VmSize): Promise<Template | undefined> {
    return (await this.find(size)) ?? this.#making.get(this.#key(size))?.catch(() => undefined);
  }

  /** The template of a size, if it exists. */
  async find(size: VmSize): Promise<Template | undefined> {
    const template = templateIn(this.pathOf(size));
    try {
      const [memory, state] = await Promise.all([stat(template.memoryPath), stat(template.statePath)]);
      if (memory.size === 0 || state.size === 0) return undefined;
      const now = new Date(this.#launcher.clock.now());
      await utimes(template.directory, now, now);
      return template;
    } catch {
      return undefined;
    }
  }

  /** Removes the template of a size unless it is less than an hour old, so that guests cannot cause constant remaking. */
  async forget(size: VmSize): Promise<void> {
    const { directory } = templateIn(this.pathOf(size));
    const made = await stat(join(directory, "template.json")).catch(() => null);
    if (made === null || this.#launcher.clock.now() - made.mtimeMs < FORGET_AGE_MS_MIN) return;
    this.#launcher.log.warn({ directory }, "removing a template, because a guest restored from it crashed");
    await rm(directory, { recursive: true, force: true });
  }

  async #make(key: string, size: VmSize, callerSignal: AbortSignal): Promise<Template> {
    await this.#makeRoom(size);
    callerSignal.throwIfAborted();
    const startedAt = this.#launcher.clock.monotonic();
    const directory = join(this.directory, `${key}.new`);
    await rm(directory, { recursive: true, force: true });
    await mkdir(directory, { mode: 0o700 });
    try {
      await this.#save(directory, size, callerSignal);
      const template = templateIn(this.pathOf(size));
      await rm(template.directory, { recursive: true, force: true });
      await rename(directory, template.directory);
      const seconds = ((this.#launcher.clock.monotonic() - startedAt) / 1000).toFixed(1);
      this.#launcher.log.info({ key, seconds }, "made a template");
      return template;
    } catch (error) {
      await rm(directory, { recursive: true, force: true });
      // After a cancellation a step's own error only describes its effect; report the caller's reason.
      const reason = messageOf(callerSignal.aborted ? callerSignal.reason : error);
      throw new Error(`the template for ${size.cpus} processors and ${size.memoryMb} MB could not be made: ${reason}`);
    }
  }

  /** Boots a guest whose memory is a file, and saves it. */
  async #save(directory: string, size: VmSize, callerSignal: AbortSignal): Promise<void> {
    const { clock } = this.#launcher;
    const memoryPath = join(directory, "memory");
    const bootDirectory = join(directory, "boot");
    const uid = NOBODY_UID - 1;
    await mkdir(bootDirectory, { mode: 0o700 });
    await writeFile(memoryPath, "", { mode: 0o600 });
    await this.#launcher.makeReachable(uid, [memoryPath], []);
    const vmm = await this.#launcher.spawn({
      machineId: "template",
      bootId: `boot-${randomBytes(16).toString("hex")}`,
      bootDirectory,
      uid,
      ...size,
      memory: { kind: "file", path: memoryPath, isShared: true },
      diskPath: null,
      diskBytes: 0,
      backingPaths: [],
      isIncoming: false,
    });
    const signal = AbortSignal.any([
      callerSignal,
      endOf(vmm.exited),
      timeoutOf(this.#launcher, loadAdjustedMs(MAKE_DEADLINE_MS)),
    ]);
    try {
      const qmp = await this.#launcher.control(vmm, { bootDirectory, uid }, signal);
      const guest = await this.#launcher.guest({ bootDirectory, uid }, signal);
      // The address is the same in all machines, so the network stays up in the template.
      const facts = { rootDevice: null, rootBytes: 0, user: "", ...this.#launcher.guestAddressing };
      await orAborted(guest.warmUp(placeholderConfiguration(facts, { now: clock.now(), digit: "0" })), signal);
      for (let count = 0; count < WARM_UP_COMMANDS; count += 1) await runQuietly(guest, signal);
      guest.close();
      await qmp.execute("stop");
      await saveState(qmp, {
        launcher: this.#launcher,
        bootDirectory,
        uid,
        statePath: join(directory, "state"),
        signal,
      });
    } catch (error) {
      const output = await vmm.lastOutputIfAny();
      throw output === null ? error : new Error(`${messageOf(error)}; last output of the VM: ${output}`);
    } finally {
      await vmm.kill();
    }
    await rm(bootDirectory, { recursive: true });
    await writeFile(join(directory, "template.json"), JSON.stringify({ ...size, recipe: RECIPE, madeAt: clock.now() }));
    for (const name of await readdir(directory)) {
      const path = join(directory, name);
      await syncToDisk(path);
      if (this.#launcher.isRoot) await chown(path, 0, 0);
      await chmod(path, 0o444);
    }
    await chmod(directory, 0o711);
  }

  async #makeRoom(size: VmSize): Promise<void> {
    const names = (await readdir(this.directory)).filter((name) => !name.endsWith(".new"));
    const byAge = await Promise.all(
      names.map(async (name) => ({ name, at: (await stat(join(this.directory, name))).mtimeMs })),
    );
    byAge.sort((one, two) => two.at - one.at);
    for (const { name } of byAge.slice(TEMPLATES_MAX - 1)) {
      // A VMM that is being restored from it keeps its mapping of the file.
      await rm(join(this.directory, name), { recursive: true, force: true });
    }
    const free = await statfs(this.directory);
    const freeMb = Math.floor((free.bavail * free.bsize) / MIB);
    const neededMb = templateSpaceMb(size);
    if (freeMb >= neededMb) return;
    throw new Error(
      `a template of ${size.memoryMb} MB needs ${neededMb} MB of the node's disk, which has ${freeMb} MB left; ` +
        "remove machines or images",
    );
  }
}

/** Space in MB that must be free before a template is made. Pure. */
export function templateSpaceMb({ memoryMb }: Pick<VmSize, "memoryMb">): number {
  return FREE_MB_KEPT + Math.ceil(memoryMb * TOUCHED_SHARE);
}

function templateIn(directory: string): Template {
  return { directory, memoryPath: join(directory, "memory"), statePath: join(directory, "state") };
}

interface Saving {
  readonly launcher: Launcher;
  readonly bootDirectory: string;
  readonly uid: number;
  readonly statePath: string;
  readonly signal: AbortSignal;
}

/**
 * QEMU writes the devices' state to a socket of ours. The memory needs no copy, because it is shared with its file.
 */
async function saveState(qmp: Qmp, { launcher, bootDirectory, uid, statePath, signal }: Saving): Promise<void> {
  const socketPath = join(bootDirectory, "state.sock");
  const directory = await open(bootDirectory, constants.O_RDONLY | constants.O_DIRECTORY);
  // Through a descriptor, because the directory's path may exceed the limit of a socket address.
  const server = createServer({ pauseOnConnect: true });
  try {
    server.listen(`/proc/self/fd/${directory.fd}/state.sock`);
    await once(server, "listening", { signal });
    await launcher.makeReachable(uid, [socketPath], []);
    const received = once(server, "connection", { signal }).then(async ([socket]) => {
      await pipeline(socket, createWriteStream(statePath, { mode: 0o600 }), { signal });
    });
    received.catch(() => {});
    await qmp.execute("migrate-set-capabilities", { capabilities: [IGNORE_SHARED] });
    await qmp.execute("migrate", { uri: `unix:${join(VIEW.boot, "state.sock")}` });
    await received;
    for (;;) {
      const { status } = (await qmp.execute("query-migrate")) as { readonly status?: string };
      if (status === "completed") break;
      if (status === "failed" || status === "cancelled") throw new Error(`saving the guest's state ${status}`);
      await launcher.clock.sleep(POLL_MS, signal);
      signal.throwIfAborted();
    }
    const { size } = await stat(statePath);
    if (size === 0 || size > STATE_BYTES_MAX) throw new Error(`the saved state has ${size} bytes`);
  } finally {
    server.close();
    await directory.close();
  }
}

const IGNORE_SHARED = { capability: "x-ignore-shared", state: true };

/** Loads a template's state into a VMM that waits for it, and resumes the guest. */
export async function loadState(
  qmp: Qmp,
  options: { readonly uri: string; readonly send: () => Promise<void>; readonly sleep: (ms: number) => Promise<void> },
): Promise<void> {
  await qmp.execute("migrate-set-capabilities", { capabilities: [IGNORE_SHARED] });
  await qmp.execute("migrate-incoming", { uri: options.uri });
  await options.send();
  for (;;) {
    const { status } = (await qmp.execute("query-status")) as { readonly status?: string };
    if (status !== "inmigrate") break;
    await options.sleep(1);
  }
  await qmp.execute("cont");
}

/** The state's bytes: small, and read per restored VM from the page cache. */
export function readState(template: Template): Promise<Buffer> {
  return readFile(template.statePath);
}

async function runQuietly(guest: Guest, signal: AbortSignal): Promise<void> {
  const exec = guest.exec(AGENT_COMMAND);
  exec.stdout.resume();
  exec.stderr.resume();
  await orAborted(exec.exit, signal);
}

function endOf(exited: Promise<{ readonly detail: string }>): AbortSignal {
  const controller = new AbortController();
  void exited.then(({ detail }) => controller.abort(new Error(detail)));
  return controller.signal;
}

function timeoutOf(launcher: Launcher, ms: number): AbortSignal {
  const controller = new AbortController();
  launcher.clock.timer(ms, () => controller.abort(new Error(`no answer within ${Math.round(ms / 1000)} s`)));
  return controller.signal;
}
