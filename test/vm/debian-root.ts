/**
 * The file system of a machine with Debian, python3 and Node.js, and with files of a test.
 *
 * Always: it is made without a mount, and nothing in it is run by the host.
 */
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { debianArchive } from "../support/images.ts";
import { makeFileSystem } from "./vm-fixture.ts";

/** `add`: puts more into the tree before the file system is made of it. */
export async function debianRoot(add: (tree: string) => void): Promise<(tree: string, rootPath: string) => void> {
  const archive = await debianArchive();
  return (tree, rootPath) => {
    mkdirSync(tree, { recursive: true });
    execFileSync("tar", ["--extract", "--numeric-owner", `--file=${archive}`, `--directory=${tree}`]);
    mkdirSync(`${tree}/workspace`, { recursive: true });
    add(tree);
    makeFileSystem(tree, rootPath, "1G");
  };
}
