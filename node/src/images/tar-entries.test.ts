/**
 * What is counted in a tar, split into chunks of any size, and when it is refused.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { CorruptData } from "./corrupt-data.ts";
import { type EntryLimits, TarEntries } from "./tar-entries.ts";

const WIDE: EntryLimits = { entries: 1e6, pathBytes: 4096, levels: 100, searchedBytes: 1e12 };

interface Member {
  readonly name: string;
  readonly type?: string;
  readonly content?: string | Buffer;
}

function member({ name, type = "0", content = "" }: Member): Buffer {
  const bytes = Buffer.from(content);
  const head = Buffer.alloc(512);
  head.write(name.slice(0, 100), 0, "latin1");
  head.write(bytes.length.toString(8).padStart(11, "0"), 124, "latin1");
  head.write(type, 156, "latin1");
  return Buffer.concat([head, bytes, Buffer.alloc(-bytes.length & 511)]);
}

function count(tar: Buffer, { pieces = tar.length, limits = WIDE } = {}): number {
  const entries = new TarEntries(limits);
  entries.begin();
  for (let at = 0; at < tar.length; at += pieces) entries.add(tar.subarray(at, at + pieces));
  return entries.count;
}

const tarOf = (...members: readonly Member[]): Buffer => Buffer.concat(members.map(member));
/** A record with its own length, which counts its digits too. */
function recordOf(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const digits = String(rest.length + String(rest.length).length).length;
  return `${rest.length + digits}${rest}`;
}
const pax = (record: string): Member => ({ name: "pax", type: "x", content: record });

test("members are counted and their content is not, in chunks of any size", () => {
  const tar = tarOf(
    { name: "dir/", type: "5" },
    { name: "dir/a", content: member({ name: "not a member" }) },
    pax("11 path=x/y\n"),
    { name: "b", content: "b".repeat(513) },
    { name: "long", type: "L", content: "p".repeat(300) },
    { name: "c" },
    { name: "link", type: "2" },
  );
  for (const pieces of [1, 7, 511, 512, 513, tar.length]) assert.equal(count(tar, { pieces }), 5);
});

test("a size in a record before the member overrides the header's", () => {
  const inner = member({ name: "hidden" });
  assert.equal(count(Buffer.concat([tarOf(pax("11 size=512\n")), member({ name: "a" }), inner])), 1);
});

test("the extra headers of an old sparse file are skipped", () => {
  const head = member({ name: "sparse", type: "S" });
  head[482] = 1;
  const more = Buffer.alloc(512, 1);
  const last = Buffer.alloc(512, 1);
  last[504] = 0;
  assert.equal(count(Buffer.concat([head, more, last, member({ name: "a" })])), 2);
});

test("a sparse file of the old format counts with its whole size", () => {
  const head = member({ name: "sparse", type: "S" });
  head.write("00100000000", 483, "latin1");
  const entries = new TarEntries(WIDE);
  entries.begin();
  entries.add(Buffer.concat([head, member({ name: "a" })]));
  assert.equal(entries.sparseBytes, 8 ** 8);
});

test("the sizes of sparse files are added up, whatever the tar holds of them", () => {
  const entries = new TarEntries(WIDE);
  const sparse = (key: string, size: string): readonly Member[] => [
    pax(recordOf(key, size)),
    { name: "a", content: "x" },
  ];
  entries.begin();
  entries.add(tarOf(...sparse("GNU.sparse.realsize", "1000000000000"), { name: "b", content: "x" }));
  entries.begin();
  entries.add(tarOf(...sparse("GNU.sparse.size", "5"), ...sparse("GNU.sparse.size", "")));
  assert.equal(entries.sparseBytes, 1_000_000_000_005);
  assert.throws(() => count(tarOf(...sparse("GNU.sparse.size", "many"))), CorruptData);
});

test("data after the end of the tar is ignored", () => {
  assert.equal(count(Buffer.concat([member({ name: "a" }), Buffer.alloc(1024), member({ name: "b" })])), 1);
});

test("too many members, too long a path and too full a directory are refused", () => {
  const many = tarOf({ name: "a" }, { name: "b" }, { name: "c" });
  assert.throws(() => count(many, { limits: { ...WIDE, entries: 2 } }), /more than 2 files and directories/);
  const long = tarOf({ name: "x", type: "L", content: "p".repeat(4097) }, { name: "a" });
  assert.throws(() => count(long), /path of more than 4096 bytes/);
  const deep = tarOf({ name: `./${"a/".repeat(100)}` }, { name: `${"./a//".repeat(19)}b` });
  assert.equal(count(deep), 2);
  assert.throws(
    () => count(tarOf({ name: `${"a/".repeat(49)}b` }), { limits: { ...WIDE, levels: 49 } }),
    /than 49 levels/,
  );
  const full = tarOf(...Array.from({ length: 100 }, (_, index) => ({ name: `d/${index}` })));
  const spread = tarOf(...Array.from({ length: 100 }, (_, index) => ({ name: `${index}/d` })));
  const limits = { ...WIDE, searchedBytes: 10_000 };
  assert.throws(() => count(full, { limits }), /too many files in one directory/);
  assert.equal(count(spread, { limits }), 100);
});

test("a record that is too large and an invalid size are refused", () => {
  const head = member({ name: "x", type: "x" });
  head.write("77777777777", 124, "latin1");
  assert.throws(() => count(head), /too long/);
  head.write("9", 124, "latin1");
  head[124] = 0xff;
  assert.throws(() => count(head), /too long|damaged/);
});

test("a size that is not a number is damage of the layer, which the image builder names", () => {
  const head = member({ name: "x" });
  head.write("zzzzzzzzzzz", 124, "latin1");
  assert.throws(() => count(head), CorruptData);
});

test("a size in a record that is not a number of bytes is damage of the layer, and an empty one means the header's", () => {
  for (const size of ["x", "-512", "1e3", "0.5", "Infinity", " 1", "9".repeat(19), "1".repeat(400)]) {
    const tar = tarOf(pax(recordOf("size", size)), { name: "a", content: "a" });
    assert.throws(() => count(tar), CorruptData, size.slice(0, 20));
  }
  const both = recordOf("size", "1024") + recordOf("size", "");
  assert.equal(count(tarOf(pax(both), { name: "a", content: "a" }, { name: "b" })), 2);
});

test("a record whose length is not a number, or too short for its key, ends the records, in time for its bytes", () => {
  for (const length of ["0.5", "1e-300", "-1", "0", "x", "3", `${"0".repeat(2 ** 19)}1`]) {
    const tar = tarOf(pax(`${recordOf("path", "long")}${length} size=x\n`), { name: "a" }, { name: "b" });
    assert.equal(count(tar), 2, length.slice(0, 20));
  }
});

test("a record of many others costs as much as its bytes", () => {
  const others = tarOf(...Array.from({ length: 8 }, () => pax("5 a=\n".repeat(200_000))), { name: "a" });
  const userTime = (work: () => unknown): number => {
    const before = process.cpuUsage();
    work();
    return process.cpuUsage(before).user;
  };
  const hashing = userTime(() => createHash("md5").update(others).digest());
  const counting = userTime(() => assert.equal(count(others), 1));
  assert.ok(counting < 40 * hashing, `${counting} µs, and ${hashing} µs for a hash`);
});

test("arbitrary bytes are either accepted or refused with an error", () => {
  let state = 12_345;
  for (let round = 0; round < 300; round += 1) {
    const noise = Buffer.alloc(4096);
    for (let at = 0; at < noise.length; at += 1) {
      state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
      noise[at] = at % 512 < 124 || state % 3 === 0 ? state >>> 24 : 0x30;
    }
    try {
      count(noise);
    } catch (error) {
      assert.match(String(error), /^Error: it/);
    }
  }
});
