/**
 * Commands that all write endlessly over a port slower than their output, as on a busy host.
 */
import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { pause, until } from "../../test/support/until.ts";
import { request, startAgent } from "./agent.ts";

const FLOODS = 8;
const BYTES = 8 * 1024 * 1024;
const CHUNK_BYTES = 16 * 1024;

test("commands that flood a slow port share it fairly, whatever their channel numbers", async () => {
  const agent = startAgent();
  let isOver = false;
  const slow = new Duplex({
    read: () => undefined,
    write: (chunk, _encoding, done) => void agent.socket.write(chunk, () => done()),
  });
  agent.socket.pause();
  const carrying = (async () => {
    while (!isOver) {
      const { readableLength } = agent.socket;
      const chunk = agent.socket.read(Math.min(CHUNK_BYTES, Math.max(1, readableLength))) as Buffer | null;
      if (chunk !== null) slow.push(chunk);
      await pause(1);
    }
  })();
  try {
    const guest = await agent.connect(slow);
    const shares = Array.from({ length: FLOODS }, () => 0);
    for (const index of shares.keys()) {
      const flood = guest.exec(request(["/usr/bin/yes", "flood"]));
      flood.exit.catch(() => undefined);
      flood.stdout.on("data", (chunk: Buffer) => {
        shares[index] = (shares[index] ?? 0) + chunk.byteLength;
      });
    }
    const sum = (): number => shares.reduce((total, share) => total + share, 0);
    await until(() => sum() > BYTES, { what: "the floods to flow", deadlineMs: 60_000 });
    assert.ok(Math.min(...shares) > BYTES / FLOODS / 8, `shares in bytes: ${shares.join(" ")}`);
    guest.close();
  } finally {
    isOver = true;
    await carrying;
    await agent.end();
  }
});
