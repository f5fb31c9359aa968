/**
 * What callers get when a node does not run anything in a machine that is known to run.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Refusal } from "@flotilla/contract/errors";
import { MACHINE_ID, machineRecord } from "../../test/support/machine.ts";
import { NotRunning } from "../link/refusals.ts";
import type { MachineRecord } from "./record.ts";
import { inRunningMachine } from "./running.ts";
import type { MachineServices } from "./services.ts";

const boot = (observedBootId: string): MachineRecord =>
  machineRecord({
    ...{ nodeId: "node-a", nodeAddress: null, desiredState: "running", observedState: "running" },
    ...{ generation: 1, observedGeneration: 1, observedBootId },
  });

/** The refusal of a command in a machine that the database shows with these boots, one after the other. */
async function refusalOf(boots: readonly string[]): Promise<string> {
  const left = boots.map(boot);
  const cache = { find: () => undefined, forget: () => undefined, read: () => Promise.resolve(left.shift()) };
  const services = { cache } as unknown as MachineServices;
  const { signal } = new AbortController();
  const options = { tenantId: "tenant-1", id: MACHINE_ID, keyId: "key-1", signal, recordSent: () => undefined };
  const work = () => Promise.reject(new NotRunning("it does not run"));
  const error = await inRunningMachine(services, options, work).catch((each: unknown) => each);
  assert.ok(error instanceof Refusal);
  return `${error.code}: ${error.message}`;
}

test("a machine that exits again and again is said to do so, and one of which the same boot runs not to answer", async () => {
  assert.match(await refusalOf(["a", "b", "c"]), /^conflict: .* keeps exiting/);
  assert.match(await refusalOf(["a", "a", "a"]), /^guest_unreachable: .* runs, but its agent does not answer its node/);
});
