/**
 * A real machine moves between two real nodes of this host, which built its image and their templates apart from each other. It
 * keeps its files and its processes.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

const WRITE =
  "head -c 8000000 /dev/urandom > /workspace/file && sync && sha256sum /workspace/file && echo kept > /etc/kept && sync";

const WRITER =
  "mkdir /workspace/many; (n=0; while sleep 0.05; do n=$((n+1)); head -c 200000 /dev/urandom >/workspace/many/$n; " +
  "sha256sum /workspace/many/$n >>/workspace/sums; [ $((n % 7)) = 0 ] && sync; done) >/dev/null 2>&1 &";
const COUNT_WRITTEN = "cat /workspace/sums 2>/dev/null | wc -l";
// The last line may be half written.
const COUNT_WRONG = "head -n 10 /workspace/sums | sha256sum -c 2>&1 | grep -vc OK; true";

test("a running machine continues on the other node with its files, its processes and what is in memory", {
  skip: skipReason,
}, async () => {
  await using flotilla = await startFlotilla({ nodes: 2, driver: "qemu" });
  const { id } = await flotilla.create();
  const from = (await flotilla.start(id)).nodeId ?? "";
  const to = from === "node-0" ? "node-1" : "node-0";
  const written = (count: number) =>
    until(async () => Number(await flotilla.exec(id, COUNT_WRITTEN)) >= count, {
      what: `${count} files to be written`,
      deadlineMs: 60_000,
    });
  const [sum = ""] = (await flotilla.exec(id, WRITE)).split(" ");
  assert.match(sum, /^[0-9a-f]{64}$/);
  // Writes on while its disk is sent: each file once, so that a block that was missed is seen.
  await flotilla.exec(id, WRITER);
  await written(3);
  const boot = await flotilla.exec(id, "echo kept > /dev/shm/file; cat /proc/sys/kernel/random/boot_id");
  const asked = await flotilla.client().post(`/v1/machines/${id}/move`, { nodeId: to });
  assert.equal(asked.status, 202, asked.text);
  const done = await until(
    async () => {
      const { json } = await flotilla.client().get(`/v1/operations/${asked.json.id}`);
      return json.status !== "running" && json;
    },
    { what: "the move to end", deadlineMs: 120_000, everyMs: 100 },
  );
  assert.equal(done.status, "succeeded", `${done.error} ${JSON.stringify(done.steps)}`);
  assert.equal((await flotilla.get(id)).nodeId, to);
  assert.equal(await flotilla.exec(id, "sha256sum /workspace/file; cat /etc/kept"), `${sum}  /workspace/file\nkept\n`);
  assert.equal(
    await flotilla.exec(id, "cat /proc/sys/kernel/random/boot_id"),
    boot,
    (await flotilla.events(id)).join("\n"),
  );
  assert.equal(await flotilla.exec(id, "cat /dev/shm/file"), "kept\n");
  const early = /^[\d.]+ MB were copied, after ([\d.]+) MB while it ran$/.exec(done.steps[2].message)?.[1];
  assert.ok(Number(early) > 8, done.steps[2].message);
  await written(10);
  assert.equal(await flotilla.exec(id, COUNT_WRONG), "0\n");
  assert.match(done.steps[4].message, /its processes continued after a pause of \d+ ms$/);
  const index = Number(to.slice("node-".length));
  const roots = await readdir(join(flotilla.nodeDirectory(index), "images", "unpacked"), { recursive: true });
  assert.ok(
    roots.some((name) => /\/root-c[0-9a-f]+\.ext4$/.test(name)),
    roots.join(" "),
  );
  assert.deepEqual(await readdir(join(flotilla.nodeDirectory(1 - index), "machines")), []);
  await flotilla.stop(id);
  const disk = join(flotilla.nodeDirectory(index), "machines", id, "disk");
  const checked = spawnSync("qemu-img", ["check", disk]);
  assert.equal(checked.status, 0, `${checked.stdout} ${checked.stderr}`);
  await flotilla.remove(id);
});
