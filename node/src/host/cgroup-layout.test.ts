/**
 * Parsing a host's control group trees, and the values written into their files.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  cgroupLayout,
  diskWeightFiles,
  limitFiles,
  memoryKills,
  nodeFiles,
  shareFile,
  weighsDisks,
} from "./cgroup-layout.ts";

const V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime 0 0\nproc /proc proc rw 0 0\n";
const HYBRID = [
  "tmpfs /sys/fs/cgroup tmpfs ro,mode=755 0 0",
  "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0",
  "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0",
  "cgroup /sys/fs/cgroup/with\\040blank cgroup rw,pids 0 0",
  "cgroup /sys/fs/cgroup/blkio cgroup rw,blkio 0 0",
  "cgroup /sys/fs/cgroup/systemd cgroup rw,xattr,name=systemd 0 0",
  "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0",
].join("\n");
const limits = { memoryBytes: 300 * 2 ** 20, cpus: 4, tasksMax: 300 };

const valuesOf = (files: ReturnType<typeof limitFiles>): Record<string, string> =>
  Object.fromEntries(files.map(({ name, value }) => [name, value]));

test("version 2 has one tree for all controllers that it lists", () => {
  const layout = cgroupLayout(V2, () => "cpuset cpu io memory hugetlb pids rdma\n");
  assert.equal(layout?.version, 2);
  assert.deepEqual([...(layout?.trees.keys() ?? [])], ["memory", "cpu", "pids", "io"]);
  assert.deepEqual(new Set(layout?.trees.values()), new Set(["/sys/fs/cgroup"]));
});

test("a host with memory in version 1 uses version 1 for all controllers", () => {
  const layout = cgroupLayout(HYBRID, () => "");
  assert.equal(layout?.version, 1);
  assert.deepEqual(Object.fromEntries(layout?.trees ?? []), {
    cpu: "/sys/fs/cgroup/cpu,cpuacct",
    memory: "/sys/fs/cgroup/memory",
    pids: "/sys/fs/cgroup/with blank",
    io: "/sys/fs/cgroup/blkio",
  });
});

test("a host without a memory controller has no layout", () => {
  assert.equal(
    cgroupLayout(V2, () => "cpu io pids"),
    undefined,
  );
  assert.equal(
    cgroupLayout(V2, () => null),
    undefined,
  );
  assert.equal(
    cgroupLayout("proc /proc proc rw 0 0\n", () => null),
    undefined,
  );
});

test("a machine's memory, tasks and share of the processors are limited in both versions", () => {
  const bytes = String(300 * 2 ** 20);
  assert.deepEqual(valuesOf(limitFiles(1, limits)), {
    "memory.limit_in_bytes": bytes,
    "pids.max": "300",
    "cpu.shares": "1024",
    "blkio.bfq.weight": "100",
    "blkio.weight": "500",
  });
  assert.deepEqual(valuesOf(limitFiles(2, limits)), {
    "memory.max": bytes,
    "pids.max": "300",
    "cpu.weight": "100",
    "io.weight": "100",
    "io.bfq.weight": "100",
  });
});

test("a share stays within the kernel's limits", () => {
  assert.equal(shareFile(2, 100_000).value, "10000");
  assert.equal(shareFile(1, 100_000).value, "262144");
});

test("all machines together leave memory to the host", () => {
  const gib = 2 ** 30;
  const left = (memoryBytes: number): number =>
    memoryBytes - Number(valuesOf(nodeFiles(2, { memoryBytes, processors: 4 }))["memory.max"]);
  assert.equal(left(16 * gib), gib);
  assert.equal(left(100 * gib), 5 * gib);
  assert.equal(left(gib), gib / 2);
});

test("the number of killed processes is parsed in both versions", () => {
  assert.equal(memoryKills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), 2);
  assert.equal(memoryKills("low 0\nhigh 0\nmax 12\noom 3\noom_kill 1\noom_group_kill 0\n"), 1);
  assert.equal(memoryKills("oom_kill_disable 0\nunder_oom 0\n"), 0);
});

test("background groups have the least disk weight, and a node's machines half of the normal one", () => {
  assert.deepEqual(valuesOf(diskWeightFiles(1, "background")), { "blkio.bfq.weight": "1", "blkio.weight": "10" });
  assert.deepEqual(valuesOf(diskWeightFiles(2, "background")), { "io.weight": "1", "io.bfq.weight": "1" });
  const host = { memoryBytes: 2 ** 34, processors: 4 };
  assert.equal(valuesOf(nodeFiles(1, host))["blkio.bfq.weight"], "50");
  assert.equal(valuesOf(nodeFiles(2, host))["io.weight"], "50");
});

test("a kernel weighs disk requests if a group has a file for it, or the top of the tree shows it", () => {
  assert.ok(weighsDisks(["cgroup.procs", "io.stat", "io.cost.qos"]));
  assert.ok(weighsDisks(["cgroup.procs", "io.bfq.weight"]));
  assert.ok(weighsDisks(["blkio.bfq.io_serviced", "blkio.throttle.io_serviced"]));
  assert.ok(!weighsDisks(["cgroup.procs", "io.stat", "io.max", "io.latency"]));
  assert.ok(!weighsDisks(["blkio.throttle.io_serviced", "blkio.reset_stats"]));
});
