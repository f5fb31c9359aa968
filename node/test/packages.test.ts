/**
 * Machines that become packages in a registry, and images of other nodes again: with Debian's registry, real
 * disks and real images, and without VMs.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { stat } from "node:fs/promises";
import { after, before, test } from "node:test";
import { callRegistry } from "../../test/support/faulty-uploads.ts";
import { startRegistry, type TestRegistry } from "../../test/support/registry.ts";
import { compareDisk, startPackageNode, writeDisk, writeRandom } from "./support/packages.ts";

const skip = process.getuid?.() !== 0 && "only root can confine";
const MIB = 2 ** 20;

let registry: TestRegistry;
before(async () => {
  registry = await startRegistry();
});
after(() => registry[Symbol.asyncDispose]());

test("a package has the content of the disk on a node that has nothing, and takes no more space", {
  skip,
}, async () => {
  await using from = await startPackageNode(callRegistry(registry.port));
  const diskPath = await from.stopped("a", { spec: { diskGb: 20 } });
  await writeRandom(diskPath, 3000 * MIB + 4096, randomBytes(5 * MIB));
  await writeDisk(diskPath, "write -P 7 19G 64k", "write -z 4000M 10M", `write -P 9 ${20 * 2 ** 30 - 4096} 4096`);
  const exported = await from.export("a");
  assert.ok(exported.sentLayers === exported.layers && exported.layers > 5);
  assert.equal(exported.sentBytes, exported.sizeBytes);
  assert.deepEqual(await from.leftovers(), []);

  await using to = await startPackageNode(callRegistry(registry.port));
  const image = await to.pull();
  assert.equal(image.digest, exported.digest);
  assert.equal(image.rootBytes, 20 * 2 ** 30);
  assert.match(await compareDisk(diskPath, image.rootPath), /identical/);
  assert.ok((await stat(image.rootPath)).blocks * 512 < 20 * MIB);
  assert.deepEqual(await to.leftovers(), []);
});
