/**
 * Packages that no node made: each is refused with a plain text, and leaves nothing on the node.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { zstdCompressSync } from "node:zlib";
import { systemClock } from "@flotilla/base/clock";
import type { ImageFault } from "@flotilla/contract/errors";
import { isTold } from "../../test/images/fixture.ts";
import { callRegistry } from "../../test/support/faulty-uploads.ts";
import { HOST_ARCH, busyboxPlatforms, pushImage } from "../../test/support/images.ts";
import { startRegistry, type TestRegistry } from "../../test/support/registry.ts";
import type { CallServer } from "../src/images/own-registry.ts";
import { Pusher } from "../src/packages/push.ts";
import { temporaryDirectory } from "./support/in-process.ts";
import { type PackageNode, startPackageNode } from "./support/packages.ts";

const skip = process.getuid?.() !== 0 && "only root can confine";
const MIB = 2 ** 20;
const DISK_BYTES = 2 ** 30;
const MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE = "application/vnd.flotilla.disk.v1+zstd";

let registry: TestRegistry;
let directory: Awaited<ReturnType<typeof temporaryDirectory>>;
let node: PackageNode;
before(async () => {
  registry = await startRegistry();
  directory = await temporaryDirectory();
  node = await startPackageNode(callRegistry(registry.port));
});
after(async () => {
  await node[Symbol.asyncDispose]();
  await directory[Symbol.asyncDispose]();
  await registry[Symbol.asyncDispose]();
});

const digestOf = (bytes: Buffer): string => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

function record(offset: number | bigint, data: Buffer, length = data.byteLength): Buffer {
  const head = Buffer.alloc(12);
  head.writeBigUInt64LE(BigInt(offset), 0);
  head.writeUInt32LE(length, 8);
  return Buffer.concat([head, data]);
}

/** The first block of a disk with the magic number of ext4. */
function superBlock(): Buffer {
  const block = Buffer.alloc(4096, 1);
  block.writeUInt16LE(0xef53, 1080);
  return block;
}

interface Crafted {
  /** Plain. */
  readonly layers?: readonly Buffer[];
  readonly packed?: (plain: Buffer) => Buffer;
  readonly diffIds?: readonly string[];
  readonly architecture?: string;
  readonly manifest?: object;
  readonly annotations?: Readonly<Record<string, string>>;
}

let count = 0;

/** Pushes a package, and resolves with its tag. */
async function push(crafted: Crafted): Promise<string> {
  const pusher = new Pusher({
    ...{ callServer: callRegistry(registry.port), repository: "tenants/tenant-1/web", clock: systemClock },
    signal: new AbortController().signal,
  });
  const blob = async (content: Buffer, mediaType: string) => {
    const path = join(directory.path, "blob");
    await writeFile(path, content);
    const pushed = { digest: digestOf(content), size: content.byteLength };
    await pusher.blob({ ...pushed, path });
    return { mediaType, ...pushed };
  };
  const plain = crafted.layers ?? [record(0, superBlock())];
  const layers: object[] = [];
  for (const each of plain) layers.push(await blob((crafted.packed ?? zstdCompressSync)(each), LAYER_TYPE));
  const config = JSON.stringify({
    architecture: crafted.architecture ?? HOST_ARCH,
    os: "linux",
    config: {},
    rootfs: { type: "layers", diff_ids: crafted.diffIds ?? plain.map(digestOf) },
  });
  const manifest = JSON.stringify({
    schemaVersion: 2,
    mediaType: MANIFEST_TYPE,
    artifactType: "application/vnd.flotilla.machine.v1",
    config: await blob(Buffer.from(config), CONFIG_TYPE),
    layers,
    annotations: { "dev.flotilla.disk-bytes": String(DISK_BYTES), ...crafted.annotations },
    ...crafted.manifest,
  });
  count += 1;
  await pusher.manifest(Buffer.from(manifest), MANIFEST_TYPE, `crafted-${count}`);
  return `:crafted-${count}`;
}

const NOTHING = Buffer.alloc(0);
const block = (fill: number): Buffer => Buffer.alloc(4096, fill);
const foreign = HOST_ARCH === "amd64" ? "arm64" : "amd64";

const REFUSED: readonly (readonly [string, () => Crafted, RegExp, ImageFault?])[] = [
  [
    "a record outside of the disk",
    () => ({ layers: [record(DISK_BYTES, block(1))] }),
    /layer 1 of 1 is corrupt: .*outside of the disk/,
  ],
  [
    "overlapping records",
    () => ({ layers: [Buffer.concat([record(0, superBlock()), record(0, block(2))])] }),
    /overlap, or are not in order/,
  ],
  [
    "records that overlap in another layer",
    () => ({ layers: [record(8192, block(1)), record(4096, block(2))] }),
    /layer 2 of 2 is corrupt/,
  ],
  ["a layer that ends in a record", () => ({ layers: [record(0, block(1), 8192)] }), /ends in the middle of a record/],
  ["10 million records", () => ({ layers: [Buffer.alloc(12 * 10_000_000)] }), /a record without content/],
  [
    "a layer of zeros in many records",
    () => ({ layers: [manyRecords(60_000)] }),
    /more than 200 times its compressed size/,
  ],
  ["another digest in its config", () => ({ diffIds: [digestOf(NOTHING)] }), /does not match the digest in the config/],
  ["fewer digests than layers", () => ({ diffIds: [] }), /it has 1 layers, but its config lists 0/],
  ["damaged data", () => ({ packed: (plain) => zstdCompressSync(plain).fill(0xff, 12, 30) }), /is corrupt/],
  ["no file system", () => ({ layers: [record(0, block(1))] }), /no ext4 file system/],
  ["no layer at all", () => ({ layers: [] }), /no ext4 file system/],
  [
    "another architecture",
    () => ({ architecture: foreign }),
    new RegExp(`no variant for linux/${HOST_ARCH}`),
    "image_wrong_platform",
  ],
  ["a disk of 5 PiB", () => ({ annotations: { "dev.flotilla.disk-bytes": `${5 * 2 ** 50}` } }), /no size of a disk/],
  ["a manifest of 5 MB", () => ({ annotations: { x: "y".repeat(3_900_000), z: "y".repeat(1_200_000) } }), /./],
  [
    "the files of another program",
    () => ({ manifest: { artifactType: "application/vnd.smolmachines.smolmachine.v1" } }),
    /a \.smolmachine of another program.*flotilla machine export/,
  ],
  [
    "another kind of artifact",
    () => ({ manifest: { artifactType: "application/vnd.cargo.v1" } }),
    /of type .*not supported/,
  ],
  [
    "more content than the node takes",
    () => ({ annotations: { "dev.flotilla.used-bytes": `${30e9}`, "dev.flotilla.disk-bytes": `${2 ** 40}` } }),
    /it unpacks to more than|too full/,
  ],
];

function manyRecords(number: number): Buffer {
  const each = record(0, Buffer.alloc(4096));
  const all = Buffer.alloc(each.byteLength * number);
  for (let index = 0; index < number; index += 1) {
    each.copy(all, index * each.byteLength);
    all.writeBigUInt64LE(BigInt(index * 4096), index * each.byteLength);
  }
  return all;
}

for (const [what, crafted, message, fault = null] of REFUSED)
  test(`a package with ${what} is refused, and leaves nothing`, { skip }, async () => {
    const isLarge = what.startsWith("a manifest of");
    const tag = await push(crafted()).catch((error: unknown) => {
      // A registry refuses it as well.
      if (isLarge) return null;
      throw error;
    });
    if (tag === null) return;
    await assert.rejects(node.pull(tag), isTold(message, fault));
    const left = await node.leftovers();
    // What was downloaded stays for the next attempt, as that of every image, unless it can be of no use.
    assert.deepEqual(
      left.filter((name) => !name.startsWith("sha256-")),
      [],
    );
    assert.equal(
      (await node.images.images.list()).some(({ reference }) => reference.includes("crafted")),
      false,
    );
  });

test("a manifest of 5 MB is not read to its end", { skip }, async () => {
  await using server = createServer((_request, response) => {
    response.writeHead(200, { "content-type": MANIFEST_TYPE });
    const more = (): void => {
      while (!response.destroyed && response.write(Buffer.alloc(65_536, " ")));
    };
    response.on("drain", more);
    more();
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => {
    server.once("listening", resolve);
  });
  const { port } = server.address() as { readonly port: number };
  await using other = await startPackageNode(callRegistry(port));
  await assert.rejects(other.pull(":large"), /does not answer as a registry does/);
  server.closeAllConnections();
});

test("a blob that the registry changes is refused by its digest", { skip }, async () => {
  const tag = await push({ layers: [record(0, superBlock()), record(MIB, block(9))] });
  const real = callRegistry(registry.port);
  const callServer: CallServer = async (call) => {
    const answer = await real(call);
    if (call.path.includes("/blobs/"))
      answer.on("data", (chunk: Buffer) => chunk.writeUInt8(chunk.readUInt8(0) ^ 1, 0));
    return answer;
  };
  await using other = await startPackageNode(callServer);
  await assert.rejects(other.pull(tag), /sent corrupt data: its digest does not match/);
  assert.deepEqual(
    (await other.leftovers()).filter((name) => !name.startsWith("sha256-")),
    [],
  );
});

test("a container image as a package, and a package as a container image, are refused with what to use", {
  skip,
}, async () => {
  await pushImage(registry, "tenants/tenant-1/web:plain", await busyboxPlatforms());
  const asPackage =
    /package tenants\/tenant-1\/web:plain cannot be pulled: it is a container image, .*: name it as image/;
  await assert.rejects(node.pull(":plain"), isTold(asPackage, "image_refused"));
  const tag = await push({});
  await node.pull(tag);
  const reference = `flotilla.internal/tenants/tenant-1/web${tag}`;
  const asImage = /is a package of a machine, not a container image: name it as source \{"type": "smolmachine"/;
  const { images } = node.images;
  for (const isRefresh of [false, true])
    await assert.rejects(
      images.ensure(reference, { arch: null, tenantId: "tenant-1", isRefresh }),
      isTold(asImage, "image_refused"),
    );
});

test("a disk smaller than the package's is refused with the size to ask for", { skip }, async () => {
  const tag = await push({ annotations: { "dev.flotilla.disk-bytes": String(3 * 2 ** 30) } });
  const image = await node.pull(tag);
  const { images } = node.images;
  await assert.rejects(
    images.rootFor(image, 2 ** 30),
    isTold(/has 3 GB: ask for diskGb of at least 3/, "image_refused"),
  );
  assert.equal((await images.rootFor(image, 4 * 2 ** 30)).rootPath, image.rootPath);
});

test("a package of another tenant, or none, is what the server says it is", { skip }, async () => {
  const { images } = node.images;
  const missing = images.ensure("flotilla.internal/tenants/tenant-2/secret", {
    arch: null,
    tenantId: "tenant-1",
    isPackage: true,
  });
  await assert.rejects(missing, isTold(/package tenants\/tenant-2\/secret:latest does not exist/, "image_not_found"));
  await using alone = await startPackageNode(() => Promise.reject(new Error("the server is away")));
  await assert.rejects(alone.pull(), isTold(/cannot be reached/, null));
});
