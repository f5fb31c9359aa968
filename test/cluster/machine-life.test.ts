/**
 * Whole stories of machines: a server and a node agent as processes, through the public API, with the fake
 * driver.
 */
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { sharedDatabaseUrl } from "../support/database.ts";
import { startFlotilla } from "../support/flotilla.ts";
import { monotonic, onThisHost, until } from "../support/until.ts";

const flotilla = await startFlotilla({ databaseUrl: await sharedDatabaseUrl() });
after(() => flotilla[Symbol.asyncDispose]());
const files = (): Promise<readonly string[]> => readdir(join(flotilla.nodeDirectory(), "machines"));

test("a machine is created, runs commands, stops, starts again and is deleted without a trace", async () => {
  const { id, state } = await flotilla.create({ env: { GREETING: "hello" } });
  assert.equal(state, "stopped");
  assert.equal((await flotilla.start(id)).state, "started");
  assert.equal(await flotilla.exec(id, "echo $GREETING"), "hello\n");
  assert.equal((await flotilla.stop(id)).state, "stopped");
  assert.equal((await flotilla.start(id)).state, "started");
  assert.equal(await flotilla.exec(id, ["printenv", "GREETING"]), "hello\n");
  await flotilla.remove(id);
  assert.equal((await flotilla.client().get(`/v1/machines/${id}`)).status, 404);
  await until(async () => (await files()).length === 0, { what: "the machine's files to go" });
});

test("a machine that cannot start says why on its timeline, and starts once the cause is gone", async () => {
  const { id } = await flotilla.create({ source: { type: "image", reference: "team/missing:1" } });
  const refused = await flotilla.client().post(`/v1/machines/${id}/start`);
  assert.deepEqual([refused.status, refused.headers.get("x-error-code")], [422, "image_not_found"]);
  assert.match(refused.text, /does not exist/);
  const failed = await flotilla.untilState(id, "error");
  assert.match(failed.error ?? "", /does not exist/);
  assert.ok((await flotilla.events(id)).some((message) => /start failed.*does not exist/.test(message)));
  await flotilla.remove(id);
});

test("a machine is deleted in every state it passes through", async () => {
  const cases: [object, string][] = [
    [{ source: { type: "image", reference: "app:slow-60000" } }, "during its pull"],
    [{ env: { FAKE_BOOT_MS: "60000" } }, "during its boot"],
    [{ env: { FAKE_CRASH_AFTER_MS: "1" } }, "after its crash"],
    [{ env: { FAKE_IGNORE_SHUTDOWN: "1" } }, "during its stop"],
  ];
  for (const [body, when] of cases) {
    const { id } = await flotilla.create(body);
    await flotilla.client().post(`/v1/machines/${id}/start?detach=true`);
    if (when === "during its stop") {
      await flotilla.untilState(id, "started");
      void flotilla.stop(id).catch(() => undefined);
    }
    const startedAt = monotonic();
    await flotilla.remove(id);
    assert.equal((await flotilla.client().get(`/v1/machines/${id}`)).status, 404, when);
    // Ten seconds later the guest that ignores its shutdown would be killed.
    assert.ok(
      monotonic() - startedAt < onThisHost(4_000),
      `deleted ${when} in ${Math.round(monotonic() - startedAt)} ms`,
    );
  }
  await until(async () => (await files()).length === 0, { what: "all files to go" });
});

test("a guest that powers itself off leaves its machine stopped", async () => {
  const { id } = await flotilla.create();
  await flotilla.start(id);
  await flotilla.client().post(`/v1/machines/${id}/exec`, { command: ["poweroff"] });
  await flotilla.untilState(id, "stopped");
  assert.equal((await flotilla.start(id)).state, "started");
});
