/**
 * What a body's JSON may be, and large bodies in a thread of their own.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Refusal } from "@flotilla/contract/errors";
import fc from "fast-check";
import { checkExtent, VALUES_MAX } from "./json.ts";
import { LargeJson } from "./large-json.ts";

const bytesOf = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
const refusedAs = (code: string) => (error: unknown) => error instanceof Refusal && error.code === code;

test("a body of many small values or of many levels is refused before it is parsed", () => {
  checkExtent(bytesOf(Array.from({ length: VALUES_MAX - 1 }, () => 1)));
  assert.throws(() => checkExtent(bytesOf(Array.from({ length: VALUES_MAX + 1 }, () => 1))), refusedAs("invalid_body"));
  assert.throws(() => checkExtent(bytesOf(Array.from({ length: VALUES_MAX }, () => ({})))), refusedAs("invalid_body"));
  assert.throws(() => checkExtent(Buffer.from("[".repeat(300))), refusedAs("invalid_body"));
});

test("what is inside strings does not count, however it is escaped", () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(",", "[", "{", '"', "\\", "\\\\", '\\"', "x"), { maxLength: 30 }), (parts) => {
      const text = parts.join("").repeat(2_000);
      checkExtent(bytesOf({ stdin: text, command: [text, "true"] }));
    }),
    { numRuns: 30 },
  );
});

test("large bodies are parsed in a thread, and give what JSON says", async () => {
  const large = new LargeJson();
  const value = { command: ["cat"], stdin: "é\n".repeat(200_000), env: { a: "1" } };
  const [kept, given, empty] = [bytesOf(value), bytesOf(value), Buffer.alloc(0)];
  assert.deepEqual(await large.parse("a", kept, { isKept: true }), value);
  assert.ok(kept.byteLength > 0, "bytes that are kept are still there");
  assert.deepEqual(await large.parse("a", given, { isKept: false }), value);
  assert.equal(await large.parse("a", empty, { isKept: false }), undefined);
  const hostile = Buffer.from(`[${"{},".repeat(100_000)}{}]`);
  await assert.rejects(large.parse("a", hostile, { isKept: false }), refusedAs("invalid_body"));
  await assert.rejects(large.parse("a", Buffer.from("{"), { isKept: false }), refusedAs("invalid_json"));
  await assert.rejects(large.parse("a", Buffer.from('["\\ud800"]'), { isKept: false }), refusedAs("invalid_body"));
});

test("tenants whose large bodies wait take turns", async () => {
  const large = new LargeJson();
  const order: string[] = [];
  const ask = async (tenantId: string, name: string): Promise<void> => {
    await large.parse(tenantId, bytesOf([name]), { isKept: true });
    order.push(name);
  };
  await Promise.all([ask("a", "a1"), ask("a", "a2"), ask("a", "a3"), ask("b", "b1")]);
  assert.deepEqual(order, ["a1", "a2", "b1", "a3"]);
});
