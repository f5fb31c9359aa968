/**
 * Which parts of a disk's file a VMM writes, while its guest runs: a dirty bitmap of QEMU on the block node
 * of the file itself, below the format. So it has what the format writes too, and its offsets are those of
 * the file.
 *
 * Always:
 * - A write is in the bitmap when it is complete. A reader of the file that has missed it finds it in the
 *   next `take`.
 * - Nothing on the disk changes. The bitmap ends with the VMM; one that a crashed agent left costs the VMM
 *   some KB, and the next watch replaces it.
 * - A `take` that fails has lost what it took, so its caller must begin again.
 */
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { deadlineSignal } from "@flotilla/base/abort";
import { BLOCK_BYTES } from "@flotilla/contract/link/blocks";
import type { Extent } from "../../images/blocks.ts";
import type { BootRequest, DiskWatch } from "../driver.ts";
import { bulkPathIn } from "./bulk.ts";
import { readDirtyBitmap } from "./dirty-bitmap.ts";
import { VIEW } from "./jail.ts";
import type { Launcher } from "./launcher.ts";
import type { Qmp } from "./qmp.ts";
import { connectWhenReady } from "./sockets.ts";
import type { Vmm } from "./vmm.ts";

const BITMAP = "written";
/**
 * A node of the file's size, whose bitmap is a copy: the file's own node cannot be exported while the guest
 * may enlarge it.
 */
const COPY_NODE = "written";
const SOCKET_NAME = "nbd.sock";
/** A guest enlarges the file between two commands only when it writes to new clusters. */
const TRIES_MAX = 20;
const TAKE_MS = 10_000;

interface BlockNode {
  readonly "node-name": string;
  readonly drv: string;
  readonly ro: boolean;
  readonly file: string;
  readonly image: { readonly "virtual-size": number };
}

export async function watchDisk(vmm: Vmm, boot: BootRequest, launcher: Launcher): Promise<DiskWatch> {
  const watch = new QemuDiskWatch(vmm, boot, launcher, await fileNodeOf(vmm.control));
  await watch.end();
  await vmm.control.execute("block-dirty-bitmap-add", watch.bitmap);
  vmm.beforeQuit = () => watch.takeLast();
  return watch;
}

class QemuDiskWatch implements DiskWatch {
  readonly bitmap: { readonly node: string; readonly name: string; readonly granularity: number };
  readonly #vmm: Vmm;
  readonly #boot: BootRequest;
  readonly #launcher: Launcher;
  #last: Promise<readonly Extent[]> | null = null;

  constructor(vmm: Vmm, boot: BootRequest, launcher: Launcher, node: string) {
    this.#vmm = vmm;
    this.#boot = boot;
    this.#launcher = launcher;
    this.bitmap = { node, name: BITMAP, granularity: BLOCK_BYTES };
  }

  async take(): Promise<readonly Extent[]> {
    const qmp = this.#vmm.control;
    const bytes = await this.#copyAndClear(qmp);
    try {
      return await this.#read(qmp, bytes);
    } finally {
      await this.#removeCopy(qmp);
    }
  }

  /** Takes the last changes of a VM that is paused and will not run again, or whose guest has powered off. */
  takeLast(): Promise<readonly Extent[]> {
    this.#last ??= this.take();
    return this.#last;
  }

  async end(): Promise<void> {
    this.#vmm.beforeQuit = null;
    const { control: qmp } = this.#vmm;
    const { node, name } = this.bitmap;
    await this.#removeCopy(qmp);
    await qmp.execute("block-dirty-bitmap-remove", { node, name }).catch(() => undefined);
  }

  /** Copies the bitmap and clears it, at one moment. Resolves with the file's size. */
  async #copyAndClear(qmp: Qmp): Promise<number> {
    const { node, name } = this.bitmap;
    const copy = { node: COPY_NODE, name, granularity: BLOCK_BYTES, disabled: true };
    const merge = { node: COPY_NODE, target: name, bitmaps: [{ node, name }] };
    const actions = [
      { type: "block-dirty-bitmap-merge", data: merge },
      { type: "block-dirty-bitmap-clear", data: { node, name } },
    ];
    for (let tries = 1; ; tries += 1) {
      const size = (await nodesOf(qmp)).find((each) => each["node-name"] === node)?.image["virtual-size"];
      if (size === undefined) throw new Error("the VM's disk was replaced");
      await qmp.execute("blockdev-add", { driver: "null-co", "node-name": COPY_NODE, size });
      try {
        await qmp.execute("block-dirty-bitmap-add", copy);
        await qmp.execute("transaction", { actions });
        return size;
      } catch (error) {
        // Bitmaps of different sizes: the file has grown.
        await this.#removeCopy(qmp);
        if (tries >= TRIES_MAX) throw error;
      }
    }
  }

  async #read(qmp: Qmp, bytes: number): Promise<readonly Extent[]> {
    if (bytes === 0) return [];
    const { clock } = this.#launcher;
    const { bootDirectory } = this.#boot;
    const path = join(bootDirectory, SOCKET_NAME);
    await rm(path, { force: true });
    const exportName = COPY_NODE;
    await qmp.execute("nbd-server-start", { addr: { type: "unix", data: { path: join(VIEW.boot, SOCKET_NAME) } } });
    const exported = { type: "nbd", id: COPY_NODE, "node-name": COPY_NODE, name: exportName, bitmaps: [BITMAP] };
    await qmp.execute("block-export-add", exported);
    const deadline = deadlineSignal(clock, TAKE_MS);
    const place = { path, uid: this.#launcher.uidOf(this.#boot) };
    const socket = await connectWhenReady(place, clock, deadline.signal).finally(() => deadline.dispose());
    const late = clock.timer(TAKE_MS, () => socket.destroy(new Error("the VMM does not answer")));
    try {
      return await readDirtyBitmap(socket, { exportName, bitmap: BITMAP, bytes });
    } finally {
      late.cancel();
      socket.destroy();
    }
  }

  /**
   * Also what an earlier agent left. The directory is the VMM's, which may make a directory of it a link to
   * one of the host's meanwhile: so none is removed with what is in it.
   */
  async #removeCopy(qmp: Qmp): Promise<void> {
    await qmp.execute("nbd-server-stop").catch(() => undefined);
    await qmp.execute("blockdev-del", { "node-name": COPY_NODE }).catch(() => undefined);
    await rm(join(this.#boot.bootDirectory, SOCKET_NAME), { force: true }).catch(() => undefined);
  }
}

/** The node of the disk's file: the only one that is written to, besides the bulk disk's. */
async function fileNodeOf(qmp: Qmp): Promise<string> {
  const nodes = await nodesOf(qmp);
  const found = nodes.filter(({ drv, ro, file }) => drv === "file" && !ro && file !== bulkPathIn(VIEW.boot));
  const [node] = found;
  if (node === undefined || found.length > 1) throw new Error("the VM has no disk whose writes can be watched");
  return node["node-name"];
}

const nodesOf = async (qmp: Qmp): Promise<readonly BlockNode[]> =>
  (await qmp.execute("query-named-block-nodes", { flat: true })) as readonly BlockNode[];
