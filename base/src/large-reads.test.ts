/**
 * Large reads of Unix sockets lose nothing, and stop while they are not read.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { endOfTurn } from "./clock.ts";
import { connectUnix } from "./large-reads.ts";

const BYTES = 8 * 1024 * 1024;

async function pair(t: TestContext): Promise<{ ours: Socket; theirs: Socket }> {
  const directory = await mkdtemp(path.join(tmpdir(), "flotilla-reads-"));
  const server = createServer({ allowHalfOpen: true }).listen(path.join(directory, "socket"));
  t.after(async () => {
    server.close();
    await rm(directory, { recursive: true, force: true });
  });
  await once(server, "listening");
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const ours = connectUnix(path.join(directory, "socket"));
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
