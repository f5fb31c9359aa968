/**
 * Machines that become packages in a registry, and images of other nodes again: with Debian's registry, real
 * disks and real images, and without VMs.
 */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readdir, readFile, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { systemClock } from "@flotilla/base/clock";
import { HOST_ARCH } from "../../test/support/images.ts";
import { callRegistry, startFaultyUploads } from "../../test/support/faulty-uploads.ts";
import { startRegistry, type TestRegistry } from "../../test/support/registry.ts";
import { until } from "../../test/support/until.ts";
import { makeLog } from "../src/log.ts";
import { ExportFailed, Exports } from "../src/packages/exports.ts";
import { machineIdOf, temporaryDirectory } from "./support/in-process.ts";
import { compareDisk, REQUEST, smallDirectory, startPackageNode, writeDisk, writeRandom } from "./support/packages.ts";

const execute = promisify(execFile);
const SCRIPT = fileURLToPath(new URL("./support/export-and-die.ts", import.meta.url));
const isFailure =
  (code: ExportFailed["code"], message: RegExp) =>
  (error: Error): true => {
    assert.ok(error instanceof ExportFailed, String(error));
    assert.match(error.message, message);
    assert.equal(error.code, code);
    return true;
  };
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

test("an unchanged disk has the same digest and sends no layer, and a change of 1 MB sends little", {
  skip,
}, async () => {
  await using from = await startPackageNode(callRegistry(registry.port));
  const diskPath = await from.stopped("a");
  await writeRandom(diskPath, 500 * MIB, randomBytes(20 * MIB));
  const first = await from.export("a");
  const second = await from.export("a", { tag: "again" });
  assert.equal(second.digest, first.digest);
  assert.deepEqual([second.sentLayers, second.sentBytes], [0, 0]);
  await writeRandom(diskPath, 507 * MIB + 4096 * 3, randomBytes(MIB));
  const third = await from.export("a");
  assert.notEqual(third.digest, first.digest);
  assert.ok(third.sentLayers <= 2 && third.sentBytes <= 4 * MIB, `${third.sentBytes} bytes`);
  assert.match(await compareDisk(diskPath, (await from.pull()).rootPath), /identical/);
});

test("a disk with content in more places than layers are possible has packs, and the same content", {
  skip,
}, async () => {
  await using from = await startPackageNode(callRegistry(registry.port));
  const diskPath = await from.stopped("a", { spec: { diskGb: 4 } });
  const writes = Array.from({ length: 520 }, (_, index) => `write -q -P ${1 + (index % 250)} ${1000 + index}M 4k`);
  await writeDisk(diskPath, ...writes);
  const exported = await from.export("a");
  assert.ok(exported.layers > 256 && exported.layers <= 512, `${exported.layers} layers`);
  assert.match(await compareDisk(diskPath, (await from.pull()).rootPath), /identical/);
  await writeDisk(diskPath, "write -q -P 77 1001M 4k");
  const second = await from.export("a");
  assert.ok(second.sentLayers <= 1, `${second.sentLayers} layers`);
});

test("a disk that is copied in parts gives the same package", { skip }, async () => {
  const callServer = callRegistry(registry.port);
  await using whole = await startPackageNode(callServer);
  const diskPath = await whole.stopped("a");
  await writeRandom(diskPath, 598 * MIB, randomBytes(4 * MIB));
  const first = await whole.export("a");
  const { fleet, deps } = whole.node;
  const { temporaryDirectory, clock, log } = {
    ...whole,
    clock: systemClock,
    log: makeLog({ level: "silent", clock: systemClock }),
  };
  const parts = { fleet, deps, callServer, temporaryDirectory, arch: HOST_ARCH, clock, log } as const;
  const inParts = new Exports({ ...parts, windowCells: 200 });
  const signal = new AbortController().signal;
  const second = await inParts.export(machineIdOf("a"), REQUEST, { onProgress: () => undefined, signal });
  assert.deepEqual([second.digest, second.sentLayers], [first.digest, 0]);
});

test("a machine that runs, is suspended, has no disk or is not here is refused with what to do", { skip }, async () => {
  await using from = await startPackageNode(callRegistry(registry.port));
  await assert.rejects(from.export("e"), isFailure("not_found", /is not on this node/));
  const want = { image: "local/base" };
  await from.node.want(machineIdOf("b"), 1, "stopped", want);
  await assert.rejects(from.export("b"), isFailure("unreadable", /has no disk yet: start it once/));
  await from.node.want(machineIdOf("b"), 2, "running", want);
  await assert.rejects(from.export("b"), isFailure("not_stopped", /is not stopped: stop it first/));
  await from.node.want(machineIdOf("b"), 3, "stopped", { ...want, keepsMemory: true });
  await assert.rejects(from.export("b"), isFailure("suspended", /is suspended, and a package has no memory/));
  assert.deepEqual(await from.leftovers(), []);
});

test("a start is not held up by an export, which ends without a manifest", { skip }, async () => {
  await using front = await startFaultyUploads(registry.port);
  await using from = await startPackageNode(front.callServer);
  const diskPath = await from.stopped("a");
  await writeRandom(diskPath, 500 * MIB, randomBytes(30 * MIB));
  const started = Promise.withResolvers<string>();
  front.behave = ({ method, earlier }) => {
    if (method === "PATCH" && earlier === 5)
      void from.node
        .want(machineIdOf("a"), 3, "running", { image: "local/base" })
        .then(({ state }) => started.resolve(state));
    return { kind: "pass" };
  };
  await assert.rejects(from.export("a", { tag: "half" }), isFailure("started", /was started or changed/));
  assert.equal(await started.promise, "running");
  assert.ok(!front.seen.some(({ path }) => path.includes("/manifests/")));
  assert.deepEqual(await from.leftovers(), []);
});

test("two exports of a machine at once are one after the other, and the second sends nothing", { skip }, async () => {
  await using front = await startFaultyUploads(registry.port);
  await using from = await startPackageNode(front.callServer);
  await writeRandom(await from.stopped("a"), 500 * MIB, randomBytes(8 * MIB));
  const [first, second] = await Promise.all([from.export("a", { tag: "one" }), from.export("a", { tag: "two" })]);
  assert.equal(first.digest, second.digest);
  assert.equal(Math.min(first.sentLayers, second.sentLayers), 0);
  const uploads = front.seen.filter(({ method, path }) => method === "PUT" && path.includes("/blobs/"));
  assert.equal(new Set(uploads.map(({ path }) => /digest=(.*)$/.exec(path)?.[1])).size, uploads.length);
});

test("a layer that the registry loses before the manifest is sent once more", { skip }, async () => {
  await using front = await startFaultyUploads(registry.port);
  await using from = await startPackageNode(front.callServer);
  await writeRandom(await from.stopped("a"), 500 * MIB, randomBytes(2 * MIB));
  let lost = "";
  front.behave = ({ method, path }) => {
    const digest = /\/blobs\/uploads\/.*digest=(?<digest>sha256[^&]*)$/.exec(path)?.groups?.["digest"];
    if (method === "PUT" && digest !== undefined) lost ||= decodeURIComponent(digest);
    const isManifest = method === "PUT" && path.includes("/manifests/");
    if (!isManifest || front.seen.filter((each) => each.path === path).length > 1) return { kind: "pass" };
    const body = JSON.stringify({ errors: [{ code: "MANIFEST_BLOB_UNKNOWN", detail: { digest: lost } }] });
    return { kind: "status", status: 404, body };
  };
  await from.export("a", { tag: "lost" });
  const sent = front.seen.filter(({ method, path }) => method === "PUT" && path.includes(encodeURIComponent(lost)));
  assert.equal(sent.length, 2);
  await from.pull(":lost");
});

test("a registry that ends for good ends the export, which leaves nothing on the node", { skip }, async () => {
  await using own = await startRegistry();
  await using front = await startFaultyUploads(own.port);
  await using from = await startPackageNode(front.callServer);
  await writeRandom(await from.stopped("a"), 500 * MIB, randomBytes(8 * MIB));
  front.behave = ({ method, earlier }) => {
    if (method === "PATCH" && earlier === 4) void own.stop();
    return { kind: "pass" };
  };
  await assert.rejects(from.export("a"), isFailure(null, /the registry/));
  assert.deepEqual(await from.leftovers(), []);
});

test("a refusal of the registry ends the export with its reason", { skip }, async () => {
  await using front = await startFaultyUploads(registry.port);
  await using from = await startPackageNode(front.callServer);
  await writeRandom(await from.stopped("a"), 500 * MIB, randomBytes(8 * MIB));
  const body = JSON.stringify({ errors: [{ code: "DENIED", message: "50 of 50 GB are used" }] });
  front.behave = ({ method }) => (method === "POST" ? { kind: "status", status: 403, body } : { kind: "pass" });
  await assert.rejects(from.export("a"), isFailure("refused", /50 of 50 GB are used/));
});

test("an export whose caller has gone ends, and leaves nothing on the node", { skip }, async () => {
  await using front = await startFaultyUploads(registry.port);
  await using from = await startPackageNode(front.callServer);
  await writeRandom(await from.stopped("a"), 500 * MIB, randomBytes(8 * MIB));
  const leaving = new AbortController();
  front.behave = ({ method, earlier }) => {
    if (method !== "PATCH" || earlier < 3) return { kind: "pass" };
    leaving.abort(new Error("the caller has gone"));
    return { kind: "hang" };
  };
  await assert.rejects(from.export("a", {}, leaving.signal), /the caller has gone/);
  assert.deepEqual(await from.leftovers(), []);
});

test("a node without room for a copy of the disk refuses before it sends anything, and keeps nothing", {
  skip,
}, async () => {
  await using front = await startFaultyUploads(registry.port);
  await using small = await smallDirectory(24);
  await using from = await startPackageNode(front.callServer, { temporaryDirectory: small.path });
  await writeRandom(await from.stopped("a"), 500 * MIB, randomBytes(40 * MIB));
  await assert.rejects(from.export("a"), isFailure("no_space", /the node's disk is too full: the export needs \d+ MB/));
  assert.deepEqual([front.seen.length, (await readdir(small.path)).length], [0, 0]);
});

test("a disk whose header lies about its files, its size or its content gives nothing of the host", {
  skip,
}, async () => {
  await using from = await startPackageNode(callRegistry(registry.port));
  const diskPath = await from.stopped("a");
  const header = await readFile(diskPath);
  const lies: readonly (readonly [string, (bytes: Buffer) => void])[] = [
    ["is none", (bytes) => bytes.fill(0, 0, 4)],
    ["has its content elsewhere", (bytes) => bytes.writeUInt8(4, 79)],
    ["is larger", (bytes) => bytes.writeBigUInt64BE(2n ** 40n, 24)],
    ["is smaller", (bytes) => bytes.writeBigUInt64BE(2n ** 20n, 24)],
    ["has no end", (bytes) => bytes.writeBigUInt64BE(2n ** 63n - 512n, 24)],
  ];
  for (const [what, lie] of lies) {
    const bytes = Buffer.from(header);
    lie(bytes);
    await writeFile(diskPath, bytes);
    await assert.rejects(from.export("a"), isFailure("unreadable", /the machine's disk cannot be read/), what);
    assert.deepEqual(await from.leftovers(), []);
  }
  const secret = `${diskPath}.secret`;
  await writeFile(secret, Buffer.alloc(MIB, "SECRET-OF-THE-HOST"));
  await writeFile(diskPath, header);
  await from.node.deps.disks.rebase({ diskPath, directory: dirname(diskPath), rootPath: secret });
  await from.export("a", { tag: "rebased" });
  const image = await from.pull(":rebased");
  assert.ok(!(await readFile(image.rootPath)).subarray(0, 64 * MIB).includes("SECRET-OF-THE-HOST"));
});

test("the configuration is that of the image with what was asked for, and other tools read the package", {
  skip,
}, async () => {
  await using from = await startPackageNode(callRegistry(registry.port));
  await from.stopped("a");
  const configuration = {
    entrypoint: ["/bin/sh"],
    command: null,
    env: { B: "2", A: "1" },
    workdir: "/srv",
    user: null,
  };
  await from.export("a", { tag: "configured", configuration, ports: [8080, 80], labels: { team: "web" } });
  const reference = `docker://${registry.host}/tenants/tenant-1/web:configured`;
  const { stdout } = await execute("skopeo", ["inspect", "--tls-verify=false", "--config", reference]);
  const { architecture, config } = JSON.parse(stdout) as { architecture: string; config: Record<string, unknown> };
  assert.equal(architecture, HOST_ARCH);
  assert.deepEqual(config, {
    ExposedPorts: { "80/tcp": {}, "8080/tcp": {} },
    Env: ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "A=1", "B=2"],
    Entrypoint: ["/bin/sh"],
    Cmd: ["sh"],
    WorkingDir: "/srv",
    Labels: { team: "web" },
  });
  const image = await from.pull(":configured");
  assert.deepEqual(image.configuration.entrypoint, ["/bin/sh"]);
  assert.equal(image.exposedPort, 80);
});

test("an OCI layout of a package is imported as an archive of an image is", { skip }, async () => {
  await using from = await startPackageNode(callRegistry(registry.port));
  const diskPath = await from.stopped("a");
  await writeRandom(diskPath, 500 * MIB, randomBytes(2 * MIB));
  const exported = await from.export("a", { tag: "carried" });
  const layout = join(from.temporaryDirectory, "layout");
  const reference = `docker://${registry.host}/tenants/tenant-1/web:carried`;
  await execute("skopeo", ["--insecure-policy", "copy", "--src-tls-verify=false", reference, `oci:${layout}:latest`]);
  const archive = join(from.temporaryDirectory, "layout.tar");
  await execute("tar", ["--create", `--file=${archive}`, `--directory=${layout}`, "."]);
  await using to = await startPackageNode(callRegistry(registry.port));
  const image = await to.images.images.importArchive(archive, "local/carried");
  assert.equal(image.digest, exported.digest);
  assert.match(await compareDisk(diskPath, image.rootPath), /identical/);
  assert.deepEqual(await to.leftovers(), []);
});

for (const earlier of [0, 3, 9])
  test(`an agent that is killed at layer ${earlier + 1} leaves no program, and its successor sends the rest`, {
    skip,
  }, async () => {
    await using directory = await temporaryDirectory();
    {
      await using before = await startPackageNode(callRegistry(registry.port), {}, directory.path);
      await writeRandom(await before.stopped("a"), 500 * MIB, randomBytes(12 * MIB));
    }
    await using front = await startFaultyUploads(registry.port);
    const child = spawn(process.execPath, [SCRIPT, directory.path, String(front.ownPort)], { stdio: "inherit" });
    const ended = once(child, "exit");
    front.behave = (request) => {
      if (request.method === "PATCH" && request.earlier === earlier) child.kill("SIGKILL");
      return { kind: "pass" };
    };
    assert.deepEqual(await ended, [null, "SIGKILL"]);
    await until(async () => (await processesOf(directory.path)).length === 0, { what: "its programs to be gone" });
    await using next = await startPackageNode(callRegistry(registry.port), {}, directory.path);
    assert.deepEqual(await next.leftovers(), []);
    const exported = await next.export("a", { tag: "survived" });
    assert.ok(exported.layers - exported.sentLayers >= earlier - 3, `${exported.sentLayers} of ${exported.layers}`);
    await next.pull(":survived");
  });

/** Command lines that name the directory. */
async function processesOf(directory: string): Promise<readonly string[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid);
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")));
  return lines.filter((line) => line.includes(directory));
}
