/**
 * Large reads of Unix sockets lose nothing, and stop while they are not read or what they brought is
 * returned.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { endOfTurn } from "./clock.ts";
import { boundReadAhead, connectUnix } from "./large-reads.ts";

const BYTES = 8 * 1024 * 1024;
const PARSED_BYTES = 16 * 1024;

function connectBounded(path: string): Socket {
  const socket = connect(path);
  boundReadAhead(socket);
  return socket;
}

async function pair(t: TestContext, open = connectUnix): Promise<{ ours: Socket; theirs: Socket }> {
  const directory = await mkdtemp(path.join(tmpdir(), "flotilla-reads-"));
  const server = createServer({ allowHalfOpen: true }).listen(path.join(directory, "socket"));
  t.after(async () => {
    server.close();
    await rm(directory, { recursive: true, force: true });
  });
  await once(server, "listening");
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const ours = open(path.join(directory, "socket"));
  const [theirs] = await accepted;
  t.after(() => [ours, theirs].map((socket) => socket.destroy()));
  return { ours, theirs };
}

test("bytes arrive in order, in pieces larger than Node's own, and then the end", async (t) => {
  const { ours, theirs } = await pair(t);
  const sent = randomBytes(BYTES);
  theirs.end(sent);
  const pieces: Buffer[] = [];
  for await (const piece of ours) {
    pieces.push(piece as Buffer);
    // The writer gets ahead.
    for (let turn = 0; turn < 3; turn += 1) await endOfTurn();
  }
  assert.ok(Buffer.concat(pieces).equals(sent));
  assert.ok(Math.max(...pieces.map(({ byteLength }) => byteLength)) > 64 * 1024);
});

test("a piece keeps no more memory than its bytes", async (t) => {
  const { ours, theirs } = await pair(t);
  theirs.write(Buffer.alloc(10_000, "a"));
  const [piece] = (await once(ours, "data")) as [Buffer];
  assert.equal(piece.buffer.byteLength, piece.byteLength);
});

test("a socket that is not read stops its writer, and continues when it is read", async (t) => {
  const { ours, theirs } = await pair(t);
  const sent = randomBytes(BYTES);
  assert.equal(theirs.write(sent), false);
  theirs.end();
  await once(ours, "readable");
  for (let turn = 0; turn < 100; turn += 1) await endOfTurn();
  assert.ok(ours.readableLength < 1024 * 1024, `${ours.readableLength} bytes were read ahead`);
  assert.ok(theirs.writableLength > 0);
  const rest = await ours.toArray();
  assert.ok(Buffer.concat(rest as Buffer[]).equals(sent));
});

for (const [what, open] of Object.entries({ "a Unix socket": connectUnix, "another socket": connectBounded })) {
  test(`a reader that takes all and returns what it cannot use is not sent more and more: ${what}`, async (t) => {
    const { ours, theirs } = await pair(t, open);
    const sent = randomBytes(BYTES);
    theirs.end(sent);
    const used: Buffer[] = [];
    let most = 0;
    for (let usedBytes = 0; usedBytes < BYTES; ) {
      const all = ours.read() as Buffer | null;
      if (all === null) {
        await once(ours, "readable");
        continue;
      }
      most = Math.max(most, all.byteLength);
      used.push(all.subarray(0, PARSED_BYTES));
      usedBytes += Math.min(all.byteLength, PARSED_BYTES);
      if (all.byteLength > PARSED_BYTES) ours.unshift(all.subarray(PARSED_BYTES));
      await endOfTurn();
    }
    assert.ok(Buffer.concat(used).equals(sent));
    assert.ok(most <= 512 * 1024, `${most} bytes were read ahead`);
    assert.equal(ours.read(), null);
    if (!ours.readableEnded) await once(ours, "end");
  });
}
