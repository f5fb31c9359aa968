/**
 * Nodes with real images and disks, and machines of the fake driver on them, for exports without VMs.
 */
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { systemClock } from "@flotilla/base/clock";
import type { ExportRequest } from "@flotilla/contract/link/packages";
import { openTestImages, type TestImages } from "../../../test/images/fixture.ts";
import { launcherPath } from "../../../test/support/launcher.ts";
import { busyboxPlatforms, HOST_ARCH, writeLayout } from "../../../test/support/images.ts";
import { openQcow2Disks } from "../../src/disks/disks.ts";
import type { CallServer } from "../../src/images/own-registry.ts";
import type { UnpackedImage } from "../../src/images/images.ts";
import { makeLog } from "../../src/log.ts";
import { diskPathOf } from "../../src/machines/paths.ts";
import { type ExportProgress, Exports, type ExportsOptions } from "../../src/packages/exports.ts";
import { machineIdOf, machineOf, startTestNode, temporaryDirectory, type TestNode, type Want } from "./in-process.ts";

const execute = promisify(execFile);

const REPOSITORY = "tenants/tenant-1/web";
export const REQUEST: ExportRequest = {
  operationId: "op-1",
  repository: REPOSITORY,
  tag: "latest",
  image: { reference: "local/base", digest: null },
  configuration: { entrypoint: null, command: null, env: null, workdir: null, user: null },
  ports: [],
  labels: {},
  architecture: null,
};

export interface PackageNode extends AsyncDisposable {
  readonly node: TestNode;
  readonly exports: Exports;
  readonly images: TestImages;
  /** The agent's directory of temporary files. */
  readonly temporaryDirectory: string;
  readonly progress: readonly ExportProgress[];
  /** Makes a machine with a disk, and stops it. Resolves with the path of its disk. */
  stopped(letter: string, want?: Want): Promise<string>;
  export(letter: string, change?: Partial<ExportRequest>, signal?: AbortSignal): ReturnType<Exports["export"]>;
  /** Pulls the package as tenant-1. */
  pull(target?: string): Promise<UnpackedImage>;
  /** What exports and pulls have left behind, besides images. */
  leftovers(): Promise<readonly string[]>;
}

/** A node with the image `local/base`. `kept`: its directory, which stays. */
export async function startPackageNode(
  callServer: CallServer,
  more: Partial<ExportsOptions> = {},
  kept?: string,
): Promise<PackageNode> {
  const directory = kept === undefined ? await temporaryDirectory() : { path: kept, [Symbol.asyncDispose]: keep };
  const temporary = join(directory.path, "temporary");
  // As each start of an agent does.
  await rm(temporary, { recursive: true, force: true });
  await mkdir(temporary);
  const images = await openTestImages({ callServer, ...(kept !== undefined && { directory: join(kept, "images") }) });
  const disks = openQcow2Disks({ launcher: await launcherPath(), clock: systemClock });
  const node = await startTestNode(directory.path, { disks, realImages: images.images });
  const log = makeLog({ level: "silent", clock: systemClock });
  const exports = new Exports({
    ...{ fleet: node.fleet, deps: node.deps, callServer, temporaryDirectory: temporary, arch: HOST_ARCH },
    ...{ clock: systemClock, log, push: { retryDelayMs: 5, silenceMs: 5_000 }, ...more },
  });
  const progress: ExportProgress[] = [];
  if ((await images.images.find("local/base", null)) === undefined) await importBase(images, directory.path);
  return {
    ...{ node, exports, images, temporaryDirectory: temporary, progress },
    stopped: async (letter, want = {}) => {
      const wanted = { image: "local/base", ...want };
      await node.want(machineIdOf(letter), 1, "running", wanted);
      await node.want(machineIdOf(letter), 2, "stopped", wanted);
      return diskPathOf(machineOf(node, machineIdOf(letter)).known.directory);
    },
    export: (letter, change = {}, signal = new AbortController().signal) =>
      exports.export(
        machineIdOf(letter),
        { ...REQUEST, ...change },
        { onProgress: (each) => progress.push(each), signal },
      ),
    pull: (target = ":latest") =>
      images.images.ensure(`flotilla.internal/${REPOSITORY}${target}`, {
        ...{ arch: null, tenantId: "tenant-1", isPackage: true },
      }),
    leftovers: async () => {
      const places = [temporary, join(images.directory, "work"), join(images.directory, "blobs")];
      return (await Promise.all(places.map(async (place) => await readdir(place)))).flat();
    },
    [Symbol.asyncDispose]: async () => {
      await node.fleet.release();
      await images[Symbol.asyncDispose]();
      await directory[Symbol.asyncDispose]();
    },
  };
}

const keep = (): Promise<void> => Promise.resolve();

async function importBase(images: TestImages, directory: string): Promise<void> {
  const layout = join(directory, "layout");
  const archive = join(directory, "base.tar");
  await writeLayout(layout, await busyboxPlatforms());
  await execute("tar", ["--create", `--file=${archive}`, `--directory=${layout}`, "."]);
  await images.images.importArchive(archive, "local/base");
  await rm(layout, { recursive: true });
  await rm(archive);
}

/** Runs commands of qemu-io on a disk, such as `write -P 5 100M 1M`. */
export async function writeDisk(diskPath: string, ...commands: readonly string[]): Promise<void> {
  await execute("qemu-io", ["-f", "qcow2", ...commands.flatMap((command) => ["-c", command]), diskPath]);
}

/** Copies a file to an offset of a disk. */
export async function writeRandom(diskPath: string, at: number, content: Buffer): Promise<void> {
  const path = `${diskPath}.content`;
  await writeFile(path, content);
  await writeDisk(diskPath, `write -s ${path} ${at} ${content.byteLength}`);
  await rm(path);
}

/** What differs between a machine's disk and a file without a format, as qemu-img sees it. */
export async function compareDisk(diskPath: string, rawPath: string): Promise<string> {
  const { stdout } = await execute("qemu-img", ["compare", "-U", "-f", "qcow2", "-F", "raw", diskPath, rawPath]);
  return stdout;
}

/** A directory on a file system of this size. */
export async function smallDirectory(megabytes: number): Promise<{ readonly path: string } & AsyncDisposable> {
  const path = await mkdtemp(join(tmpdir(), "flotilla-small-"));
  await execute("mount", ["-t", "tmpfs", "-o", `size=${megabytes}m`, "tmpfs", path]);
  return {
    path,
    [Symbol.asyncDispose]: async () => {
      await execute("umount", [path]);
      await rm(path, { recursive: true });
    },
  };
}
