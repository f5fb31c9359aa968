/**
 * What a collection removes while machines ask for images, and while another one runs.
 */
import assert from "node:assert/strict";
import { access, mkdir, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { temporaryDirectory } from "../../test/support/in-process.ts";
import { makeLog } from "../log.ts";
import type { UnpackedImage } from "./images.ts";
import { openImages } from "./store.ts";

const YEAR_MS = 365 * 24 * 60 * 60_000;
const digestOf = (letter: string): string => `sha256:${letter.repeat(64)}`;
const nameOf = (letter: string): string => `docker.io/library/${letter}:latest`;

/** An image and a reference to it. That of a later letter was used later; all were used last year. */
async function addImage(directory: string, letter: string): Promise<string> {
  const digest = digestOf(letter);
  const path = join(directory, "unpacked", digest.replace(":", "-"));
  await mkdir(path, { recursive: true });
  await writeFile(join(path, "root.ext4"), "x");
  const configuration = { env: [], workdir: "/", user: "", entrypoint: [], command: [] };
  const facts = { digest, source: `docker.io/library/${letter}`, architecture: "amd64", os: "linux", layerCount: 1 };
  await writeFile(join(path, "image.json"), JSON.stringify({ ...facts, configuration, rootBytes: 1, sizeBytes: 100 }));
  const usedAt = (systemClock.now() - YEAR_MS) / 1000 + letter.charCodeAt(0);
  await utimes(join(path, "image.json"), usedAt, usedAt);
  await mkdir(join(directory, "references"), { recursive: true });
  const reference = { owner: null, name: nameOf(letter), arch: "amd64", digest };
  await writeFile(join(directory, "references", `${letter}.json`), JSON.stringify(reference));
  return join(path, "root.ext4");
}

const open = (directory: string) =>
  openImages({
    ...{ directory, cacheDirectory: directory, arch: "amd64", cacheBytesMax: 0 },
    ...{ allowedRegistries: [], mirrors: new Map(), insecureRegistries: [], credentialsPath: null },
    digestsInUse: () => Promise.resolve(new Set()),
    clock: systemClock,
    log: makeLog({ level: "silent", clock: systemClock }),
  });

test("an image that a machine asks for while others are being removed stays", async () => {
  await using directory = await temporaryDirectory();
  await addImage(directory.path, "a");
  const rootPath = await addImage(directory.path, "b");
  await using images = await open(directory.path);
  const asked: Promise<UnpackedImage>[] = [];
  // When the first one is being removed.
  images.watch(() => asked.push(images.ensure(nameOf("b"), { arch: null, tenantId: null })));
  assert.deepEqual(await images.collectGarbage(new Set()), { removed: 1, freedBytes: 100 });
  assert.deepEqual(
    (await Promise.all(asked)).map((image) => image.rootPath),
    [rootPath],
  );
  await access(rootPath);
  assert.equal(await images.findByDigest(digestOf("a")), undefined);
});

test("of two collections at once each image is removed by one", async () => {
  await using directory = await temporaryDirectory();
  for (const letter of ["a", "b", "c"]) await addImage(directory.path, letter);
  await using images = await open(directory.path);
  const both = await Promise.all([images.collectGarbage(new Set()), images.collectGarbage(new Set())]);
  assert.equal(both[0].removed + both[1].removed, 3);
  assert.deepEqual(await images.list(), []);
});
