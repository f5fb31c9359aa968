/**
 * What a body's JSON may be, and large bodies in a separate thread.
 */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { Refusal } from "@flotilla/contract/errors";
import { type TSchema, Type } from "@flotilla/contract/schema";
import fc from "fast-check";
import { CALLER_EXTENT, checkExtent } from "./json.ts";
import { LargeJson } from "./large-json.ts";

const bytesOf = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
const refusedAs = (code: string) => (error: unknown) => error instanceof Refusal && error.code === code;

test("a body of many small values or of many levels is refused before it is parsed", () => {
  const { valuesMax } = CALLER_EXTENT;
  const check = (value: unknown): void => checkExtent(bytesOf(value), CALLER_EXTENT);
  check(Array.from({ length: valuesMax - 1 }, () => 1));
  assert.throws(() => check(Array.from({ length: valuesMax + 1 }, () => 1)), refusedAs("invalid_body"));
  assert.throws(() => check(Array.from({ length: valuesMax }, () => ({}))), refusedAs("invalid_body"));
  assert.throws(() => checkExtent(Buffer.from("[".repeat(300)), CALLER_EXTENT), refusedAs("invalid_body"));
});

test("what is inside strings does not count, however it is escaped", () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(",", "[", "{", '"', "\\", "\\\\", '\\"', "x"), { maxLength: 30 }), (parts) => {
      const text = parts.join("").repeat(2_000);
      checkExtent(bytesOf({ stdin: text, command: [text, "true"] }), CALLER_EXTENT);
    }),
    { numRuns: 30 },
  );
});

const shape = (schema: TSchema, longText: string | null = null) => ({
  message: null,
  name: JSON.stringify(schema),
  schema,
  isOptional: true,
  longText,
});
const anything = shape(Type.Unknown());
const command = shape(
  Type.Object({ command: Type.Array(Type.String()), stdin: Type.Optional(Type.String()) }),
  "stdin",
);
const order = (bytes: Buffer, of = anything, isDigested = false) => ({ pieces: [bytes], shape: of, isDigested });

test("a large body is parsed in a thread, and its long text comes as bytes", async () => {
  const large = new LargeJson();
  const stdin = "é\n".repeat(200_000);
  const bytes = bytesOf({ command: ["cat"], stdin });
  const middle = Buffer.from(bytes.subarray(100_000));
  const pieces = [bytes.subarray(0, 100_000), middle];
  const digest = createHash("sha256").update(bytes).digest("hex");
  const found = await large.parse("a", { pieces, shape: command, isDigested: true });
  assert.deepEqual(found, { body: { command: ["cat"], stdin: Buffer.from(stdin) }, digest });
  const short = await large.parse("a", order(bytesOf({ command: ["cat"], stdin: "short" }), command));
  assert.deepEqual(short, { body: { command: ["cat"], stdin: "short" }, digest: null });
  assert.deepEqual(await large.parse("a", order(Buffer.alloc(0))), { body: undefined, digest: null });
});

test("a large body is refused for what it says in the thread as anywhere", async () => {
  const large = new LargeJson();
  const hostile = Buffer.from(`[${"{},".repeat(100_000)}{}]`);
  await assert.rejects(large.parse("a", order(hostile)), refusedAs("invalid_body"));
  await assert.rejects(large.parse("a", order(Buffer.from("{"))), refusedAs("invalid_json"));
  await assert.rejects(large.parse("a", order(Buffer.from('["\\ud800"]'))), refusedAs("invalid_body"));
  await assert.rejects(large.parse("a", order(bytesOf({ command: 1 }), command)), /command: expected array/);
  const long = "x".repeat(1024 * 1024);
  await assert.rejects(
    large.parse("a", order(bytesOf({ command: [long, "x"] }), command)),
    refusedAs("body_too_large"),
  );
});

test("tenants whose large bodies wait take turns", async () => {
  const large = new LargeJson();
  const done: string[] = [];
  const ask = async (tenantId: string, name: string): Promise<void> => {
    await large.parse(tenantId, order(bytesOf([name])));
    done.push(name);
  };
  await Promise.all([ask("a", "a1"), ask("a", "a2"), ask("a", "a3"), ask("b", "b1")]);
  assert.deepEqual(done, ["a1", "a2", "b1", "a3"]);
});
