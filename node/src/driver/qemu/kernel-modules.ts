/**
 * The modules of a guest's kernel: their files, and the order to load them in.
 *
 * A module of one kernel release can be built into the next (virtio_console in 6.12); it then has no file and
 * needs none.
 */
import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { inLoadOrder, moduleDependencies } from "./initramfs.ts";

const MODULE_BYTES_MAX = 64 * 2 ** 20;

/**
 * The `wanted` modules of the kernel in `directory` with their dependencies, decompressed, in load order,
 * without built-in ones. Throws when one is neither present nor built in.
 */
export async function readModules(directory: string, wanted: readonly string[]): Promise<ReadonlyMap<string, Buffer>> {
  const [paths, builtIn] = await Promise.all([modulePaths(directory), builtInModules(directory)]);
  const bytes = new Map<string, Buffer>();
  const load = async (name: string): Promise<void> => {
    if (bytes.has(name) || builtIn.has(name)) return;
    const path = paths.get(name);
    if (path === undefined) throw new Error(`the guest kernel has no module ${name} in ${directory}`);
    const module = await readModule(path);
    bytes.set(name, module);
    for (const needed of moduleDependencies(module)) await load(needed);
  };
  for (const name of wanted) await load(name);
  const ordered = inLoadOrder(wanted, (name) => moduleDependencies(bytes.get(name) ?? Buffer.alloc(0)));
  return new Map(
    ordered.flatMap((name) => {
      const module = bytes.get(name);
      return module === undefined ? [] : [[name, module] as const];
    }),
  );
}

/** Paths of modules by the kernel's names for them, with `_` instead of `-`. */
async function modulePaths(directory: string): Promise<ReadonlyMap<string, string>> {
  const files = await readdir(directory, { recursive: true });
  return new Map(
    files.filter((file) => /\.ko(\.xz)?$/.test(file)).map((file) => [moduleName(file), join(directory, file)]),
  );
}

/** Reads the list in every kernel package. */
async function builtInModules(directory: string): Promise<ReadonlySet<string>> {
  const list = await readFile(join(directory, "modules.builtin"), "utf8").catch(() => "");
  return new Set(list.split("\n").map(moduleName));
}

function moduleName(path: string): string {
  return basename(path)
    .replace(/\.ko(\.xz)?$/, "")
    .replaceAll("-", "_");
}

/** Debian compresses modules since version 13. */
async function readModule(path: string): Promise<Buffer> {
  if (!path.endsWith(".xz")) return readFile(path);
  const options = { encoding: "buffer", maxBuffer: MODULE_BYTES_MAX } as const;
  return (await promisify(execFile)("xz", ["--decompress", "--stdout", path], options)).stdout;
}
