/**
 * A machine that its VMM has paused, because the disk of its host is full: users see why, and calls say it
 * instead of hanging.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { onThisHost, until } from "../../test/support/until.ts";
import { startMachineServer } from "./support/machine-server.ts";

const { client, machine } = await startMachineServer();

test("a machine that is paused shows the reason, has it on its timeline, and refuses commands and files with it", async () => {
  const id = await machine();
  const path = `/v1/machines/${id}`;
  assert.equal((await client.post(`${path}/start`)).status, 200);
  assert.equal((await client.get(path)).json.pauseReason, null);
  // Long enough for all calls below, on a busy host too.
  const seconds = `${Math.ceil(onThisHost(4_000) / 1_000)}`;
  const full = { command: ["full-disk", seconds], background: true };
  assert.equal((await client.post(`${path}/exec`, full)).status, 200);

  const shown = await until(
    async () => {
      const { json } = await client.get(path);
      return json.pauseReason !== null && json;
    },
    { what: "the reason" },
  );
  assert.deepEqual([shown.state, String(shown.pauseReason).startsWith("its host's disk is full")], ["started", true]);
  const events = (await client.get(`${path}/events`)).json as { readonly message: string }[];
  assert.equal(events.filter(({ message }) => message.startsWith("the machine is paused: its host's disk")).length, 1);

  for (const answer of [
    await client.post(`${path}/exec`, { command: ["true"] }),
    await client.get(`${path}/files?path=/x`),
    await client.get(`${path}/files?path=/&list=true`),
  ])
    assert.match(
      `${answer.status} ${answer.headers.get("x-error-code")} ${answer.text}`,
      /^503 unavailable .*paused.*its host's disk is full/,
    );

  await until(async () => (await client.post(`${path}/exec`, { command: ["true"] })).status === 200, {
    what: "commands to run again",
    deadlineMs: 60_000,
  });
});
