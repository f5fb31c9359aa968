/**
 * Another program as mmdebstrap, so that tests make images without Debian's mirrors: it writes a line to a
 * file for each run, waits until it is released, and copies an archive.
 */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";

export interface DebianMaker {
  /** The process ids of its runs until now. */
  runs(): Promise<readonly number[]>;
  /** Runs complete from now on. */
  release(): Promise<void>;
}

/** Puts it into a directory, and that first into PATH. `archive`: what it makes. */
export async function installDebianMaker(directory: string, archive: string): Promise<DebianMaker> {
  const [programs, runs, go] = ["bin", "runs", "go"].map((name) => join(directory, name)) as [string, string, string];
  await mkdir(programs);
  const lines = [
    "#!/bin/sh",
    `for word; do case $word in *.partial.*) target=$word ;; esac; done`,
    "echo 'I: installing essential packages...' >&2",
    'echo partial >"$target"',
    `echo $$ >>${runs}`,
    `until [ -e ${go} ]; do sleep 0.1; done`,
    `cp ${archive} "$target"`,
  ];
  await writeFile(join(programs, "mmdebstrap"), `${lines.join("\n")}\n`, { mode: 0o755 });
  process.env["PATH"] = `${programs}${delimiter}${process.env["PATH"]}`;
  return {
    runs: async () => {
      const text = await readFile(runs, "utf8").catch(() => "");
      return text.split("\n").slice(0, -1).map(Number);
    },
    release: () => writeFile(go, ""),
  };
}
