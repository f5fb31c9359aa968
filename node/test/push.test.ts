/**
 * The push client against Debian's registry, with the faults of networks and registries between them.
 */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import {
  callRegistry,
  type FaultyUploads,
  type SeenUpload,
  startFaultyUploads,
  type UploadFault,
} from "../../test/support/faulty-uploads.ts";
import { startRegistry, type TestRegistry } from "../../test/support/registry.ts";
import { startKeepingRegistry } from "../../test/support/keeping-registry.ts";
import { fastClock } from "../../test/support/fast-clock.ts";
import { Pusher, type PushedBlob, type PushOptions } from "../src/packages/push.ts";
import { PushRefused, UnknownBlobs } from "../src/packages/registry-answer.ts";
import { temporaryDirectory } from "./support/in-process.ts";

const LAYER_BYTES = 5_000_000;
const REPOSITORY = "tenants/tenant-1/web";
const TYPE = "application/vnd.oci.image.manifest.v1+json";

let registry: TestRegistry;
let directory: Awaited<ReturnType<typeof temporaryDirectory>>;

before(async () => {
  registry = await startRegistry();
  directory = await temporaryDirectory();
});
after(async () => {
  await directory[Symbol.asyncDispose]();
  await registry[Symbol.asyncDispose]();
});

/** A blob that the registry does not have. */
async function newBlob(size = LAYER_BYTES): Promise<PushedBlob> {
  const content = randomBytes(size);
  const digest = `sha256:${createHash("sha256").update(content).digest("hex")}`;
  const path = join(directory.path, digest.slice(-16));
  await writeFile(path, content);
  return { digest, size, path };
}

const pusherTo = (front: Pick<FaultyUploads, "callServer">, more: Partial<PushOptions> = {}): Pusher =>
  new Pusher({
    ...{ callServer: front.callServer, repository: REPOSITORY, clock: systemClock },
    ...{ signal: new AbortController().signal, retryDelayMs: 5, silenceMs: 2_000, ...more },
  });

async function assertThere({ digest, size }: PushedBlob): Promise<void> {
  const answer = await fetch(`${registry.url}/v2/${REPOSITORY}/blobs/${digest}`);
  const content = Buffer.from(await answer.arrayBuffer());
  assert.equal(content.byteLength, size);
  assert.equal(`sha256:${createHash("sha256").update(content).digest("hex")}`, digest);
}

const sum = (seen: readonly SeenUpload[]): number => seen.reduce((bytes, { passedBytes }) => bytes + passedBytes, 0);

test("a blob arrives, and is not sent again", async () => {
  await using front = await startFaultyUploads(registry.port);
  const blob = await newBlob();
  assert.equal(await pusherTo(front).blob(blob), true);
  await assertThere(blob);
  assert.equal(await pusherTo(front).blob(blob), false);
  assert.equal(sum(front.seen), LAYER_BYTES);
});

test("an upload that is cut at 40 % continues at the byte that the registry has", async () => {
  await using keeping = await startKeepingRegistry();
  await using front = await startFaultyUploads(keeping.port);
  const after = LAYER_BYTES * 0.4;
  front.behave = ({ method, earlier }) =>
    method === "PATCH" && earlier === 0 ? { kind: "cut", after } : { kind: "pass" };
  const blob = await newBlob();
  await pusherTo(front).blob(blob);
  assert.ok(keeping.blobs.has(blob.digest));
  const parts = front.seen.filter(({ method }) => method === "PATCH");
  // A registry may not have read all that has arrived when it is asked: then it says so, and is asked again.
  assert.equal(parts[0]?.passedBytes, after);
  assert.ok(parts.slice(1).every(({ bodyBytes }) => bodyBytes >= LAYER_BYTES - after));
  assert.ok((parts.at(-1)?.bodyBytes ?? 0) < LAYER_BYTES);
  assert.ok(parts.length <= 4);
});

test("a registry that keeps nothing of a cut upload gets another one", async () => {
  await using front = await startFaultyUploads(registry.port);
  front.behave = ({ method, earlier }) =>
    method === "PATCH" && earlier === 0 ? { kind: "cut", after: LAYER_BYTES * 0.4 } : { kind: "pass" };
  const blob = await newBlob();
  await pusherTo(front).blob(blob);
  await assertThere(blob);
  assert.equal(sum(front.seen), LAYER_BYTES * 1.4);
});

const lost =
  (method: string, kind: "lose-answer" | "drop") =>
  (request: SeenUpload): UploadFault =>
    request.method === method && request.earlier === 0 ? { kind } : { kind: "pass" };

for (const method of ["HEAD", "POST", "PATCH", "PUT"])
  for (const kind of ["lose-answer", "drop"] as const)
    test(`the connection may break at the first ${method}, ${kind === "drop" ? "before" : "after"} the registry had it`, async () => {
      await using front = await startFaultyUploads(registry.port);
      front.behave = lost(method, kind);
      const blob = await newBlob(300_000);
      assert.equal(await pusherTo(front).blob(blob), true);
      await assertThere(blob);
      assert.ok(sum(front.seen) <= 600_000);
    });

const STATUSES: readonly (readonly [number, object?])[] = [
  [416],
  [429, { "retry-after": "0" }],
  [500],
  [502],
  [503, { "retry-after": "0" }],
  [404],
];
for (const [status, headers = {}] of STATUSES)
  for (const method of ["POST", "PATCH", "PUT"])
    test(`an answer ${status} to the first ${method} is repeated as it means`, async () => {
      await using front = await startFaultyUploads(registry.port);
      front.behave = (request) =>
        request.method === method && request.earlier === 0
          ? { kind: "status", status, headers: { ...headers } }
          : { kind: "pass" };
      const blob = await newBlob(300_000);
      await pusherTo(front).blob(blob);
      await assertThere(blob);
    });

for (const status of [416, 429, 500, 404])
  test(`a registry that always answers ${status} ends the push after some attempts`, async () => {
    await using front = await startFaultyUploads(registry.port);
    front.behave = ({ method }) =>
      method === "PATCH" ? { kind: "status", status, headers: { "retry-after": "0" } } : { kind: "pass" };
    await assert.rejects(pusherTo(front).blob(await newBlob(300_000)), /the registry answers/);
    assert.ok(front.seen.length < 100, `${front.seen.length} requests`);
  });

test("a refusal is read while the body is still to be sent, and not repeated", async () => {
  await using front = await startFaultyUploads(registry.port);
  const body = JSON.stringify({ errors: [{ code: "DENIED", message: "49 of 50 GB are used" }] });
  front.behave = ({ method }) =>
    method === "PATCH"
      ? { kind: "status", status: 403, body, headers: { "content-type": "application/json" } }
      : { kind: "pass" };
  const isRefusal = (error: Error): boolean => error instanceof PushRefused && /49 of 50 GB/.test(error.message);
  await assert.rejects(pusherTo(front).blob(await newBlob(40_000_000)), isRefusal);
  assert.equal(front.seen.filter(({ method }) => method === "PATCH").length, 1);
});

test("a registry that is killed in the middle is continued with when it is back", async () => {
  await using first = await startRegistry();
  await using front = await startFaultyUploads(first.port);
  const blob = await newBlob(20_000_000);
  let second: TestRegistry | null = null;
  front.behave = ({ method, earlier }) => {
    if (method !== "PATCH" || earlier !== 0) return { kind: "pass" };
    void first.stop().then(async () => {
      second = await startRegistry({ directory: first.directory });
      front.port = second.port;
    });
    return { kind: "cut", after: 9_000_000 };
  };
  await pusherTo(front, { retryDelayMs: 200 }).blob(blob);
  const found = await fetch(`${(second as TestRegistry | null)?.url}/v2/${REPOSITORY}/blobs/${blob.digest}`);
  assert.equal((await found.arrayBuffer()).byteLength, blob.size);
  await (second as TestRegistry | null)?.[Symbol.asyncDispose]();
});

test("a registry that is silent is left after a while, and a slow one is not", async () => {
  await using front = await startFaultyUploads(registry.port);
  front.behave = ({ method, earlier }) => (method === "PATCH" && earlier === 0 ? { kind: "hang" } : { kind: "pass" });
  const blob = await newBlob(300_000);
  await pusherTo(front, { silenceMs: 300 }).blob(blob);
  await assertThere(blob);
  await using slow = await startKeepingRegistry({ partMs: 5 });
  const startedAt = systemClock.monotonic();
  const large = await newBlob(30_000_000);
  await pusherTo({ callServer: callRegistry(slow.port) }, { silenceMs: 1_500 }).blob(large);
  assert.ok(slow.blobs.has(large.digest));
  assert.ok(systemClock.monotonic() - startedAt > 1_500);
});

test("a caller that leaves ends the upload immediately", async () => {
  await using front = await startFaultyUploads(registry.port);
  const leaving = new AbortController();
  front.behave = ({ method }) => {
    if (method !== "PATCH") return { kind: "pass" };
    leaving.abort(new Error("the caller has left"));
    return { kind: "hang" };
  };
  await assert.rejects(pusherTo(front, { signal: leaving.signal }).blob(await newBlob()), /the caller has left/);
});

test("a manifest whose blob the registry has lost says which, and arrives when it was sent once more", async () => {
  await using front = await startFaultyUploads(registry.port);
  const pusher = pusherTo(front);
  const [config, layer] = [await newBlob(100), await newBlob(1_000)];
  await pusher.blob(config);
  const descriptor = ({ digest, size }: PushedBlob, mediaType: string) => ({ mediaType, digest, size });
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: TYPE,
      config: descriptor(config, "application/vnd.oci.image.config.v1+json"),
      layers: [descriptor(layer, "application/vnd.flotilla.disk.v1+zstd")],
    }),
  );
  const isLost = (error: Error): boolean =>
    error instanceof UnknownBlobs && error.digests.length === 1 && error.digests[0] === layer.digest;
  await assert.rejects(pusher.manifest(manifest, TYPE, "latest"), isLost);
  await pusher.blob(layer, { isSent: true });
  front.behave = lost("PUT", "lose-answer");
  await pusher.manifest(manifest, TYPE, "latest");
  const found = await fetch(`${registry.url}/v2/${REPOSITORY}/manifests/latest`, { headers: { accept: TYPE } });
  assert.deepEqual(Buffer.from(await found.arrayBuffer()), manifest);
});

test("a registry that asks for a pause of an hour is asked again within a minute", async () => {
  await using front = await startFaultyUploads(registry.port);
  front.behave = ({ method, earlier }) =>
    method === "POST" && earlier === 0
      ? { kind: "status", status: 429, headers: { "retry-after": "3600" } }
      : { kind: "pass" };
  const blob = await newBlob(1_000);
  await pusherTo(front, { clock: fastClock(1_000), silenceMs: 10_000_000 }).blob(blob);
  await assertThere(blob);
});
