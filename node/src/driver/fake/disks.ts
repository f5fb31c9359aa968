/**
 * Disks without blocks, for the fake driver: each is a file that names its image.
 */
import { readFile, rename, writeFile } from "node:fs/promises";
import type { Disks } from "../../disks/disks.ts";

export const fakeDisks: Disks = {
  make: async ({ diskPath, root }) => {
    // By rename, like a real disk, so that a killed agent leaves no incomplete file under this name.
    await writeFile(`${diskPath}.new`, `a fake disk on ${root.rootPath}\n`);
    await rename(`${diskPath}.new`, diskPath);
  },
  rootNameOf: () => Promise.resolve(null),
  rebase: () => Promise.resolve(),
  digestOf: async (diskPath) =>
    /^a fake disk on \/fake\/(sha256:[0-9a-f]{64})\n/.exec(await readFile(diskPath, "utf8"))?.[1] ?? null,
};
