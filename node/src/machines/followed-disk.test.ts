/**
 * A disk that follows its machine: what is asked for, what counts as arrived, and what another agent finds.
 */
import assert from "node:assert/strict";
import {
  appendFile,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { Readable } from "node:stream";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { monotonic, onThisHost } from "../../../test/support/until.ts";
import { type Extent, readExtents } from "../images/blocks.ts";
import { makeLog } from "../log.ts";
import { ContentDiffers } from "./content-differs.ts";
import { FollowedDisk, PART_BYTES } from "./followed-disk.ts";
import { farMapPathOf, farPathOf, farSocketPathOf } from "./paths.ts";

const PARTS = 20;
/** The last part is not a whole one. */
const BYTES = PARTS * PART_BYTES - 70_000;
const never = new AbortController().signal;

async function place() {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-followed-"));
  const from = join(directory, "from");
  const content = Buffer.alloc(BYTES);
  for (let at = 0; at + 8 < BYTES; at += 4096) content.writeDoubleBE(at + 1, at);
  await writeFile(from, content);
  await using far = await open(farPathOf(directory), "w");
  await far.truncate(BYTES);
  const log = makeLog({ level: "silent", clock: systemClock });
  const disk = () => new FollowedDisk({ directory, bytes: BYTES, clock: systemClock, log });
  const records = async (path: string, extents: readonly Extent[]) => {
    const all: Buffer[] = [];
    for await (const record of readExtents(path, extents)) all.push(record);
    return Readable.from(all);
  };
  const send = async (to: FollowedDisk, start: number, end: number) =>
    await to.receive({ start, end }, await records(from, [{ start, end }]), () => undefined, never);
  return {
    ...{ directory, from, content, disk, send, records },
    [Symbol.asyncDispose]: () => rm(directory, { recursive: true }),
  };
}

/** The size in the answer of the protocol's oldest option, which a client sends as 16 bytes and an empty name. */
async function servedBytes(directory: string): Promise<number> {
  const socket = connect(farSocketPathOf(directory));
  try {
    const option = Buffer.alloc(20);
    option.writeUInt32BE(3, 0);
    option.write("IHAVEOPT", 4);
    option.writeUInt32BE(1, 12);
    socket.write(option);
    let answer = Buffer.alloc(0);
    for await (const piece of socket) {
      answer = Buffer.concat([answer, piece as Buffer]);
      // After the greeting of 18 bytes.
      if (answer.byteLength >= 28) return Number(answer.readBigUInt64BE(18));
    }
    throw new Error("the connection ended early");
  } finally {
    socket.destroy();
  }
}

test("everything is asked for once, in order, and the disk is the other one's in the end", async () => {
  await using at = await place();
  const disk = at.disk();
  await disk.open(null);
  let end = 0;
  for (;;) {
    const { wanted, isComplete } = await disk.wanted("rest", 0, never);
    if (wanted === null) {
      assert.ok(isComplete);
      break;
    }
    assert.equal(wanted.start, end);
    ({ end } = wanted);
    await at.send(disk, wanted.start, wanted.end);
  }
  assert.equal(end, BYTES);
  assert.ok((await readFile(farPathOf(at.directory))).equals(at.content));
  await assert.rejects(at.send(disk, 0, PART_BYTES), /all of the disk is here/);
  await disk.close();
});

test("what one agent has compared the next one does not ask for; what was asked for in vain it does", async () => {
  await using at = await place();
  const first = at.disk();
  await first.open(null);
  const begun = (await first.wanted("rest", 0, never)).wanted;
  assert.equal(begun?.start, 0);
  await at.send(first, 5 * PART_BYTES, 6 * PART_BYTES);
  await first.close();
  const second = at.disk();
  await second.open(null);
  const state = await second.wanted("rest", 0, never);
  assert.deepEqual(state.wanted, { start: 0, end: 5 * PART_BYTES });
  assert.equal(state.arrivedBytes, PART_BYTES);
  await second.close();
  await rm(farMapPathOf(at.directory));
  const third = at.disk();
  await third.open(null);
  assert.equal((await third.wanted("rest", 0, never)).arrivedBytes, 0, "without a map nothing is believed");
  await third.close();
});

test("a map that cannot be read is not replaced by an empty one", async (t) => {
  await using at = await place();
  const first = at.disk();
  await first.open(null);
  await at.send(first, 0, PART_BYTES);
  await first.close();
  const [path, aside] = [farMapPathOf(at.directory), join(at.directory, "aside")];
  await rename(path, aside);
  await symlink(path, path);
  const second = at.disk();
  t.after(() => second.close());
  await assert.rejects(second.open(null), { code: "ELOOP" });
  await rename(aside, path);
  await second.open(null);
  assert.equal((await second.wanted("rest", 0, never)).arrivedBytes, PART_BYTES);
});

test("a part of other content, of another place or of another size is not there", async () => {
  await using at = await place();
  const disk = at.disk();
  await disk.open(null);
  const part = { start: 0, end: PART_BYTES };
  const wrong = async function* () {
    for await (const record of await at.records(at.from, [part])) {
      record[100] = (record[100] ?? 0) ^ 1;
      yield record;
    }
  };
  await assert.rejects(
    disk.receive(part, wrong(), () => undefined, never),
    ContentDiffers,
  );
  const elsewhere = await at.records(at.from, [{ start: PART_BYTES, end: 2 * PART_BYTES }]);
  await assert.rejects(
    disk.receive(part, elsewhere, () => undefined, never),
    /another part/,
  );
  const nothing = await at.records(at.from, []);
  await assert.rejects(
    disk.receive(part, nothing, () => undefined, never),
    /did not send all/,
  );
  const other = join(at.directory, "other");
  await writeFile(other, at.content.subarray(0, 3 * PART_BYTES));
  await assert.rejects(
    disk.receive(part, await at.records(other, [part]), () => undefined, never),
    /another size/,
  );
  assert.equal((await disk.wanted("rest", 0, never)).arrivedBytes, 0);
  await disk.close();
});

test("a file that is missing or shorter is not replaced by an empty one", async () => {
  await using at = await place();
  await writeFile(farPathOf(at.directory), "");
  await assert.rejects(at.disk().open(null), /has 0 bytes/);
  await rm(farPathOf(at.directory));
  await assert.rejects(at.disk().open(null), /ENOENT/);
});

test("a file that a merge has made longer is served whole by this agent and the next one, when all parts were there", async () => {
  await using at = await place();
  const first = at.disk();
  await first.open(null);
  for (let start = 0; start < BYTES; start += PART_BYTES)
    await at.send(first, start, Math.min(BYTES, start + PART_BYTES));
  assert.equal(await servedBytes(at.directory), BYTES);
  await appendFile(farPathOf(at.directory), Buffer.alloc(200_000, 7));
  assert.equal(await servedBytes(at.directory), BYTES + 200_000);
  await first.close();
  const second = at.disk();
  await second.open(null);
  assert.equal(await servedBytes(at.directory), BYTES + 200_000);
  assert.ok(second.isComplete);
  await second.close();
  await rm(farMapPathOf(at.directory));
  await assert.rejects(at.disk().open(null), /bytes and not/, "a file that is still to arrive has its size");
});

test("a part that the map does not name is not there, so the other node keeps its copy", async () => {
  await using at = await place();
  const disk = at.disk();
  await disk.open(null);
  for (let start = 0; start < BYTES - PART_BYTES; start += PART_BYTES) await at.send(disk, start, start + PART_BYTES);
  const path = farMapPathOf(at.directory);
  await rm(path);
  await mkdir(`${path}.new`);
  const last = (PARTS - 1) * PART_BYTES;
  await assert.rejects(at.send(disk, last, BYTES));
  assert.equal(disk.isComplete, false);
  assert.deepEqual((await disk.wanted("rest", 0, never)).wanted, { start: last, end: BYTES });
  await disk.close();
});

test("what is to be sent next of a large disk that is almost there is found, and noted, in a moment", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-followed-"));
  t.after(() => rm(directory, { recursive: true }));
  const bytes = 2 ** 43;
  const parts = bytes / PART_BYTES;
  await using far = await open(farPathOf(directory), "w");
  await far.truncate(bytes);
  await writeFile(farMapPathOf(directory), Buffer.alloc(parts, 1).fill(0, parts - 2));
  const { ino } = await stat(farMapPathOf(directory));
  const log = makeLog({ level: "silent", clock: systemClock });
  const disk = new FollowedDisk({ directory, bytes, clock: systemClock, log });
  t.after(() => disk.close());
  await disk.open(null);
  const startedAt = monotonic();
  const [start, end] = [bytes - 2 * PART_BYTES, bytes - PART_BYTES];
  assert.deepEqual((await disk.wanted("rest", 0, never)).wanted, { start, end: bytes });
  for (let count = 0; count < 100; count += 1) await disk.wanted("rest", 0, never);
  assert.ok(monotonic() - startedAt < onThisHost(500));
  const records: Buffer[] = [];
  for await (const record of readExtents(farPathOf(directory), [{ start, end }])) records.push(record);
  await disk.receive({ start, end }, Readable.from(records), () => undefined, never);
  assert.equal((await stat(farMapPathOf(directory))).ino, ino, "it is not written as a whole");
  const map = await readFile(farMapPathOf(directory));
  assert.deepEqual([map.byteLength, ...map.subarray(parts - 3)], [parts, 1, 1, 0]);
});

test("two readers wait for the same part without keeping the process busy", { timeout: 10_000 }, async () => {
  await using at = await place();
  const disk = at.disk();
  await disk.open(null);
  const waiting = [disk.awaitHead(20_000, never), disk.awaitHead(20_000, never)];
  // It reads and writes files, which a busy process would not learn of.
  await at.send(disk, 0, PART_BYTES);
  assert.deepEqual(await Promise.all(waiting), [true, true]);
  await disk.close();
});

test("a read of the head is asked for before the rest, and is over when it is there", async () => {
  await using at = await place();
  const disk = at.disk();
  await disk.open(null);
  assert.equal(await disk.awaitHead(5, never), false);
  const waiting = disk.awaitHead(20_000, never);
  const { wanted } = await disk.wanted("read", 5_000, never);
  assert.deepEqual(wanted, { start: 0, end: PART_BYTES });
  await at.send(disk, 0, PART_BYTES);
  assert.equal(await waiting, true);
  await disk.close();
});

test("a read that waits for long keeps nothing of each change that it saw", async (t) => {
  await using at = await place();
  const disk = at.disk();
  await disk.open(null);
  const [added, removed] = (["addEventListener", "removeEventListener"] as const).map((name) =>
    t.mock.method(EventTarget.prototype, name),
  );
  const reading = new AbortController();
  const head = disk.awaitHead(60_000, reading.signal);
  head.catch(() => undefined);
  t.after(() => {
    reading.abort();
    return disk.close();
  });
  // Each part that arrives wakes the read, which waits for the first one.
  for (let part = PARTS - 1; part > 0; part -= 1)
    await at.send(disk, part * PART_BYTES, Math.min((part + 1) * PART_BYTES, BYTES));
  const kept = (added?.mock.callCount() ?? 0) - (removed?.mock.callCount() ?? 0);
  assert.ok(kept < PARTS / 2, `${kept} listeners are left of ${PARTS} changes`);
  await at.send(disk, 0, PART_BYTES);
  assert.equal(await head, true);
});

test("a disk that cannot be opened keeps no file and no socket, however often that is tried, and is opened when it can be", async () => {
  await using scene = await place();
  const { directory, disk } = scene;
  const boot = { directory: join(directory, "boot"), uid: process.getuid?.() ?? 0 };
  // In the way of the socket's name.
  const inTheWay = join(boot.directory, basename(farSocketPathOf(directory)));
  await mkdir(inTheWay, { recursive: true });
  const opened = async (): Promise<number> => {
    const targets = await Promise.all(
      (await readdir("/proc/self/fd")).map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => "")),
    );
    return targets.filter((target) => target === directory).length;
  };
  const followed = disk();
  for (let attempt = 0; attempt < 3; attempt += 1) await assert.rejects(followed.open(boot));
  assert.equal(await opened(), 0);
  await rm(inTheWay, { recursive: true });
  await followed.open(boot);
  assert.equal(await servedBytes(directory), BYTES);
  await followed.close();
  assert.equal(await opened(), 0);
});
