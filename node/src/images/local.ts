/**
 * Builds `local/busybox`, an image that needs no registry, for a first try.
 *
 * It consists of one static program that set-up put into the cache directory; being trusted, the program is
 * run here once to list its applets. Always: the same busybox gives the same tar and the same digest. A new
 * recipe or busybox gives a new image; existing machines keep theirs.
 */
import { execFile } from "node:child_process";
import { copyFile, mkdir, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

const execute = promisify(execFile);

const FILES: Readonly<Record<string, string>> = {
  "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
  "etc/group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
  "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
  "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
};
const DIRECTORIES = ["bin", "etc", "home", "root", "usr", "var/log", "var/tmp"];
/** Programs look for each other in all of these. */
const LINKS: Readonly<Record<string, string>> = { sbin: "bin", "usr/bin": "../bin", "usr/sbin": "../bin" };

/**
 * Writes the tar of a root file system below `work` and returns its path; undefined when there is no busybox.
 */
export async function makeBusyboxTar(busybox: string, work: string): Promise<string | undefined> {
  if ((await stat(busybox).catch(() => undefined))?.isFile() !== true) return undefined;
  const tree = join(work, "busybox");
  for (const name of DIRECTORIES) await mkdir(join(tree, name), { recursive: true });
  for (const [name, target] of Object.entries(LINKS)) await symlink(target, join(tree, name));
  for (const [name, text] of Object.entries(FILES)) await writeFile(join(tree, name), text);
  await copyFile(busybox, join(tree, "bin", "busybox"));
  const { stdout } = await execute(busybox, ["--list"], { maxBuffer: 1024 * 1024 });
  for (const applet of stdout.split("\n").filter((line) => /^[\w[.-]+$/.test(line) && line !== "busybox"))
    await symlink("busybox", join(tree, "bin", applet));
  await execute("chmod", ["-R", "u=rwX,go=rX", tree]);
  await execute("chmod", ["0755", join(tree, "bin", "busybox")]);
  const tar = join(work, "busybox.tar");
  const same = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar"];
  await execute("tar", ["--create", `--file=${tar}`, `--directory=${tree}`, ...same, "."]);
  return tar;
}
