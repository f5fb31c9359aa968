/**
 * What of the host's files QEMU needs to run: its program, the directories of its libraries, and its firmware. A jail shows
 * them and no others, so all of it is found out before.
 */
import { execFile } from "node:child_process";
import { readlink, realpath } from "node:fs/promises";
import { dirname } from "node:path";
import { promisify } from "node:util";
import { QEMU_PROGRAM } from "./argv.ts";

export interface RuntimeFiles {
  /** Without links in it. */
  readonly program: string;
  /** Without links, and none in another. */
  readonly directories: readonly string[];
  /** Links at the top of the host's tree on the way to a library: what each points to, and where it is. */
  readonly links: readonly { readonly target: string; readonly path: string }[];
}

const TOP_LINKS = ["/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"];

/** Rejects when QEMU or a library of it is missing. */
export async function findRuntimeFiles(): Promise<RuntimeFiles> {
  const { stdout: found } = await run("sh", ["-c", 'command -v "$1"', "sh", QEMU_PROGRAM]).catch(() => {
    throw new Error(`${QEMU_PROGRAM} is not installed; run scripts/setup`);
  });
  const program = await realpath(found.trim());
  const [libraries, firmware] = await Promise.all([run("ldd", [program]), run(program, ["-L", "help"])]);
  const places = [...librariesIn(libraries.stdout).map((path) => dirname(path)), ...firmware.stdout.trim().split("\n")];
  const real = await Promise.all(places.map((path) => realpath(path).catch(() => null)));
  const links = await Promise.all(
    TOP_LINKS.map(async (path) => ({ path, target: await readlink(path).catch(() => null) })),
  );
  return {
    program,
    directories: outermost(real.filter((path) => path !== null)),
    links: links.flatMap(({ path, target }) => (target === null ? [] : [{ path, target }])),
  };
}

/** From what `ldd` prints: the files of a program's libraries, and its loader's. */
export function librariesIn(text: string): readonly string[] {
  return [...text.matchAll(/(?:^|=>)\s*(\/\S+) \(0x/gm)].map(([, path = ""]) => path);
}

/** Each once, without those that are in others. */
export function outermost(directories: readonly string[]): readonly string[] {
  return [...new Set(directories)].filter(
    (directory) => !directories.some((other) => other !== directory && directory.startsWith(`${other}/`)),
  );
}

const run = promisify(execFile);
