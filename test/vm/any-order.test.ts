/**
 * Real machines used in random order and concurrently, with VMMs killed and the node agent restarted: the
 * same runs and the same checker as test/cluster/any-order.test.ts, in a bounded time. At the end no VMM of a
 * machine is left.
 */
import assert from "node:assert/strict";
import { realpathSync } from "node:fs";
import { test } from "node:test";
import { CPUS_DEFAULT, DISK_GB_DEFAULT, MEMORY_MB_DEFAULT } from "@flotilla/contract/limits";
import { DONE, performMany, plays, type Stage } from "../support/any-order.ts";
import { endVmm, startFlotilla } from "../support/flotilla.ts";
import { vmmsOf } from "../support/node-on-host.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

test("real machines answer as promised, whatever is done with them", { skip: skipReason }, async () => {
  await using flotilla = await startFlotilla({ driver: "qemu" });
  const directory = realpathSync(flotilla.nodeDirectory());
  const ofMachines = () => vmmsOf(directory).filter(({ machines }) => machines.length > 0);
  const stage: Stage = {
    flotilla,
    driver: "qemu",
    // The size of prepared VMs, so that a start is quick.
    resources: { cpus: CPUS_DEFAULT, memoryMb: MEMORY_MB_DEFAULT, diskGb: DISK_GB_DEFAULT },
    lookEveryMs: 100,
    maxMachines: 3,
    maxConcurrentMachines: 2,
    async killVm(_, id) {
      const vmm = ofMachines().find(({ machines }) => machines.includes(id));
      return vmm !== undefined && endVmm(vmm.pid) ? DONE : undefined;
    },
  };
  await until(() => vmmsOf(directory).length > 2, { what: "VMs to be prepared", deadlineMs: 120_000 });
  await performMany(stage, plays({ stepsMax: 10, restarts: 2 }), { playsMax: 20, forMs: 15_000 });
  await until(() => ofMachines().length === 0, { what: "the VMMs of deleted machines to end", deadlineMs: 20_000 });
  assert.doesNotMatch((await flotilla.nodes[0]?.log()) ?? "", /run twice/);
});
