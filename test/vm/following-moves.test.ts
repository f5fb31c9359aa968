/**
 * A real machine runs on another node before its disk is there, and reads what is missing through the agents while both are killed.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

const FILE_MB = 160;
/** The same random bytes each time after a number, because a guest makes others slowly. */
const WRITE =
  `head -c 16777216 /dev/urandom >/dev/shm/r; for i in $(seq ${FILE_MB / 16}); do echo $i; cat /dev/shm/r; done >/workspace/file; ` +
  "echo kept >/etc/kept; sync; sha256sum /workspace/file";
const SUM = "sha256sum /workspace/file";
const MORE_SUM = "sha256sum /workspace/more";
/** What a merge takes a while for. */
const MORE = `head -c 16777216 /dev/urandom >/dev/shm/r; for i in 1 2 3 4 5 6; do cat /dev/shm/r; done >/workspace/more; sync; ${MORE_SUM}`;

/** Of a guest that does not end its work: processes, memory, disk, timers, and what its processes are blocked by. */
const STATE =
  "ps -o pid,ppid,stat,rss,args; cat /tmp/out /proc/meminfo /sys/block/vda/inflight /sys/block/vda/stat /proc/interrupts; " +
  "echo w >/proc/sysrq-trigger; dmesg | tail -100; cat /proc/timer_list; true";

/** Runs a command that may take longer than a request. Resolves with what it printed; an error has the state of the guest. */
async function slowly(flotilla: Flotilla, id: string, command: string): Promise<string> {
  await flotilla.exec(id, `rm -f /tmp/done; ({ ${command}; } >/tmp/out 2>&1; touch /tmp/done) >/dev/null 2>&1 &`);
  const isDone = async () => (await flotilla.exec(id, "test -e /tmp/done && echo done; true")) !== "";
  await until(isDone, { what: command, deadlineMs: 60_000, everyMs: 500 }).catch(async (error: Error) => {
    const state = await flotilla.exec(id, STATE).catch((failure: Error) => failure.message);
    const events = await flotilla.events(id);
    throw new Error([error.message, ...events, state].join("\n"), { cause: error });
  });
  return await flotilla.exec(id, "cat /tmp/out");
}

/** Exit codes of `qemu-img check`. A merge that is killed may leave clusters that nothing uses: a waste, but no fault. */
const SOUND = 0;
const LEAKING = 3;

test("a machine runs before its disk has arrived, while the agents of both nodes are killed", {
  skip: skipReason,
}, async () => {
  await using flotilla = await startFlotilla({ nodes: 2, driver: "qemu" });
  const { id } = await flotilla.create();
  const from = (await flotilla.start(id)).nodeId ?? "";
  const to = from === "node-0" ? "node-1" : "node-0";
  const [source, target] = [from, to].map((nodeId) => Number(nodeId.slice("node-".length))) as [number, number];
  const place = join(flotilla.nodeDirectory(target), "machines", id);
  const [sum = ""] = (await slowly(flotilla, id, WRITE)).split(" ");
  assert.match(sum, /^[0-9a-f]{64}$/);
  const asked = await flotilla.client().post(`/v1/machines/${id}/move`, { nodeId: to, diskFollows: true });
  assert.equal(asked.status, 202, asked.text);
  // Before most of it has arrived, whatever the host does.
  const arrived = async (): Promise<number> =>
    (await readFile(join(place, "disk.far.map")).catch(() => Buffer.alloc(0))).filter((part) => part === 1).length;
  await until(async () => (await arrived()) > 4, { what: "the first parts", deadlineMs: 60_000, everyMs: 5 });
  await flotilla.nodes[source]?.kill();
  const done = await until(
    async () => {
      const { json } = await flotilla.client().get(`/v1/operations/${asked.json.id}`);
      return json.steps[3].status === "succeeded" && json;
    },
    { what: "the change of its node", deadlineMs: 60_000, everyMs: 50 },
  );
  assert.equal(done.steps[3].message, `node ${to} owns it; its disk follows from node ${from}`);
  const reached = await arrived();
  assert.ok(reached < FILE_MB - 24, `${reached} parts were there when the former node's agent was killed`);
  await flotilla.startNode(source);
  await flotilla.untilState(id, "started", 60_000);
  assert.equal(await flotilla.exec(id, "echo new >/workspace/new; sync; cat /etc/kept"), "kept\n");
  await flotilla.exec(id, `(${SUM} >/tmp/sum; echo >>/tmp/sum) >/dev/null 2>&1 &`);
  await flotilla.nodes[target]?.kill();
  await flotilla.startNode(target);
  await flotilla.untilState(id, "started", 60_000);
  const isSummed = async () => (await flotilla.exec(id, "cat /tmp/sum 2>/dev/null; true")).endsWith("\n\n");
  await until(isSummed, { what: "a read that began before the agent was killed", deadlineMs: 150_000, everyMs: 500 });
  assert.equal(await flotilla.exec(id, "cat /tmp/sum"), `${sum}  /workspace/file\n\n`);
  const isSaid = async () => (await flotilla.events(id)).includes(`all of its disk has arrived from node ${from}`);
  await until(isSaid, { what: "the disk to arrive", deadlineMs: 120_000 });
  const rest = async () => (await readdir(join(flotilla.nodeDirectory(source), "machines"))).length === 0;
  await until(rest, { what: "the former copy to be removed", deadlineMs: 30_000 });
  // A merge that ends early leaves a longer file, from which the machine runs as well.
  const more = await slowly(flotilla, id, MORE);
  const far = join(place, "disk.far");
  const { size } = await stat(far);
  const stopped = flotilla.stop(id).catch(() => null);
  await until(async () => (await stat(far)).size > size, { what: "the merge", deadlineMs: 60_000, everyMs: 2 });
  await flotilla.nodes[target]?.kill();
  assert.ok((await stat(far)).size > size, "the merge was over before the agent was killed");
  await flotilla.startNode(target);
  await flotilla.start(id);
  await stopped;
  assert.equal(await slowly(flotilla, id, `${SUM} && ${MORE_SUM}`), `${sum}  /workspace/file\n${more}`);
  await flotilla.stop(id);
  assert.deepEqual(
    (await readdir(place)).filter((name) => name.startsWith("disk")),
    ["disk"],
  );
  const checked = spawnSync("qemu-img", ["check", join(place, "disk")]);
  assert.ok(checked.status === SOUND || checked.status === LEAKING, `${checked.stdout} ${checked.stderr}`);
  await flotilla.start(id);
  assert.equal(
    await slowly(flotilla, id, `${SUM}; cat /workspace/new /etc/kept`),
    `${sum}  /workspace/file\nnew\nkept\n`,
  );
  // As any machine: with its memory, and back.
  const back = await flotilla.client().post(`/v1/machines/${id}/move`, { nodeId: from });
  assert.equal(back.status, 202, back.text);
  const ended = await until(
    async () => {
      const { json } = await flotilla.client().get(`/v1/operations/${back.json.id}`);
      return json.status !== "running" && json;
    },
    { what: "the move back", deadlineMs: 120_000, everyMs: 100 },
  );
  assert.equal(ended.status, "succeeded", `${ended.error} ${JSON.stringify(ended.steps)}`);
  assert.equal(await slowly(flotilla, id, SUM), `${sum}  /workspace/file\n`);
  await flotilla.remove(id);
});
