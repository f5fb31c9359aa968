/**
 * The modules of a guest's kernel: which files they are, and in which order they must be loaded.
 *
 * What one release of a kernel has as a module is part of the kernel itself in the next (virtio_console in 6.12). Such a
 * module has no file and needs none.
 */
import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { inLoadOrder, moduleDependencies } from "./initramfs.ts";

const MODULE_BYTES_MAX = 64 * 2 ** 20;

/**
 * The wanted modules of the kernel in `directory` and all that they need, unpacked, in load order; without those that
 * are part of the kernel. Throws when one is neither there nor part of the kernel.
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

/** By the name that kernels use for them, in which `-` is `_`. */
async function modulePaths(directory: string): Promise<ReadonlyMap<string, string>> {
  const files = await readdir(directory, { recursive: true });
  return new Map(
    files.filter((file) => /\.ko(\.xz)?$/.test(file)).map((file) => [moduleName(file), join(directory, file)]),
  );
}

/** From the kernel's own list, which every kernel package has. */
async function builtInModules(directory: string): Promise<ReadonlySet<string>> {
  const list = await readFile(join(directory, "modules.builtin"), "utf8").catch(() => "");
  return new Set(list.split("\n").map(moduleName));
}

function moduleName(path: string): string {
  return basename(path)
    .replace(/\.ko(\.xz)?$/, "")
    .replaceAll("-", "_");
}

/** Debian packs modules since version 13. */
async function readModule(path: string): Promise<Buffer> {
  if (!path.endsWith(".xz")) return readFile(path);
  const options = { encoding: "buffer", maxBuffer: MODULE_BYTES_MAX } as const;
  return (await promisify(execFile)("xz", ["--decompress", "--stdout", path], options)).stdout;
}
