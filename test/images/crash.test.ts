/**
 * kill -9 of the agent at every step of a pull: the next start cleans up, and the pull works.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, it } from "node:test";
import { fileURLToPath } from "node:url";
import { isLayer, startFaultyProxy } from "../support/faulty-proxy.ts";
import { HOST_ARCH, pushImage } from "../support/images.ts";
import { startRegistry, type TestRegistry } from "../support/registry.ts";
import { makeTar } from "../support/tar.ts";
import { until } from "../support/until.ts";
import { checkFileSystem, left, openTestImages, skipReason } from "./fixture.ts";

const SCRIPT = fileURLToPath(new URL("./pull-and-die.ts", import.meta.url));

let registry: TestRegistry;

before(async () => {
  registry = await startRegistry();
  const layers = [0, 1].map((layer) => ({
    tar: makeTar(
      Array.from({ length: 300 }, (_, index) => ({ name: `${layer}/${index}`, content: randomBytes(32_768) })),
    ),
    compression: "gzip" as const,
  }));
  await pushImage(registry, "app:latest", [{ arch: HOST_ARCH, layers }]);
});
after(() => registry[Symbol.asyncDispose]());

/** Starts a pull and kills it when its progress matches. Resolves when none of its processes runs. */
async function pullUntil(directory: string, reference: string, moment: RegExp): Promise<void> {
  const child = spawn(process.execPath, [SCRIPT, directory, reference], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(child, "exit");
  let hasReached = false;
  for await (const line of createInterface({ input: child.stdout })) {
    if (!moment.test(line)) continue;
    hasReached = true;
    child.kill("SIGKILL");
    break;
  }
  await ended;
  assert.ok(hasReached, `the pull never said ${moment}`);
  await until(async () => (await processesOf(directory)).length === 0, { what: "its programs to be gone" });
}

/** Command lines that name the directory: programs that should have ended with the agent. */
async function processesOf(directory: string): Promise<readonly string[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid);
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")));
  return lines.filter((line) => line.includes(directory));
}

for (const moment of [/^asking/, /^pulling/, /^decompressing layer 2/, /^unpacking/, /^making/])
  it(`killed when it says ${moment.source.slice(1)}, the next start cleans up and the pull works`, {
    skip: skipReason,
  }, async () => {
    const work = await mkdtemp(join(tmpdir(), "flotilla-killed-"));
    const directory = join(work, "images");
    const reference = `${registry.host}/app`;
    await pullUntil(directory, reference, moment);
    await using store = await openTestImages({ directory });
    assert.deepEqual(await left(directory, "work"), []);
    assert.deepEqual(await left(directory, "unpacked"), []);
    const image = await store.images.ensure(reference, { arch: null, tenantId: null });
    await checkFileSystem(image.rootPath);
    assert.deepEqual(await left(directory, "blobs"), []);
    assert.deepEqual(await left(directory, "work"), []);
    await rm(work, { recursive: true });
  });

it("killed during a layer, the next start fetches only the rest", { skip: skipReason }, async () => {
  const work = await mkdtemp(join(tmpdir(), "flotilla-killed-"));
  const directory = join(work, "images");
  await using proxy = await startFaultyProxy(registry.url);
  proxy.behave = (request) =>
    isLayer(request) && request.earlier === 0 ? { kind: "hang", after: 3_000_000 } : { kind: "pass" };
  await pullUntil(directory, `${proxy.host}/app`, /^pulling layer 1 of 2, [1-9]/);
  await using store = await openTestImages({ directory });
  const kept = await left(directory, "blobs");
  assert.ok(kept.length > 0, "what came in was kept");
  await store.images.ensure(`${proxy.host}/app`, { arch: null, tenantId: null });
  const resumed = proxy.seen.filter((request) => isLayer(request) && request.range !== null);
  assert.ok(resumed.length > 0 && resumed.every((request) => /^bytes=[1-9]\d+-$/.test(request.range ?? "")));
  await rm(work, { recursive: true });
});
