/**
 * A shared pool of real VMs: they wait on the node, a claim of another tenant gets one with its disk, another is prepared in
 * its place, and they end with the pool.
 */
import assert from "node:assert/strict";
import { realpathSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { type Flotilla, startFlotilla } from "../support/flotilla.ts";
import { faultsOfWaiting, vmmsOf } from "../support/node-on-host.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

/** Two templates are made before the last VM waits. */
const PATIENT = { deadlineMs: 240_000, everyMs: 200 };
/** Those that a node keeps without a pool. */
const OWN = 5;
const SIZE = 2;

describe("a shared pool", { skip: skipReason }, () => {
  let flotilla: Flotilla;

  before(async () => {
    flotilla = await startFlotilla({ driver: "qemu" });
  });
  after(() => flotilla?.[Symbol.asyncDispose]());

  const waiting = (): number =>
    vmmsOf(realpathSync(flotilla.nodeDirectory())).filter(
      ({ name, machines }) => name === "prepared" && machines.length === 0,
    ).length;

  test("keeps VMs that a claim turns into running machines of its tenant, and prepares others for them", async () => {
    const client = flotilla.client();
    const made = await client.post("/v1/pools", {
      ...{ image: "local/busybox", cpus: 1, memoryMb: 256, targetSize: SIZE, shared: true },
    });
    assert.equal(made.status, 200, made.text);
    const { id } = made.json;
    const idle = async (): Promise<number> => (await client.get("/v1/pools")).json[0].idleCount;
    await until(async () => (await idle()) === SIZE && waiting() === OWN + SIZE, { what: "VMs to wait", ...PATIENT });
    const tenantId = (await client.post("/v1/tenants", { name: "claimer" })).json.id;
    const claimer = client.withKey((await client.post("/v1/apikeys", { tenantId })).json.key);
    const claims = await Promise.all([1, 2].map(() => claimer.post(`/v1/pools/${id}/claim`)));
    for (const { status, text, json } of claims) {
      assert.deepEqual([status, json.state, json.startTimings?.vm], [200, "started", "prepared"], text);
      const command = ["sh", "-c", "echo kept > /workspace/file && cat /workspace/file && hostname"];
      const { exitCode, stdout } = (await claimer.post(`/v1/machines/${json.id}/exec`, { command })).json;
      assert.deepEqual([exitCode, stdout], [0, `kept\n${json.name}\n`]);
    }
    assert.notEqual(claims[0]?.json.id, claims[1]?.json.id);
    assert.equal((await claimer.get("/v1/pools")).json[0].busyCount, 2);
    await until(async () => (await idle()) === SIZE && waiting() === OWN + SIZE, {
      what: "others to wait",
      ...PATIENT,
    });
    for (const { json } of claims) assert.equal((await claimer.delete(`/v1/machines/${json.id}`)).status, 204);
  });

  test("ends its VMs, when it is deleted and no machine took one recently", async () => {
    const client = flotilla.client();
    const made = await client.post("/v1/pools", {
      ...{ image: "local/busybox", cpus: 1, memoryMb: 320, targetSize: 1, shared: true },
    });
    await until(() => waiting() === OWN + SIZE + 1, { what: "a VM to wait", ...PATIENT });
    assert.equal((await client.delete(`/v1/pools/${made.json.id}`)).status, 204);
    await until(() => waiting() === OWN + SIZE, { what: "it to end", ...PATIENT });
    await until(() => faultsOfWaiting(realpathSync(flotilla.nodeDirectory())).length === 0, {
      what: "no directory without a VM",
    });
  });
});
