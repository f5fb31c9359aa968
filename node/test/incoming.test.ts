/**
 * Files of machines that come from other nodes: requests that fall silent or fail at the start.
 */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import type { IncomingMachine } from "@flotilla/contract/link/moves";
import { readBlocks } from "../src/images/blocks.ts";
import { makeLog } from "../src/log.ts";
import { Incoming } from "../src/machines/incoming.ts";
import { machineIdOf, startTestNode, temporaryDirectory } from "./support/in-process.ts";

const A = machineIdOf("a");
const MOVE = `op-${"a".repeat(32)}`;
const DISK = { name: "disk", from: 0, point: null, since: null, generation: null };
const IMAGE = {
  digest: `sha256:${"a".repeat(64)}`,
  source: "local/a",
  architecture: "amd64",
  os: "linux",
  layerCount: 1,
};
const REQUEST: IncomingMachine = {
  generation: 1,
  image: { ...IMAGE, env: [], workdir: "/", user: "", entrypoint: [], command: [] },
  root: { bytes: 0, size: 0, sha256: "a".repeat(64) },
  files: [{ name: "disk", bytes: 8192 }],
  memory: null,
  memoryBase: null,
};

async function scene(directory: string) {
  const { fleet, deps } = await startTestNode(directory);
  const log = makeLog({ level: "silent", clock: systemClock });
  const incoming = new Incoming({ directory: join(directory, "incoming"), fleet, deps, log });
  await incoming.open();
  return incoming;
}

const silence = (): Readable => new Readable({ read: () => undefined });

test("a newer request for a file ends an older one on which nothing arrives, and so does the end of the move", async () => {
  await using directory = await temporaryDirectory();
  const incoming = await scene(directory.path);
  await incoming.begin(A, MOVE, REQUEST);
  const path = join(directory.path, "sent");
  await writeFile(path, randomBytes(8192));
  const receive = (stream: AsyncIterable<Buffer>) => incoming.receive(A, MOVE, DISK, stream, () => undefined);
  const [first, second] = [receive(silence()), receive(readBlocks(path, 0))];
  await assert.rejects(first, /a newer request sends the file/);
  assert.equal((await second).bytes, 8192);
  const third = receive(silence());
  const discarded = incoming.discard(MOVE);
  await assert.rejects(third, /the move was abandoned/);
  await discarded;
});

test("a move that could not be begun leaves nothing behind once it was discarded", async () => {
  await using directory = await temporaryDirectory();
  const incoming = await scene(directory.path);
  // In the way of its directory, as a full disk is.
  await writeFile(join(directory.path, "incoming", MOVE), "");
  await assert.rejects(incoming.begin(A, MOVE, REQUEST));
  assert.deepEqual(incoming.moves, [MOVE]);
  await incoming.discard(MOVE);
  assert.deepEqual(incoming.moves, []);
});
