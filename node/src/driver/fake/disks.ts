/**
 * Disks without blocks, for the fake driver: each is a file that names the image it was made from.
 */
import { readFile, writeFile } from "node:fs/promises";
import type { Disks } from "../../disks/disks.ts";

export const fakeDisks: Disks = {
  make: ({ diskPath, root }) => writeFile(diskPath, `a fake disk on ${root.rootPath}\n`),
  digestOf: async (diskPath) =>
    /^a fake disk on \/fake\/(sha256:[0-9a-f]{64})\n/.exec(await readFile(diskPath, "utf8"))?.[1] ?? null,
};
