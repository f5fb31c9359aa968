/**
 * The host's files that QEMU needs to run: its program, the directories of its libraries, and its firmware. A
 * jail contains only these, so they are determined first.
 */
import { execFile } from "node:child_process";
import { readdir, readlink, realpath } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { QEMU_PROGRAM } from "./argv.ts";

export interface RuntimeFiles {
  /** Without symbolic links. */
  readonly program: string;
  /** The program, its libraries and its modules, in a fixed order. */
  readonly files: readonly string[];
  /** Without symbolic links; none is inside another. */
  readonly directories: readonly string[];
  /** Symbolic links at the top of the host's tree on the way to a library: their targets and paths. */
  readonly links: readonly { readonly target: string; readonly path: string }[];
}

const TOP_LINKS = ["/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"];

/** Rejects when QEMU or a library of it is missing. */
export async function findRuntimeFiles(): Promise<RuntimeFiles> {
  const { stdout: found } = await run("sh", ["-c", 'command -v "$1"', "sh", QEMU_PROGRAM]).catch(() => {
    throw new Error(`${QEMU_PROGRAM} is not installed; run scripts/setup`);
  });
  const program = await realpath(found.trim());
  const [linked, firmware] = await Promise.all([run("ldd", [program]), run(program, ["-L", "help"])]);
  const shared = librariesIn(linked.stdout);
  const places = [...shared.map((path) => dirname(path)), ...firmware.stdout.trim().split("\n")];
  const real = await Promise.all(places.map((path) => realpath(path).catch(() => null)));
  const links = await Promise.all(
    TOP_LINKS.map(async (path) => ({ path, target: await readlink(path).catch(() => null) })),
  );
  const libraries = await Promise.all(shared.map((path) => realpath(path)));
  const modules = await Promise.all([...new Set(shared.map((path) => dirname(path)))].map(modulesIn));
  return {
    program,
    files: [...new Set([program, ...libraries, ...modules.flat()])].sort(),
    directories: outermost(real.filter((path) => path !== null)),
    links: links.flatMap(({ path, target }) => (target === null ? [] : [{ path, target }])),
  };
}

/** The files of a program's libraries and its loader, from the output of `ldd`. */
export function librariesIn(text: string): readonly string[] {
  return [...text.matchAll(/(?:^|=>)\s*(\/\S+) \(0x/gm)].map(([, path = ""]) => path);
}

/** QEMU's modules, which it loads when it needs them, if a directory of libraries has any. */
async function modulesIn(directory: string): Promise<readonly string[]> {
  const place = join(directory, "qemu");
  const names = (await readdir(place).catch((): string[] => [])).filter((name) => name.endsWith(".so"));
  return names.map((name) => join(place, name));
}

/** Without duplicates and directories inside others. */
export function outermost(directories: readonly string[]): readonly string[] {
  return [...new Set(directories)].filter(
    (directory) => !directories.some((other) => other !== directory && directory.startsWith(`${other}/`)),
  );
}

const run = promisify(execFile);
