/**
 * What a block owns, and lists that are read to their end.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Flotilla, items, ownedApp, ownedBranch, ownedMachine } from "../src/client.ts";
import { reply, replyJson, startPeer } from "./peer.ts";

const source = { type: "image", reference: "alpine" } as const;

test("what a block made is deleted at its end, also when the block throws", async (t) => {
  const peer = await startPeer(t, replyJson({ id: "mach-1", name: "site" }, 201));
  const flotilla = new Flotilla({ url: peer.url });
  const block = async (): Promise<void> => {
    await using machine = await ownedMachine(flotilla, { source });
    await using branch = await ownedBranch(flotilla, machine.id, { name: "b" });
    await using app = await ownedApp(flotilla, { name: "site", image: "alpine" });
    throw new Error(`${branch.id} ${app.name}`);
  };
  await assert.rejects(block, /mach-1 site/);
  assert.deepEqual(
    peer.arrived.map((call) => `${call.method} ${call.url}`),
    [
      "POST /v1/machines",
      "POST /v1/machines/mach-1/branches",
      "POST /v1/apps",
      "DELETE /v1/apps/site",
      "DELETE /v1/machines/mach-1",
      "DELETE /v1/machines/mach-1",
    ],
  );
  const keys = peer.arrived.slice(0, 3).map((call) => call.headers["idempotency-key"]);
  assert.equal(new Set(keys).size, 3);
  assert.ok(!keys.includes(undefined));
});

test("a machine that is gone at the end of its block raises nothing, another refusal does", async (t) => {
  const made = replyJson({ id: "mach-1" }, 201);
  const gone = reply(404, "", { "x-error-code": "not_found" });
  const peer = await startPeer(t, made, gone, made, reply(500, "broken"));
  const flotilla = new Flotilla({ url: peer.url });
  const block = async (): Promise<string> => {
    await using machine = await ownedMachine(flotilla, { source });
    return JSON.stringify(machine);
  };
  assert.equal(await block(), '{"id":"mach-1"}');
  await assert.rejects(block, /broken/);
});

test("items reads a list page by page, and no page before its first item is asked for", async (t) => {
  const next = { link: '</v1/machines?limit=2&cursor=a%2Bb&label=x>; rel="next"', "content-type": "application/json" };
  const peer = await startPeer(t, reply(200, '[{"id":"1"},{"id":"2"}]', next), replyJson([{ id: "3" }]));
  const flotilla = new Flotilla({ url: peer.url });
  const seen: string[] = [];
  const query = { limit: 2, label: ["x"] };
  for await (const machine of items((page) => flotilla.listMachines(page), { query })) {
    seen.push(machine.id);
    if (machine.id === "2") assert.equal(peer.arrived.length, 1);
  }
  assert.deepEqual(seen, ["1", "2", "3"]);
  assert.deepEqual(
    peer.arrived.map((call) => call.url),
    ["/v1/machines?limit=2&label=x", "/v1/machines?limit=2&label=x&cursor=a%2Bb"],
  );
});

test("a list whose next page is the same again ends", async (t) => {
  const link = '</v1/machines?cursor=a>; rel="next"';
  const peer = await startPeer(t, reply(200, '[{"id":"1"}]', { link, "content-type": "application/json" }));
  const seen = [];
  for await (const machine of items((page) => new Flotilla({ url: peer.url }).listMachines(page))) seen.push(machine);
  assert.equal(seen.length, 2);
});
