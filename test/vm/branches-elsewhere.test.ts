/**
 * A real machine is branched onto another node of this host: the programs, the memory and the disk with its
 * layers continue there, and the source runs on.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { startFlotilla } from "../support/flotilla.ts";
import { restoredMachine } from "../support/real-moves.ts";
import { until } from "../support/until.ts";
import { skipReason } from "./vm-fixture.ts";

const COUNTER = "(n=0; while sleep 0.1; do n=$((n+1)); echo $n >/dev/shm/count; done) >/dev/null 2>&1 &";

test("clones on another node continue as the source was, and are other machines", { skip: skipReason }, async () => {
  await using flotilla = await startFlotilla({ nodes: 2, driver: "qemu" });
  const client = flotilla.client();
  const id = await restoredMachine(flotilla, { branchable: true });
  const home = (await flotilla.get(id)).nodeId ?? "";
  await flotilla.exec(id, `echo first >/workspace/first; ${COUNTER}`);
  // From then on the disk is on top of a layer.
  assert.equal((await client.post(`/v1/machines/${id}/branches`, { name: "near" })).status, 201);
  await flotilla.exec(id, "echo second >/workspace/second; echo kept >/dev/shm/kept");
  const identity = "hostname; cat /proc/sys/kernel/random/boot_id /run/flotilla/generation";
  const ofSource = await flotilla.exec(id, identity);
  await client.post(`/v1/nodes/${home}/cordon`);
  const made = await client.post(`/v1/machines/${id}/branches/batch`, { namePrefix: "away", count: 2 });
  assert.equal(made.status, 201, made.text);
  const clones: readonly { readonly id: string; readonly nodeId: string }[] = made.json.clones;
  const identities = [ofSource];
  for (const clone of clones) {
    assert.notEqual(clone.nodeId, home);
    const files = await flotilla.exec(clone.id, "cat /workspace/first /workspace/second /dev/shm/kept");
    assert.equal(files, "first\nsecond\nkept\n");
    const counted = Number(await flotilla.exec(clone.id, "cat /dev/shm/count"));
    await until(async () => Number(await flotilla.exec(clone.id, "cat /dev/shm/count")) > counted, {
      what: "its program to continue",
      deadlineMs: 60_000,
    });
    identities.push(await flotilla.exec(clone.id, identity));
  }
  const lines = identities.flatMap((text) => text.trim().split("\n"));
  assert.equal(new Set(lines).size, lines.length, lines.join(" "));
  const counted = Number(await flotilla.exec(id, "cat /dev/shm/count"));
  await until(async () => Number(await flotilla.exec(id, "cat /dev/shm/count")) > counted, { deadlineMs: 60_000 });
  const [clone] = clones;
  assert.equal((await client.post(`/v1/machines/${clone?.id}/stop`)).status, 200);
  await flotilla.start(clone?.id ?? "");
  assert.equal(await flotilla.exec(clone?.id ?? "", "cat /workspace/second"), "second\n");
});
