/**
 * Machines under KVM: the tests of real machines, and the state after a host's power cut and with a changed
 * processor.
 *
 * The host is emulated, so its figures say nothing about a real one's speed; docs/kvm.md lists other
 * differences.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { TestRecord } from "../../scripts/testing/reporter.ts";
import { EmulatedHost, OTHER_PROCESSOR, skipReason } from "./emulated-host.ts";

const FILE_DEADLINE_MS = 1_200_000;
const TASK_DEADLINE_MS = 400_000;
/** It takes longer than all the others, and shows nothing different here. */
const LEFT_OUT = /^\d+ machines of one template/;
/** The first is for version 2 of control groups, which most hosts that run the tests do not have. */
const FILES = [
  "node/test/cgroups.test.ts",
  "test/vm/qemu.test.ts",
  "test/vm/prepared.test.ts",
  "test/vm/suspend.test.ts",
  "test/vm/branches.test.ts",
];

describe("machines under KVM", { skip: skipReason }, () => {
  let host: EmulatedHost;

  before(async () => {
    host = await EmulatedHost.make();
    await host.boot();
  });
  after(() => host[Symbol.asyncDispose]());

  test("the emulated host has KVM, and only version 2 of control groups", async () => {
    await host.must("test -c /dev/kvm && grep -qx Y /sys/module/kvm_amd/parameters/npt");
    const mounts = await host.must("cat /proc/mounts");
    assert.match(mounts, / cgroup2 /);
    assert.doesNotMatch(mounts, / cgroup /);
    const controllers = await host.must("cat /sys/fs/cgroup/cgroup.controllers");
    for (const name of ["cpu", "io", "memory", "pids"]) assert.ok(controllers.trim().split(" ").includes(name), name);
  });

  for (const file of FILES) {
    test(`${file} passes under KVM`, async (context) => {
      const { output, code } = await host.run(`${TEST} ${file}`, FILE_DEADLINE_MS);
      const records = output.split("\n").flatMap((line) => (line.startsWith("{") ? [JSON.parse(line)] : []));
      const tests = (records as TestRecord[]).filter((record) => !record.isSuite);
      assert.ok(tests.length > 0, output);
      // A host without control groups would skip all of the first file.
      assert.ok(!tests.every(({ skip }) => skip !== null), output);
      for (const { name, error, skip } of tests) {
        await context.test(name, { skip: skip ?? false }, () => assert.equal(error, null, error ?? ""));
      }
      assert.equal(code, 0, output.slice(-4000));
    });
  }

  test("a machine's synced data survives a power cut, and machines start on a processor that lost a feature", async () => {
    const place = "/var/lib/lasting";
    await host.must(`node test/kvm/lasting.ts begin ${place}`, TASK_DEADLINE_MS);
    await host.cutPower();
    await host.boot(OTHER_PROCESSOR);
    const said = await host.must(`node test/kvm/lasting.ts resume ${place}`, TASK_DEADLINE_MS);
    assert.match(said, /^mach-lasting: synced, sees of virtualization: nothing$/m);
    assert.match(said, /^mach-new: none, sees of virtualization: nothing$/m);
    // A guest that booted on the other processor would die here, because of the features it detected.
    assert.match(said, /^templates made: 1$/m);
  });
});

/** The reporter's lines are read like those of a test file on this host. */
const TEST = `FLOTILLA_CASES=all node --test-reporter ./scripts/testing/reporter.ts --test-skip-pattern '${LEFT_OUT.source}'`;
