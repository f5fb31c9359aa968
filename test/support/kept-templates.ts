/**
 * Templates of VMs that test files would make again, each by booting a guest: kept in the programs' cache
 * directory, and put into the directory of a test's new node.
 *
 * Always:
 * - They are of this version: the name of their place covers the driver's sources. A node removes those that
 *   do not fit its host (node/src/driver/qemu/template.ts).
 * - The first node of a test gets other ones than the second, as nodes of a fleet have: each made its own,
 *   and what one sends of a machine's memory must not depend on that.
 * - Nothing writes a template's files, so the same files have a name in each directory.
 * - A kept template is complete: it is linked beside its place and renamed. Those of other versions are
 *   removed after a day without use.
 */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { globSync } from "node:fs";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, utimes } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { parseSettings } from "@flotilla/contract/settings";
import { removeUnused } from "../../server/test/support/cluster.ts";

const ROOT = join(import.meta.dirname, "../..");
/**
 * In the name of one that has an image, which only its node has; one that is being made; one that is left for
 * VMs that use it.
 */
const NOT_KEPT = /-disk-|\.new$|\.old$/;

/**
 * Puts what is kept into a node's directory. Call before the node's agent has started there. `index`: of the
 * node in its fleet.
 */
export async function putTemplates(nodeDirectory: string, index: number): Promise<void> {
  const place = await placeOfTemplates(index);
  const directory = join(nodeDirectory, "templates");
  await mkdir(directory, { recursive: true, mode: 0o711 });
  for (const name of await templatesIn(place)) await copy(join(place, name), join(directory, name));
}

/** Keeps what a node has made. Call when its agent has ended. */
export async function keepTemplates(nodeDirectory: string, index: number): Promise<void> {
  const directory = join(nodeDirectory, "templates");
  const made = await templatesIn(directory);
  if (made.length === 0) return;
  const place = await placeOfTemplates(index);
  const kept = await templatesIn(place);
  for (const name of made.filter((each) => !kept.includes(each))) {
    const making = await mkdtemp(`${place}-making-`);
    await copy(join(directory, name), join(making, name));
    // Fails when another file was first.
    await rename(join(making, name), join(place, name)).catch(() => undefined);
    await rm(making, { recursive: true, force: true });
  }
}

const templatesIn = async (directory: string): Promise<readonly string[]> =>
  (await readdir(directory).catch(() => [])).filter((name) => !NOT_KEPT.test(name));

/** Links the files; copies them when the directories are of different file systems. */
async function copy(from: string, to: string): Promise<void> {
  const run = promisify(execFile);
  await run("cp", ["-al", from, to]).catch(async () => {
    await rm(to, { recursive: true, force: true });
    await run("cp", ["-a", "--sparse=always", from, to]);
  });
}

async function placeOfTemplates(index: number): Promise<string> {
  const { cacheDirectory } = parseSettings(["cacheDirectory"], process.env);
  const all = join(cacheDirectory, "test-templates");
  await mkdir(all, { recursive: true });
  const hash = createHash("sha256");
  for (const path of globSync("node/src/driver/**/*.ts", { cwd: ROOT }).toSorted())
    hash.update(`${path}\0${await readFile(join(ROOT, path), "utf8")}\0`);
  const place = join(all, `${hash.digest("hex").slice(0, 16)}-${index}`);
  await mkdir(place, { recursive: true });
  const now = new Date();
  await utimes(place, now, now);
  await removeUnused(all);
  return place;
}
