/**
 * The registry that `flotilla up` runs: as which user, what a crash leaves, and what `none` says.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { registryPids, writeLayout } from "../../server/test/support/oci.ts";
import { until } from "../../test/support/until.ts";
import { childOf, makeDirectory, type RunningUp, startUp } from "./run-up.ts";

/** Runs skopeo with the key of this Flotilla. */
async function skopeo({ dataDirectory }: RunningUp, work: string, args: readonly string[]): Promise<string> {
  const key = readFileSync(join(dataDirectory, "admin.key"), "utf8").trim();
  const [verb = "", ...rest] = args;
  const { stdout } = await promisify(execFile)(
    "skopeo",
    ["--insecure-policy", verb, ...rest.map((text) => text.replace("CREDENTIALS", `me:${key}`))],
    { env: { PATH: process.env["PATH"], HOME: work, TMPDIR: work }, timeout: 60_000 },
  );
  return stdout;
}

const runsIn = ({ dataDirectory }: RunningUp) =>
  until(async () => {
    const [pid] = await registryPids(dataDirectory);
    return pid;
  });

test("a package outlives a killed registry, a killed server and a restart", async (t) => {
  const directory = makeDirectory(t);
  const work = makeDirectory(t).path;
  mkdirSync(join(work, "layout"));
  const manifest = await writeLayout(join(work, "layout"));
  const up = await startUp(t, directory);
  const server = childOf(up.pid, "server/src/main.ts") ?? 0;
  const first = await runsIn(up);
  assert.equal(statSync(`/proc/${first}`).uid, statSync(`/proc/${server}`).uid);
  assert.equal(statSync(join(up.dataDirectory, "registry")).mode & 0o777, 0o700);
  const nameOf = ({ url }: RunningUp) => `docker://${new URL(url).host}/library/base:1`;
  const pushed = ["copy", "--dest-tls-verify=false", "--dest-creds=CREDENTIALS", `oci:${join(work, "layout")}`];
  await until(() => skopeo(up, work, [...pushed, nameOf(up)]).then(() => true));
  const read = (of: RunningUp) =>
    until(() => skopeo(of, work, ["inspect", "--raw", "--tls-verify=false", "--creds=CREDENTIALS", nameOf(of)]));
  process.kill(first, "SIGKILL");
  assert.equal(await read(up), manifest);
  const second = await runsIn(up);
  process.kill(server, "SIGKILL");
  await until(async () => !(await registryPids(up.dataDirectory)).includes(second));
  assert.equal(await read(up), manifest);
  up.signal("SIGTERM");
  await up.ran;
  assert.deepEqual(await registryPids(up.dataDirectory), []);
  assert.equal(await read(await startUp(t, directory)), manifest);
});

test("without a registry everything else works, and a push says what to do", async (t) => {
  const up = await startUp(t, makeDirectory(t), undefined, { FLOTILLA_REGISTRY: "none" });
  assert.deepEqual(await registryPids(up.dataDirectory), []);
  const key = readFileSync(join(up.dataDirectory, "admin.key"), "utf8").trim();
  const headers = { authorization: `Bearer ${key}` };
  const answer = await fetch(`${up.url}/v2/library/base/blobs/uploads/`, { method: "POST", headers });
  assert.equal(answer.status, 503);
  assert.match(await answer.text(), /UNAVAILABLE.*set FLOTILLA_REGISTRY/);
  assert.equal((await up.cli("machine", "create", "local/busybox", "--name", "a")).code, 0, up.said());
});
