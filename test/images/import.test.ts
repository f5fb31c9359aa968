/**
 * Images without a registry: imports of all archive formats, and images made from Debian packages.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { promisify } from "node:util";
import { gunzipSync, gzipSync, zstdCompressSync } from "node:zlib";
import {
  alpinePlatforms,
  debianPlatforms,
  digestOf,
  HOST_ARCH,
  packedBeside,
  pushImage,
  writeLayout,
} from "../support/images.ts";
import { startRegistry } from "../support/registry.ts";
import { makeTar, type TarMember } from "../support/tar.ts";
import { askFileSystem, checkFileSystem, factsOf, left, namesIn, openTestImages, skipReason } from "./fixture.ts";

const execute = promisify(execFile);

let work: string;
let layout: string;

before(async () => {
  work = await mkdtemp(join(tmpdir(), "flotilla-import-"));
  layout = join(work, "layout");
  await writeLayout(layout, await alpinePlatforms());
});
after(() => rm(work, { recursive: true }));

async function archiveOf(directory: string, name: string): Promise<string> {
  const path = join(work, name);
  await execute("tar", ["--create", `--file=${path}`, `--directory=${directory}`, "."]);
  return path;
}

/** The output of `docker save` for one image: layers as plain tars with their own names. */
function savedMembers(layers: readonly Buffer[], change: object = {}): readonly TarMember[] {
  const config = JSON.stringify({
    architecture: HOST_ARCH,
    os: "linux",
    config: { Cmd: ["/bin/hello"], Env: ["A=b"] },
    rootfs: { type: "layers", diff_ids: layers.map(digestOf) },
  });
  const names = layers.map((_, index) => `layer${index}/layer.tar`);
  const manifest = [{ Config: "config.json", RepoTags: ["hello:latest"], Layers: names, ...change }];
  return [
    { name: "config.json", content: config },
    ...layers.map((content, index) => ({ name: names[index] ?? "", content })),
    { name: "manifest.json", content: JSON.stringify(manifest) },
    { name: "repositories", content: "{}" },
  ];
}

const HELLO = makeTar([{ name: "bin/hello", content: "#!/bin/sh\necho hello\n", mode: 0o755 }]);

describe("an import", { skip: skipReason }, () => {
  it("of an OCI layout, as a directory and as a tar, gives the same image as a pull", async () => {
    await using store = await openTestImages();
    const image = await store.images.importArchive(layout, "local/alpine");
    assert.deepEqual([image.reference, image.architecture, image.layerCount], ["local/alpine:latest", HOST_ARCH, 3]);
    assert.equal(image.configuration.user, "sailor");
    assert.deepEqual(await namesIn(image.rootPath, "/srv"), ["hidden", "kept"]);
    const again = await store.images.importArchive(await archiveOf(layout, "layout.tar"), "local/alpine:2");
    assert.equal(again.digest, image.digest);
    assert.equal((await store.images.ensure("local/alpine", { arch: null, tenantId: null })).digest, image.digest);
    assert.equal((await left(store.directory, "unpacked")).length, 1);
  });

  it("of a layout with variants of one architecture takes the one that the most processors can run, and refuses two images", async () => {
    await using store = await openTestImages();
    const directory = join(work, "variants");
    const platforms = await alpinePlatforms();
    await writeLayout(
      directory,
      platforms.filter(({ arch }) => arch === HOST_ARCH),
    );
    const file = join(directory, "index.json");
    const index = JSON.parse(await readFile(file, "utf8")) as { readonly manifests: readonly [{ platform: object }] };
    const [entry] = index.manifests;
    const as = (variant?: string): object => ({ ...entry, platform: { ...entry.platform, variant } });
    const list = (...manifests: object[]): Promise<void> => writeFile(file, JSON.stringify({ ...index, manifests }));
    const damaged = { ...as("v3"), digest: digestOf(Buffer.from("nothing")) };
    await list(damaged, as());
    assert.equal((await store.images.importArchive(directory, "local/alpine")).layerCount, 3);
    await list(as(), as());
    await assert.rejects(store.images.importArchive(directory, "local/alpine"), /holds 2 images; export one at a time/);
  });

  it("of a docker archive reads its config and its layers, also linked ones", async () => {
    await using store = await openTestImages();
    const other = makeTar([{ name: "etc/motd", content: "ahoy" }]);
    const members = savedMembers([HELLO, other, HELLO]).map((member) =>
      member.name === "layer2/layer.tar"
        ? ({ name: member.name, type: "symlink", target: "../layer0/layer.tar" } as const)
        : member,
    );
    await writeFile(join(work, "saved.tar"), makeTar(members));
    const image = await store.images.importArchive(join(work, "saved.tar"), "local/hello:v1");
    assert.deepEqual(image.configuration.command, ["/bin/hello"]);
    assert.equal(await askFileSystem(image.rootPath, "cat /etc/motd"), "ahoy");
  });

  it("of a root file system accepts plain, gzip and zstd, and gives it a shell to run", async () => {
    await using store = await openTestImages();
    const forms = { plain: HELLO, gzip: gzipSync(HELLO), zstd: zstdCompressSync(HELLO) };
    const digests = new Set<string>();
    for (const [name, bytes] of Object.entries(forms)) {
      await writeFile(join(work, name), bytes);
      const image = await store.images.importArchive(join(work, name), `local/${name}`);
      digests.add(image.digest);
      assert.deepEqual(image.configuration.command, ["/bin/sh"]);
      assert.equal((await factsOf(image.rootPath, "/bin/hello")).mode, "0755");
    }
    assert.equal(digests.size, 1, "the same content is the same image");
  });

  it("of a root file system that contains a manifest.json is not read as docker's format", async () => {
    await using store = await openTestImages();
    for (const content of ["[1]", "{ not JSON"]) {
      await writeFile(join(work, "odd.tar"), makeTar([{ name: "manifest.json", content }, { name: "bin/a" }]));
      const image = await store.images.importArchive(join(work, "odd.tar"), "local/odd");
      assert.equal(await askFileSystem(image.rootPath, "cat /manifest.json"), content);
    }
    await writeFile(join(work, "odd.tar"), makeTar([{ name: "manifest.json", type: "directory" }, { name: "bin/a" }]));
    await store.images.importArchive(join(work, "odd.tar"), "local/odd");
  });

  it("replaces an existing image of the name, and a name of a registry is refused", async () => {
    await using store = await openTestImages();
    await writeFile(join(work, "hello.tar"), HELLO);
    const first = await store.images.importArchive(join(work, "hello.tar"), "local/x");
    const second = await store.images.importArchive(layout, "local/x");
    assert.notEqual(first.digest, second.digest);
    assert.equal((await store.images.find("local/x", null))?.digest, second.digest);
    await assert.rejects(store.images.importArchive(layout, "alpine"), /an imported image is named local\//);
  });

  const bad: readonly (readonly [string, () => Buffer, RegExp])[] = [
    ["text", () => Buffer.from("#!/bin/sh\n".repeat(100)), /it is not a tar archive/],
    ["nothing", () => Buffer.alloc(0), /it is not a tar archive/],
    ["damaged gzip", () => gzipSync(HELLO).subarray(0, -20), /compressed data is damaged/],
    ["half of an archive", () => HELLO.subarray(0, 600), /cannot be imported/],
    ["two saved images", () => makeTar(savedMembers([HELLO]).map(twice)), /holds 2 images/],
    [
      "a saved image without its layer",
      () => makeTar(savedMembers([HELLO], { Layers: ["gone.tar"] })),
      /"gone.tar" is missing/,
    ],
    [
      "a saved image that names a file of the host",
      () => makeTar(savedMembers([HELLO], { Layers: ["../../../../etc/passwd"] })),
      /missing|not a file in it/,
    ],
    [
      "a saved image with a link to a file of the host",
      () =>
        makeTar([
          ...savedMembers([HELLO]).filter(({ name }) => name !== "layer0/layer.tar"),
          { name: "layer0/layer.tar", type: "symlink", target: "/etc/passwd" },
        ]),
      /missing|not a file in it/,
    ],
    [
      "a saved image with another layer than its config says",
      () =>
        makeTar(
          savedMembers([HELLO]).map((member) =>
            member.name === "layer0/layer.tar" ? { ...member, content: makeTar([]) } : member,
          ),
        ),
      /layer 1 of 1 is corrupt/,
    ],
  ];
  function twice(member: TarMember): TarMember {
    if (member.name !== "manifest.json") return member;
    const [image] = JSON.parse(String(member.content)) as readonly object[];
    return { ...member, content: JSON.stringify([image, image]) };
  }
  for (const [index, [what, bytes, why]] of bad.entries())
    it(`of ${what} is refused with a reason`, async () => {
      await using store = await openTestImages();
      await writeFile(join(work, `bad${index}`), bytes());
      await assert.rejects(store.images.importArchive(join(work, `bad${index}`), "local/bad"), why);
      assert.deepEqual(await left(store.directory, "work"), []);
    });
});

describe("images made on the node", { skip: skipReason }, () => {
  it("busybox comes from the cache directory, with its applets, the same each time", async () => {
    const cacheDirectory = join(work, "cache");
    await using store = await openTestImages({ cacheDirectory });
    assert.equal(await store.images.ensureLocalBusybox(), undefined, "set-up has not put it there yet");
    const missing = store.images.ensure("local/busybox", { arch: null, tenantId: null });
    await assert.rejects(missing, /never pulled; the node makes it when its agent starts$/);
    await mkdir(join(cacheDirectory, "images"), { recursive: true });
    await copyFile("/bin/busybox", join(cacheDirectory, "images", "busybox"));
    const image = await store.images.ensureLocalBusybox();
    assert.equal(image?.reference, "local/busybox:latest");
    const rootPath = image?.rootPath ?? "";
    const names = await namesIn(rootPath, "/bin");
    for (const name of ["busybox", "sh", "ls", "env", "cat", "["]) assert.ok(names.includes(name), name);
    assert.deepEqual(await factsOf(rootPath, "/bin/busybox"), {
      mode: "0755",
      uid: 0,
      gid: 0,
      links: 1,
      type: "regular",
    });
    assert.match(await askFileSystem(rootPath, "cat /etc/passwd"), /^root:x:0:0:root:\/root:\/bin\/sh$/m);
    assert.match(await askFileSystem(rootPath, "stat /usr/bin"), /Fast link dest: "\.\.\/bin"/);
    const images = await store.reopen();
    assert.equal((await images.ensureLocalBusybox())?.digest, image?.digest);
    assert.equal((await images.ensure("local/busybox", { arch: null, tenantId: null })).digest, image?.digest);
  });

  it("a tar that is made again is packed again", async () => {
    const tar = join(work, "again.tar");
    for (const content of ["old", "new"]) {
      const bytes = makeTar([{ name: "note", content }]);
      await writeFile(tar, bytes);
      const { path, diffId } = await packedBeside(tar);
      assert.equal(diffId, digestOf(bytes));
      assert.deepEqual(gunzipSync(await readFile(path)), bytes);
    }
  });

  it("Debian with python3 and nodejs is made from packages, and is pulled like any other", async () => {
    const [platform] = await debianPlatforms();
    assert.ok(platform !== undefined);
    await using registry = await startRegistry();
    await pushImage(registry, "debian", [platform]);
    await using store = await openTestImages();
    const { rootPath } = await store.images.ensure(`${registry.host}/debian`, { arch: null, tenantId: null });
    assert.equal((await factsOf(rootPath, "/usr/bin/python3")).type, "symlink");
    assert.equal((await factsOf(rootPath, "/usr/bin/node")).mode, "0755");
    assert.match(await askFileSystem(rootPath, "cat /etc/passwd"), /^root:/);
    assert.match(await askFileSystem(rootPath, "stat /etc/ssl/certs/ca-certificates.crt"), /Type: regular/);
    await checkFileSystem(rootPath);
  });
});
