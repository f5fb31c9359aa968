/**
 * A disk on top of layers in one file, made by the real qemu-img, also of a disk to which a VMM has written
 * what it liked.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, openSync, readFileSync, statSync, writeFileSync, writeSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { launcherPath } from "../../test/support/launcher.ts";
import { type Disks, openQcow2Disks } from "../src/disks/disks.ts";
import { temporaryDirectory } from "./support/in-process.ts";

const skip = process.getuid?.() !== 0 && "only root can confine";
const MIB = 2 ** 20;

interface Chain {
  readonly disks: Disks;
  readonly root: { readonly rootPath: string; readonly rootBytes: number };
  /** Nearest first. */
  readonly paths: readonly [string, string, string];
}

const write = (path: string, at: number, text: string): void => {
  execFileSync("qemu-io", ["-f", "qcow2", "-c", `write -P ${text.charCodeAt(0)} ${at} 64k`, path]);
};

/** Three disks above an image; each has its own cluster, and one that a lower one has as well. */
async function makeChain(directory: string): Promise<Chain> {
  const disks = openQcow2Disks({ launcher: await launcherPath(), clock: systemClock });
  const rootPath = join(directory, "root.ext4");
  writeFileSync(rootPath, Buffer.alloc(4 * MIB, "i"));
  const root = { rootPath, rootBytes: 4 * MIB };
  const names = ["a", "b", "c"] as const;
  const [lowest, middle, top] = names.map((name) => join(directory, `${name}.qcow2`)) as [string, string, string];
  for (const [index, diskPath] of [lowest, middle, top].entries()) {
    await disks.make({ diskPath, root, diskGb: 1, uid: 700_001 });
    if (index > 0) await disks.rebase({ diskPath, directory, rootPath: [lowest, middle][index - 1] ?? "" });
    write(diskPath, index * MIB, names[index] ?? "");
    // Within the image and after its end.
    for (const at of [5 * MIB, 100 * MIB]) if (index !== 1) write(diskPath, at, names[index] ?? "");
  }
  return { disks, root, paths: [top, middle, lowest] };
}

function flatten({ disks, root, paths: [diskPath, ...layerPaths] }: Chain, directory: string): Promise<string> {
  const place = join(directory, "flat");
  mkdirSync(place);
  return disks.flatten({ diskPath, layerPaths, root, directory: place });
}

test("it reads as the disk on top of its layers, and needs the image alone", { skip }, async () => {
  await using directory = await temporaryDirectory();
  const chain = await makeChain(directory.path);
  const before = readFileSync(chain.paths[0]);
  const made = await flatten(chain, directory.path);
  const flat = (path: string): object => ({ driver: "qcow2", file: { driver: "file", filename: path } });
  const image = { driver: "raw", file: { driver: "file", filename: chain.root.rootPath } };
  const alone = { ...flat(made), backing: image };
  const whole = chain.paths.reduceRight<object>((backing, path) => ({ ...flat(path), backing }), image);
  const json = [whole, alone].map((value) => `json:${JSON.stringify(value)}`);
  assert.match(execFileSync("qemu-img", ["compare", ...json], { encoding: "utf8" }), /identical/);
  execFileSync("qemu-img", ["check", "-q", json[1] ?? ""]);
  assert.deepEqual(readFileSync(chain.paths[0]), before);
  assert.equal(statSync(made).uid, 0);
});

test("a disk whose header names a file of the host gets nothing of that", { skip }, async () => {
  await using directory = await temporaryDirectory();
  const chain = await makeChain(directory.path);
  const secret = join(directory.path, "secret");
  writeFileSync(secret, Buffer.alloc(MIB, "SECRET-OF-THE-HOST"));
  await chain.disks.rebase({ diskPath: chain.paths[0], directory: directory.path, rootPath: secret });
  const made = await flatten(chain, directory.path);
  assert.ok(!readFileSync(made).includes("SECRET-OF-THE-HOST"));
});

test("a disk that is none is refused, and so is one that has its content elsewhere", { skip }, async () => {
  await using directory = await temporaryDirectory();
  const chain = await makeChain(directory.path);
  // The incompatible feature of an external data file.
  const file = openSync(chain.paths[0], "r+");
  writeSync(file, Buffer.from([4]), 0, 1, 79);
  await assert.rejects(flatten(chain, directory.path), /qemu-img failed/);
  await rm(join(directory.path, "flat"), { recursive: true });
  writeFileSync(chain.paths[0], "nothing");
  await assert.rejects(flatten(chain, directory.path), /qemu-img failed/);
});
