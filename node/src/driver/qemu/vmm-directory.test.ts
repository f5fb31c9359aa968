/**
 * What a VMM that was taken over by its guest puts into its boot directory harms no file of the host,
 * although the node agent is root.
 */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { duplexPair } from "node:stream";
import { type TestContext, test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import type { Log } from "@flotilla/base/log";
import { FenceLease } from "../../host/fence-lease.ts";
import type { BootRequest } from "../driver.ts";
import { watchDisk } from "./disk-watch.ts";
import { Launcher, type LauncherOptions } from "./launcher.ts";
import { Qmp } from "./qmp.ts";
import { devicesState } from "./suspend.ts";
import type { Vmm } from "./vmm.ts";

const log: Log = { error() {}, warn() {}, info() {}, debug() {}, child: () => log };
const DISK = { "node-name": "file", drv: "file", ro: false, file: "/disk", image: { "virtual-size": 4096 } };

async function makeDirectory(t: TestContext): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-vmm-directory-"));
  t.after(() => rm(directory, { recursive: true }));
  return directory;
}

/** The control channel of a VMM that obeys, and has one disk. */
async function obedient(): Promise<Qmp> {
  const [host, far] = duplexPair();
  far.write('{"QMP": {}}\n');
  far.on("data", (chunk: Buffer) => {
    for (const line of chunk.toString().trim().split("\n")) {
      const { id, execute } = JSON.parse(line) as { readonly id: number; readonly execute: string };
      far.write(`${JSON.stringify({ return: execute === "query-named-block-nodes" ? [DISK] : {}, id })}\n`);
    }
  });
  return Qmp.connect(host, () => {}, new AbortController().signal);
}

test("a directory in place of a file of the VMM is not entered", async (t) => {
  const bootDirectory = await makeDirectory(t);
  for (const name of ["devices", "nbd.sock"]) {
    await mkdir(join(bootDirectory, name));
    await writeFile(join(bootDirectory, name, "kept"), "");
  }
  const control = await obedient();
  await assert.rejects(devicesState(control, bootDirectory), /directory/);
  const launcher = { clock: systemClock, uidOf: () => 1 } as unknown as Launcher;
  const boot = { bootDirectory } as BootRequest;
  const watch = await watchDisk({ control } as Vmm, boot, launcher);
  await assert.rejects(watch.take(), /directory/);
  await watch.end();
  control.close();
  assert.deepEqual(await readdir(join(bootDirectory, "devices")), ["kept"]);
  assert.deepEqual(await readdir(join(bootDirectory, "nbd.sock")), ["kept"]);
});

test("a link in place of a socket does not give its target to the VMM", {
  skip: process.getuid?.() !== 0,
}, async (t) => {
  const directory = await makeDirectory(t);
  const nodeDirectory = join(directory, "node");
  await mkdir(nodeDirectory);
  await writeFile(join(directory, "secret"), "");
  await symlink(join(directory, "secret"), join(nodeDirectory, "state.sock"));
  const lease = new FenceLease(systemClock);
  const options = { nodeDirectory, givenDirectory: nodeDirectory, lease, clock: systemClock, log };
  const launcher = new Launcher(options as unknown as LauncherOptions);
  await launcher.makeReachable(65_533, [join(nodeDirectory, "state.sock")], []);
  assert.equal((await stat(join(directory, "secret"))).uid, 0);
});

test("the way to a VMM's files is open to its user, and closed to others at the node's directory", {
  skip: process.getuid?.() !== 0,
}, async (t) => {
  const nodeDirectory = join(await makeDirectory(t), "node");
  await mkdir(nodeDirectory, { mode: 0o700 });
  await mkdir(join(nodeDirectory, "templates", "a"), { recursive: true, mode: 0o700 });
  await writeFile(join(nodeDirectory, "templates", "a", "memory"), "", { mode: 0o444 });
  const lease = new FenceLease(systemClock);
  const options = { nodeDirectory, givenDirectory: nodeDirectory, lease, clock: systemClock, log };
  const launcher = new Launcher(options as unknown as LauncherOptions);
  await launcher.makeReachable(65_533, [], [join(nodeDirectory, "templates", "a", "memory")]);
  const modes = ["", "templates", "templates/a"].map(
    async (path) => (await stat(join(nodeDirectory, path))).mode & 0o777,
  );
  assert.deepEqual(await Promise.all(modes), [0o700, 0o701, 0o701]);
});
