/**
 * Real machines are branched: the programs of a point continue in each clone, which is another machine, and
 * the source runs on.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Driver } from "../../node/src/driver/driver.ts";
import { collapse } from "../../node/src/machines/collapsing.ts";
import { machineIdOf } from "../../node/test/support/in-process.ts";
import { until } from "../support/until.ts";
import { type BranchNode, startBranchNode } from "./branch-node.ts";
import { deadline, NodePlace, shell, shellRequest, skipReason } from "./vm-fixture.ts";

const A = machineIdOf("a");
const newId = (): string => `mach-${randomBytes(16).toString("hex")}`;

/** Its socket listens, and it has counted. */
const READY = "busybox grep -qs :1B58 /proc/net/tcp /proc/net/tcp6 && [ -s /workspace/open ]";

/** Writes a generation of equal lines after the other into memory. A signal stops it in a clone. */
const REWRITE = [
  "echo STOP >/run/flotilla/branch-signals/$$",
  "exec busybox awk 'BEGIN { for (g = 1; ; g++) {",
  'for (i = 0; i < 200000; i++) printf "%08d\\n", g > "/dev/shm/array"; close("/dev/shm/array") } }\'',
].join("\n");

describe("branches of a machine", { skip: skipReason }, () => {
  let place: NodePlace;
  let driver: Driver;
  let node: BranchNode;

  before(async () => {
    place = new NodePlace();
    driver = await place.driver();
    await makeTemplate();
    node = await startBranchNode(place, driver);
    const observed = await node.want(A, 1, "running", { spec: { hostname: "source" } });
    assert.equal(observed.state, "running", observed.reason ?? "");
  });
  after(async () => {
    await node?.fleet.release();
    await place?.[Symbol.asyncDispose]();
  });

  /** The memory of machines differs from a template, as on a node that has run for a minute. */
  async function makeTemplate(): Promise<void> {
    const bootId = `boot-${randomBytes(16).toString("hex")}`;
    const bootDirectory = join(place.directory, "prepared", "template");
    mkdirSync(bootDirectory, { recursive: true });
    const size = { cpus: 1, memoryMb: 256, uid: 123_456 };
    const how = { disk: null, isFrequent: false, makeScratchDisk: null };
    const prepared = await driver.prepare?.({ bootId, bootDirectory, ...size, ...how }, deadline());
    await prepared?.discard();
  }

  async function clone(pointId: string, hostname: string, hasMemory = true): Promise<string> {
    const machineId = newId();
    const observed = await node.want(machineId, 1, "running", { spec: { hostname, point: { pointId, hasMemory } } });
    assert.equal(observed.state, "running", `${observed.reason}\n${node.logLines.slice(-20).join("")}`);
    return machineId;
  }

  const run = (machineId: string, line: string): Promise<string> => shell(node.guestOf(machineId), line);

  const identityOf = async (machineId: string): Promise<readonly string[]> =>
    (
      await run(
        machineId,
        "cat /proc/sys/kernel/random/boot_id /etc/machine-id /run/flotilla/generation; busybox hostname; " +
          "busybox head -c 16 /dev/urandom | busybox hexdump -e '16/1 \"%02x\"'",
      )
    )
      .trim()
      .split("\n");

  test("programs, open files and listening sockets continue in a clone and in the source", async (context) => {
    const counter = [
      "exec 3>/workspace/open; busybox nc -ll -p 7000 -e /bin/cat &",
      "i=0; while :; do i=$((i + 1)); echo $i >&3; done",
    ].join("\n");
    const exec = node.guestOf(A).exec(shellRequest(counter));
    exec.exit.catch(() => undefined);
    await run(A, `for i in $(busybox seq 600); do ${READY} && exit 0; busybox sleep 0.05; done; exit 1`);
    const point = await node.point(A);
    context.diagnostic(`pause ${point.pausedMs.toFixed(1)} ms, memory ${(point.memoryBytes / 2 ** 20).toFixed(1)} MiB`);
    const beganAt = performance.now();
    const one = await clone(point.pointId, "one");
    const startedMs = performance.now() - beganAt;
    await run(one, "true");
    const firstMs = performance.now() - beganAt;
    context.diagnostic(`clone runs after ${startedMs.toFixed(0)} ms, first command after ${firstMs.toFixed(0)} ms`);
    for (const machineId of [A, one]) {
      const size = "busybox wc -c </workspace/open";
      const [before, later] = (await run(machineId, `${size}; busybox sleep 0.5; ${size}`)).split("\n");
      assert.ok(Number(later) > Number(before), `${machineId}: ${before} ${later}`);
      assert.equal(await run(machineId, "echo echoed | busybox nc 127.0.0.1 7000"), "echoed\n");
    }
    exec.kill();
    await exec.exit;
    await node.want(one, 2, "absent");
    await node.branches.release(point.pointId);
  });

  test("what a command of the source prints has no gap over five points", async (context) => {
    const exec = node.guestOf(A).exec(shellRequest("i=0; while :; do echo $i; i=$((i + 1)); done"));
    exec.exit.catch(() => undefined);
    let rest = "";
    let next = 0;
    exec.stdout.on("data", (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) assert.equal(Number(line), next++);
    });
    const pauses: number[] = [];
    const totals: number[] = [];
    for (let round = 0; round < 5; round += 1) {
      const seen = next;
      const beganAt = performance.now();
      const { pausedMs, pointId } = await node.point(A);
      totals.push(performance.now() - beganAt);
      pauses.push(pausedMs);
      await node.branches.release(pointId);
      await run(A, "true");
      assert.ok(next > seen);
    }
    exec.kill();
    await exec.exit;
    context.diagnostic(
      `pauses in ms: ${pauses.map((ms) => ms.toFixed(1)).join(" ")}; all of it: ${totals.map((ms) => ms.toFixed(0)).join(" ")}`,
    );
  });

  test("two clones of a point are other machines than their source, and draw other bytes", async () => {
    // The point is from another time.
    await run(A, "busybox date -s @1000000000");
    const point = await node.point(A);
    const clones = [await clone(point.pointId, "two"), await clone(point.pointId, "three")];
    const identities = await Promise.all([A, ...clones].map(identityOf));
    for (let part = 0; part < 5; part += 1) {
      const values = identities.map((identity) => identity[part]);
      assert.equal(new Set(values).size, 3, values.join("\n"));
      assert.ok(values.every((value) => value !== undefined && value !== ""));
    }
    assert.deepEqual(
      identities.map((identity) => identity[3]),
      ["source", "two", "three"],
    );
    for (const machineId of clones)
      assert.ok(Math.abs(Number(await run(machineId, "busybox date +%s")) * 1000 - Date.now()) < 30_000);
    for (const machineId of clones) await node.want(machineId, 2, "absent");
    await node.branches.release(point.pointId);
  });

  test("a fork hook sees the new generation before its clone is answered, and a failing one ends the clone", async () => {
    const point = await node.point(A);
    const start = async (line: string) => {
      const machineId = newId();
      const hooks = { fork: { command: ["sh", "-c", line], timeoutMs: 60_000 } };
      const spec = { hostname: "hooked", hooks, point: { pointId: point.pointId, hasMemory: true } };
      return { machineId, observed: await node.want(machineId, 1, "running", { spec }) };
    };
    const made = await start("cat /run/flotilla/generation /etc/hostname >/workspace/generation");
    assert.equal(made.observed.state, "running", made.observed.reason ?? "");
    const written = await run(made.machineId, "cat /workspace/generation");
    assert.equal(written, await run(made.machineId, "cat /run/flotilla/generation /etc/hostname"));
    assert.notEqual(written.slice(0, 32), (await run(A, "cat /run/flotilla/generation")).slice(0, 32));
    const failed = await start("echo not again >&2; exit 3");
    assert.equal(failed.observed.state, "failed");
    assert.match(failed.observed.reason ?? "", /its fork hook ended with exit code 3: not again$/);
    for (const { machineId } of [made, failed]) await node.want(machineId, 2, "absent");
    await node.branches.release(point.pointId);
  });

  test("the memory of a clone is that of one instant, and its programs get the signal that they asked for", async () => {
    const exec = node.guestOf(A).exec(shellRequest(REWRITE));
    exec.exit.catch(() => undefined);
    const pid = await exec.pid;
    await run(A, "while [ ! -s /dev/shm/array ]; do busybox sleep 0.05; done; busybox sleep 1");
    const point = await node.point(A);
    const four = await clone(point.pointId, "four");
    assert.match(await run(four, `cat /proc/${pid}/stat`), /^\d+ \(busybox\) T /);
    // The last line may be half a line.
    const [first = "", ...others] = (await run(four, "busybox uniq -c /dev/shm/array")).trim().split("\n");
    assert.match(first, /^ *\d+ \d{8}$/);
    assert.ok(others.length <= 1 && others.every((line) => /^ *1 \d{0,7}$/.test(line)), others.join("\n"));
    assert.match(await run(A, `cat /proc/${pid}/stat`), /^\d+ \(busybox\) [RSD] /);
    exec.kill();
    await exec.exit;
    await node.want(four, 2, "absent");
    await node.branches.release(point.pointId);
  });

  test("a clone that is stopped and started is itself, with the files of the point and its own", async () => {
    await run(A, "echo of-source >/workspace/kept");
    const point = await node.point(A);
    const five = await clone(point.pointId, "five");
    await run(five, "echo own >/workspace/own");
    await node.branches.release(point.pointId);
    assert.equal((await node.want(five, 2, "stopped")).state, "stopped");
    assert.equal((await node.want(five, 3, "running", { spec: { hostname: "five" } })).state, "running");
    assert.equal(
      await run(five, "busybox hostname; cat /etc/hostname /workspace/kept /workspace/own"),
      "five\nfive\nof-source\nown\n",
    );
    assert.equal((await run(five, "cat /etc/machine-id")).trim(), five.slice("mach-".length));
    await node.want(five, 4, "absent");
  });

  test("a disk with layers becomes one while its machine runs, also after a crash and in a clone", async (context) => {
    const layersOf = (machineId: string): readonly string[] => node.fleet.find(machineId)?.known?.journal.layers ?? [];
    const eight = await clone((await node.point(A)).pointId, "eight");
    for (const number of [1, 2, 3]) {
      await run(eight, `busybox head -c 3000000 /dev/urandom >/workspace/${number}; sync`);
      await node.branches.release((await node.point(eight)).pointId);
    }
    await run(eight, "busybox rm /workspace/2; cd /workspace; busybox md5sum 1 3 >sums; sync");
    assert.ok(layersOf(eight).length > 3);
    const running = await node.runningOf(eight);
    const beganAt = performance.now();
    await collapse(running);
    context.diagnostic(`layers are gone after ${(performance.now() - beganAt).toFixed(0)} ms`);
    assert.deepEqual(layersOf(eight), []);
    const check = "cd /workspace; busybox md5sum -c sums; ls";
    const files = await run(eight, check);
    assert.match(files, /^1: OK\n3: OK\n/);
    // The VMM has only its disk open.
    const { pid } = running.vm.record;
    const open = readdirSync(`/proc/${pid}/fd`).map((fd) => readlinkSync(`/proc/${pid}/fd/${fd}`));
    assert.equal(open.filter((path) => /\/(layer-|file-\d+(?!.*ext4))/.test(path)).length, 1, open.join(" "));
    // What was copied is in its file.
    await running.vm.kill();
    await until(() => node.fleet.observe(eight).state !== "running", { what: "its end" });
    await until(() => node.fleet.observe(eight).state === "running", { what: "another boot", deadlineMs: 60_000 });
    assert.equal(await run(eight, check), files);
    const later = await node.point(eight);
    const nine = await clone(later.pointId, "nine");
    assert.equal(await run(nine, check), files);
    for (const machineId of [eight, nine]) await node.want(machineId, 2, "absent");
    await node.branches.release(later.pointId);
  });

  test("a point of the disk alone has what was written, and so has one of a machine that is stopped", async (context) => {
    await run(A, "echo later >/workspace/later");
    const point = await node.point(A, false);
    context.diagnostic(`pause for the disk alone ${point.pausedMs.toFixed(1)} ms`);
    const six = await clone(point.pointId, "six", false);
    assert.equal(await run(six, "busybox hostname; cat /workspace/later"), "six\nlater\n");
    assert.equal((await node.want(six, 2, "stopped")).state, "stopped");
    const rested = await node.point(six, false);
    const seven = await clone(rested.pointId, "seven", false);
    assert.equal(await run(seven, "busybox hostname; cat /workspace/later"), "seven\nlater\n");
    // The source of a clone may go.
    await node.want(six, 3, "absent");
    for (const { pointId } of [point, rested]) await node.branches.release(pointId);
    assert.equal(await run(seven, "busybox hostname; cat /workspace/later"), "seven\nlater\n");
    await node.want(seven, 2, "absent");
  });

  test("a clone whose guest cannot become it is ended and not served, and its source runs on", async () => {
    for (const [spoil, repair, reason] of [
      ["busybox mv /dev/urandom /dev/kept; : >/dev/urandom", "busybox mv /dev/kept /dev/urandom", /add entropy/],
      [
        "busybox rm /etc/machine-id; busybox mkdir /etc/machine-id",
        "busybox rmdir /etc/machine-id",
        /write the machine's identity/,
      ],
      ...["generation.new", "boot-id.new"].map((name) => {
        const path = `/run/flotilla/${name}`;
        return [`busybox mkdir ${path}`, `busybox rmdir ${path}`, /write the machine's generation/] as const;
      }),
    ] as const) {
      await run(A, spoil);
      const point = await node.point(A);
      await run(A, repair);
      const machineId = newId();
      const spec = { hostname: "spoilt", point: { pointId: point.pointId, hasMemory: true } };
      const observed = await node.want(machineId, 1, "running", { spec });
      assert.equal(observed.state, "failed", spoil);
      assert.match(observed.reason ?? "", reason, spoil);
      assert.equal(node.fleet.find(machineId)?.access.guest, null);
      assert.ok(
        (await driver.find()).every(({ startedFor }) => startedFor !== machineId),
        spoil,
      );
      await node.want(machineId, 2, "absent");
      await node.branches.release(point.pointId);
    }
    assert.equal(await run(A, "busybox hostname"), "source\n");
  });
});
