/**
 * Disks without blocks, for the fake driver: each is a file that names its image.
 */
import { readFile, rename, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Disks } from "../../disks/disks.ts";

async function contentOf(diskPath: string, layerPaths: readonly string[]): Promise<string> {
  const [disk = "", ...layers] = await Promise.all([diskPath, ...layerPaths].map((path) => readFile(path, "utf8")));
  const [image, ...own] = disk.split("\n");
  const written = layers.toReversed().flatMap((layer) => layer.split("\n").slice(1, -1));
  return [image, ...written, ...own].join("\n");
}

export const fakeDisks: Disks = {
  make: async ({ diskPath, root }) => {
    // By rename, like a real disk, so that a killed agent leaves no incomplete file under this name.
    await writeFile(`${diskPath}.new`, `a fake disk on ${root.rootPath}\n`);
    await rename(`${diskPath}.new`, diskPath);
  },
  rootNameOf: () => Promise.resolve(null),
  rebase: () => Promise.resolve(),
  // A fake guest writes by appending.
  flatten: async ({ diskPath, layerPaths, directory }) => {
    const made = join(directory, "disk");
    await writeFile(made, await contentOf(diskPath, layerPaths));
    return made;
  },
  // The disk's blocks are its text, and then zeros.
  readPart: async ({ diskPath, layerPaths, directory, diskBytes, part }) => {
    const made = join(directory, "part");
    const content = Buffer.from(await contentOf(diskPath, layerPaths));
    const { from, bytes } = part ?? { from: 0, bytes: diskBytes };
    await writeFile(made, content.subarray(from, from + bytes));
    await truncate(made, bytes);
    return made;
  },
  digestOf: async (diskPath) =>
    /^a fake disk on \/fake\/(sha256:[0-9a-f]{64})\n/.exec(await readFile(diskPath, "utf8"))?.[1] ?? null,
};
