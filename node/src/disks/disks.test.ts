/**
 * Disks: size, owner, sparseness, and cleanup after failures. Uses the real qemu-img; skipped without it.
 */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { RootFile } from "../images/images.ts";
import { diskBytes, digestInHeader, GIB, qcow2Disks, resumeBytes } from "./disks.ts";

const hasQemuImg = spawnSync("qemu-img", ["--version"]).status === 0;
const options = hasQemuImg ? {} : { skip: "qemu-img is not installed" };

function place(): { directory: string; root: RootFile; diskPath: string; [Symbol.dispose](): void } {
  const top = mkdtempSync(join(tmpdir(), "flotilla-disks-"));
  const directory = join(top, "machine");
  mkdirSync(directory);
  mkdirSync(join(top, "image"));
  const rootPath = join(top, "image", "root.ext4");
  writeFileSync(rootPath, "");
  truncateSync(rootPath, 3 * 2 ** 20);
  const root = { rootPath, rootBytes: 3 * 2 ** 20 };
  const remove = (): void => rmSync(top, { recursive: true });
  return { directory, root, diskPath: join(directory, "disk"), [Symbol.dispose]: remove };
}

test("a disk has the requested size, but is never smaller than its image", () => {
  assert.equal(diskBytes(2, 5), 2 * 2 ** 30);
  assert.equal(diskBytes(1, 2 ** 30 + 1), 2 ** 30 + 512);
});

test(
  "a disk refers to its image by a relative path, is sparse and is inaccessible to other users",
  options,
  async () => {
    using here = place();
    await qcow2Disks.make({ diskPath: here.diskPath, root: here.root, diskGb: 10, uid: 700_001 });
    const output = execFileSync("qemu-img", ["info", "--output=json", here.diskPath], { encoding: "utf8" });
    const info = JSON.parse(output) as Record<string, unknown>;
    assert.equal(info["virtual-size"], 10 * 2 ** 30);
    assert.equal(info["backing-filename"], "../image/root.ext4");
    const stat = statSync(here.diskPath);
    assert.ok(stat.blocks * 512 < 2 ** 20, `${stat.blocks} blocks`);
    assert.equal(stat.mode & 0o777, 0o600);
    if (process.getuid?.() === 0) assert.equal(stat.uid, 700_001);
    assert.deepEqual(readdirSync(here.directory).sort(), ["disk"]);
  },
);

test("an unfinished disk left by a crash is replaced", options, async () => {
  using here = place();
  writeFileSync(`${here.diskPath}.new`, "half");
  await qcow2Disks.make({ diskPath: here.diskPath, root: here.root, diskGb: 1, uid: 700_001 });
  assert.deepEqual(readdirSync(here.directory).sort(), ["disk"]);
});

test("a failure to create a disk leaves nothing and gives the reason", options, async () => {
  using here = place();
  const missing = join(here.directory, "nowhere", "disk");
  const made = qcow2Disks.make({ diskPath: missing, root: here.root, diskGb: 1, uid: 700_001 });
  await assert.rejects(made, /disk cannot be created|no such file/i);
  assert.deepEqual(readdirSync(here.directory), []);
});

test("a second disk of the same image and size is an identical file", options, async () => {
  using here = place();
  const second = `${here.diskPath}-2`;
  await qcow2Disks.make({ diskPath: here.diskPath, root: here.root, diskGb: 3, uid: 700_001 });
  await qcow2Disks.make({ diskPath: second, root: here.root, diskGb: 3, uid: 700_002 });
  assert.deepEqual(readFileSync(second), readFileSync(here.diskPath));
  await qcow2Disks.make({ diskPath: second, root: here.root, diskGb: 4, uid: 700_002 });
  assert.notDeepEqual(readFileSync(second), readFileSync(here.diskPath));
});

test("a disk identifies its image, even after the node's directory was moved", options, async () => {
  using made = place();
  const hex = "ab".repeat(32);
  const directory = join(made.directory, `../images/unpacked/sha256-${hex}`);
  mkdirSync(directory, { recursive: true });
  const root = { rootPath: join(directory, "root-1048576.ext4"), rootBytes: 3 * 2 ** 20 };
  writeFileSync(root.rootPath, "");
  await qcow2Disks.make({ diskPath: made.diskPath, root, diskGb: 1, uid: 0 });
  assert.equal(await qcow2Disks.digestOf(made.diskPath), `sha256:${hex}`);
});

test("a header that is cut off, foreign or hostile gives no image", async () => {
  using made = place();
  const header = (path: string, length = path.length): Buffer => {
    const bytes = Buffer.alloc(200);
    bytes.write("QFI\xfb", "latin1");
    bytes.writeBigUInt64BE(100n, 8);
    bytes.writeUInt32BE(length, 16);
    bytes.write(path, 100);
    return bytes;
  };
  assert.equal(digestInHeader(header(`x/sha256-${"c".repeat(64)}/root.ext4`)), `sha256:${"c".repeat(64)}`);
  const hostile = ["", "/etc/shadow", `sha256-${"c".repeat(64)}/root.ext4/..`, `x/sha256-${"C".repeat(64)}/root`];
  for (const path of hostile) assert.equal(digestInHeader(header(path)), null, path);
  assert.equal(digestInHeader(header("x", 4_294_967_295)), null);
  assert.equal(digestInHeader(header("x").subarray(0, 19)), null);
  assert.equal(digestInHeader(Buffer.alloc(200)), null);
  writeFileSync(made.diskPath, "");
  assert.equal(await qcow2Disks.digestOf(made.diskPath), null);
});

test("a machine that a full disk has paused never writes into the database's reserve", () => {
  for (const gib of [1, 3, 5, 6.8, 10, 20, 100, 10_000]) {
    const bytes = gib * GIB;
    // As disk-reserve.ts of the server makes it.
    const reserve = Math.min(256 * 2 ** 20, bytes * 0.05);
    assert.ok(resumeBytes(bytes) >= reserve * 1.4, `${gib} GiB: ${resumeBytes(bytes)} of ${reserve}`);
  }
});
