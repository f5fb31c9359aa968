/**
 * A program that reads an image and is controlled by it: what it leaves in its own tree leads the agent, as
 * root, to nothing else of the host. A launcher runs the real program, and then does what the image would.
 */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it, type TestContext } from "node:test";
import { launcherPath } from "../support/launcher.ts";
import { makeTar } from "../support/tar.ts";
import { openTestImages, skipReason } from "./fixture.ts";

/** `$files` is the program's tree, `$host` a directory of the host with the file `secret`. */
const HIJACKED: Readonly<Record<string, { readonly program: string; readonly does: string }>> = {
  "a link in place of the unpacked tree": {
    program: "umoci",
    does: 'rm -r "$files/tree"; ln -s "$host" "$files/tree"',
  },
  "a link where the file system will be made": { program: "umoci", does: 'ln -s "$host/secret" "$files/root.ext4"' },
  "a link in place of the file system": { program: "mkfs.ext4", does: 'ln -sf "$host/secret" "$files/root.ext4"' },
  "a link in place of the smaller file system": {
    program: "resize2fs",
    does: 'ln -sf "$host/secret" "$files/root.ext4"',
  },
};

async function makeLauncher(directory: string, { program, does }: (typeof HIJACKED)[string]): Promise<string> {
  const path = join(directory, "launcher");
  const script = `#!/bin/sh
host='${directory}/host' last= files=
for word; do
  [ "$last" != write ] || files=$word
  last=$word
done
'${await launcherPath()}' "$@" || exit
case " $* " in *' ${program} '*) ${does} ;; esac
`;
  await writeFile(path, script, { mode: 0o755 });
  return path;
}

async function makeHost(t: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-hijacked-"));
  t.after(() => rm(directory, { recursive: true }));
  await mkdir(join(directory, "host"));
  await writeFile(join(directory, "host", "secret"), "secret", { mode: 0o600 });
  await writeFile(join(directory, "image.tar"), makeTar([{ name: "a", content: "a" }]));
  return directory;
}

for (const [what, hijacked] of Object.entries(HIJACKED))
  it(`${what} is refused, and not followed`, { skip: skipReason }, async (t) => {
    const directory = await makeHost(t);
    await using opened = await openTestImages({ launcher: await makeLauncher(directory, hijacked) });
    const { images } = opened;
    const building = async (): Promise<unknown> =>
      images.rootFor(await images.importArchive(join(directory, "image.tar"), "local/hijacked"), 512 * 1024 ** 2);
    await assert.rejects(building(), /left no|EEXIST/);
    const secret = join(directory, "host", "secret");
    assert.deepEqual(await readdir(join(directory, "host")), ["secret"]);
    assert.equal(await readFile(secret, "utf8"), "secret");
    assert.equal((await stat(secret)).mode & 0o777, 0o600);
  });
