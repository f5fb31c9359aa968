/**
 * Parsing hostile queries from guests, and rendering answers.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { answerTo, questionOf } from "./dns-message.ts";

function queryOf(name: string, { type = 1, id = 7 } = {}): Buffer {
  const header = Buffer.from([id >> 8, id & 255, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
  const labels = name.split(".").map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)]));
  return Buffer.concat([header, ...labels, Buffer.from([0, 0, type, 0, 1])]);
}

test("a question is read, and what follows it is ignored", () => {
  const query = Buffer.concat([
    queryOf("Web.Example.test", { id: 513 }),
    Buffer.from([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]),
  ]);
  assert.deepEqual(questionOf(query), { id: 513, name: "Web.Example.test", type: 1, end: query.byteLength - 11 });
});

test("an answer repeats the question and holds the addresses", () => {
  const query = queryOf("a.test");
  const question = questionOf(query);
  assert.ok(question);
  const answer = answerTo(query, question, { code: 0, addresses: ["192.0.2.1", "192.0.2.254"], ttlSeconds: 30 });
  assert.equal(answer.readUInt16BE(0), 7);
  assert.equal(answer.readUInt16BE(2), 0x8180);
  assert.equal(answer.readUInt16BE(6), 2);
  assert.deepEqual(answer.subarray(12, query.byteLength), query.subarray(12));
  assert.deepEqual([...answer.subarray(-16)], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 192, 0, 2, 254]);
});

test("anything but one complete question is not answered", () => {
  const good = queryOf("a.test");
  const changed = (at: number, value: number): Buffer => {
    const copy = Buffer.from(good);
    copy[at] = value;
    return copy;
  };
  const bad = [
    Buffer.alloc(0),
    good.subarray(0, -1),
    changed(2, 0x81),
    changed(5, 2),
    changed(12, 0xc0),
    changed(12, 60),
  ];
  for (const query of bad) assert.equal(questionOf(query), null, query.toString("hex"));
  assert.equal(questionOf(Buffer.concat([good, Buffer.alloc(2000)])), null);
  assert.equal(questionOf(queryOf(Array(100).fill("abc").join("."))), null);
});

test("arbitrary bytes do not throw", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 600 }), (bytes) => {
      const query = Buffer.from(bytes);
      const question = questionOf(query);
      if (question !== null) answerTo(query, question, { code: 5 });
    }),
  );
});
