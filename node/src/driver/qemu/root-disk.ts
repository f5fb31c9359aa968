/**
 * Replaces the files under a running guest's disk device: QEMU's block node ROOT_NODE stays, and the node
 * below it is opened again. Also makes the disk of a guest that mounted it before it was saved.
 */
import { chmod, chown, copyFile, rename, rm } from "node:fs/promises";
import { syncToDisk } from "../../host/sync-to-disk.ts";
import { diskLayers, PLACEHOLDER, ROOT_NODE } from "./argv.ts";
import type { Qmp } from "./qmp.ts";

/** The block node of the disk, below ROOT_NODE. */
const DISK_NODE = "disk";

/**
 * Attaches a disk: its file first, then its backing files, as the VMM sees them. The commands are sent
 * together and run in order.
 */
export async function attachDisk(qmp: Qmp, paths: readonly string[], bytes: number): Promise<void> {
  const options = [{ driver: "raw", "node-name": ROOT_NODE, discard: "unmap", file: DISK_NODE }];
  await Promise.all([
    qmp.execute("blockdev-add", diskLayers(paths, DISK_NODE)),
    qmp.execute("blockdev-reopen", { options }),
    announceSize(qmp, bytes),
  ]);
}

/** Notifies a running guest of its disk's size, which was another one when its state was saved. */
export async function announceSize(qmp: Qmp, bytes: number): Promise<void> {
  await qmp.execute("block_resize", { "node-name": ROOT_NODE, size: bytes });
}

/** A disk on top of the one that the guest has, which it does not write to yet. */
export interface AddedLayer {
  /** The nodes of the disk on top now, and of the new one. */
  readonly node: string;
  readonly overlay: string;
}

/** Opens an empty disk, as the VMM sees it, which is to be on top of the guest's. */
export async function addLayer(qmp: Qmp, path: string): Promise<AddedLayer> {
  const node = await topNode(qmp);
  const overlay = layerName(numberOf(node) + 1);
  const file = { driver: "file", filename: path, discard: "unmap" };
  await qmp.execute("blockdev-add", { driver: "qcow2", "node-name": overlay, discard: "unmap", file, backing: null });
  return { node, overlay };
}

/** The paused guest writes to the added disk from now on. */
export async function switchToLayer(qmp: Qmp, { node, overlay }: AddedLayer): Promise<void> {
  await qmp.execute("blockdev-snapshot", { node, overlay });
}

/** The layers below a disk are part of it now. */
export async function closeLayersBelow(qmp: Qmp, node: string): Promise<void> {
  for (let number = numberOf(node) - 1; number > 0; number -= 1)
    await qmp.execute("blockdev-del", { "node-name": layerName(number) }).catch(() => undefined);
  // The VMM closes it by itself unless it was attached later.
  if (node !== DISK_NODE) await qmp.execute("blockdev-del", { "node-name": DISK_NODE }).catch(() => undefined);
}

/** What the VMM holds back of the disk's format is in its file when this resolves. */
export async function flushDisk(qmp: Qmp, node: string): Promise<void> {
  // This is the command that says whether it could be written.
  const options = [{ driver: "raw", "node-name": ROOT_NODE, discard: "unmap", file: node }];
  await qmp.execute("blockdev-reopen", { options });
}

/** Closes a disk that did not get on top. */
export async function removeLayer(qmp: Qmp, { overlay }: AddedLayer): Promise<void> {
  await qmp.execute("blockdev-del", { "node-name": overlay });
}

/**
 * The node of the disk that the guest writes to. An agent that was killed may have left one that did not get
 * on top: that can be removed, which QEMU refuses for one that is in use.
 */
export async function topNode(qmp: Qmp): Promise<string> {
  const nodes = (await qmp.execute("query-named-block-nodes", { flat: true })) as readonly { "node-name"?: unknown }[];
  const numbers = nodes.map((node) => numberOf(String(node["node-name"]))).filter((number) => number > 0);
  const last = Math.max(0, ...numbers);
  if (last === 0) return DISK_NODE;
  const isLeft = await removeLayer(qmp, { node: DISK_NODE, overlay: layerName(last) }).then(
    () => true,
    () => false,
  );
  return isLeft ? topNode(qmp) : layerName(last);
}

const layerName = (number: number): string => `layer-${number}`;
/** 0: the disk with which the VMM was started. */
const numberOf = (node: string): number => Number(/^layer-([0-9]{1,6})$/.exec(node)?.[1] ?? 0);

/** Attaches the placeholder again, and closes the disk's files. */
export async function detachDisk(qmp: Qmp): Promise<void> {
  const options = [{ driver: "raw", "node-name": ROOT_NODE, file: "placeholder" }];
  await qmp.execute("blockdev-add", { ...PLACEHOLDER, "node-name": "placeholder" });
  await qmp.execute("blockdev-reopen", { options });
  await qmp.execute("blockdev-del", { "node-name": DISK_NODE });
}

/**
 * Replaces a disk that was never used with the disk of a template. A crash leaves either of them, complete,
 * and `<path>.new`: both hold the image's files and nothing else.
 */
export async function copyDisk(
  from: string,
  { path, uid }: { readonly path: string; readonly uid: number },
  isRoot: boolean,
): Promise<void> {
  const unfinished = `${path}.new`;
  try {
    await copyFile(from, unfinished);
    await chmod(unfinished, 0o600);
    if (isRoot) await chown(unfinished, uid, uid);
    await syncToDisk(unfinished);
    await rename(unfinished, path);
  } catch (error) {
    await rm(unfinished, { force: true });
    throw error;
  }
}
