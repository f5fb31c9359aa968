/**
 * The codec on both sides: TypeScript and C decode the same vectors, give the same result for the same bytes,
 * and agree on every constant of the protocol. The C side runs with sanitizers; its decoder is fuzzed for
 * some seconds if clang exists.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import * as bulk from "@flotilla/contract/guest/bulk";
import * as frame from "@flotilla/contract/guest/frame";
import {
  FieldReader,
  FieldWriter,
  GUEST_FIELDS,
  GUEST_FILE_OPERATIONS,
  GUEST_MESSAGE_BYTES_MAX,
  GUEST_STREAMS,
  type GuestField,
  HELLO_MAGIC,
  HELLO_NONCE_BYTES,
  KILLED_PROGRAM_BYTES_MAX,
} from "@flotilla/contract/guest/messages";
import fc from "fast-check";
import { build, GUEST_DIRECTORY } from "./agent.ts";

const FUZZ_SECONDS = 6;

type Hex = string | readonly (string | { readonly repeat: string; readonly times: number })[];

interface FrameVector {
  readonly name: string;
  readonly bytes: Hex;
  readonly frames: readonly { type: number; flags: number; channel: number; payload: Hex }[];
  readonly isIncomplete?: boolean;
  readonly isRefused?: boolean;
}

type FieldValue =
  | { readonly field: GuestField; readonly kind: "u32" | "u64"; readonly value: number }
  | { readonly field: GuestField; readonly kind: "text" | "bytes"; readonly value: string };

interface FieldVector {
  readonly name: string;
  readonly bytes: Hex;
  readonly fields?: readonly FieldValue[];
  readonly isRefused?: boolean;
}

function expand(hex: Hex): string {
  if (typeof hex === "string") return hex;
  return hex.map((part) => (typeof part === "string" ? part : part.repeat.repeat(part.times))).join("");
}

function load<Vector>(name: string): readonly Vector[] {
  return JSON.parse(readFileSync(new URL(`../../contract/vectors/${name}.json`, import.meta.url), "utf8"));
}

const frameVectors = load<FrameVector>("frames");
const fieldVectors = load<FieldVector>("fields");

/** The result of decoding, as lines that both sides can produce. */
function decodeFrames(bytes: Buffer, chunkBytes: number): string[] {
  const decoder = new frame.FrameDecoder();
  const lines: string[] = [];
  try {
    for (let at = 0; at < bytes.length; at += chunkBytes) {
      decoder.push(bytes.subarray(at, at + chunkBytes), ({ type, flags, channel, payload }) => {
        lines.push(`frame ${type} ${flags} ${channel} ${payload.length === 0 ? "-" : payload.toString("hex")}`);
      });
    }
  } catch (error) {
    assert(error instanceof frame.GuestProtocolError, String(error));
    return [...lines, "refused"];
  }
  return [...lines, decoder.hasRest ? "incomplete" : "ok"];
}

function decodeInC(kind: "frames" | "fields", inputs: readonly string[]): string[][] {
  const run = spawnSync(join(build("sanitized"), "vectors"), [kind], {
    input: inputs.map((hex) => `${hex}\n`).join(""),
    encoding: "utf8",
    maxBuffer: 64 * 1024 * 1024,
  });
  assert.equal(run.status, 0, run.stderr);
  const results: string[][] = [[]];
  for (const line of run.stdout.trimEnd().split("\n")) {
    results.at(-1)?.push(line);
    if (!line.startsWith("f")) results.push([]);
  }
  return results.slice(0, -1);
}

function expectedFrames(vector: FrameVector): string[] {
  const lines = vector.frames.map(
    ({ type, flags, channel, payload }) => `frame ${type} ${flags} ${channel} ${expand(payload) || "-"}`,
  );
  return [...lines, vector.isRefused ? "refused" : vector.isIncomplete ? "incomplete" : "ok"];
}

test("TypeScript reads the frame vectors, whole, byte by byte and in odd chunks", () => {
  for (const vector of frameVectors) {
    const bytes = Buffer.from(expand(vector.bytes), "hex");
    for (const chunkBytes of [bytes.length || 1, 1, 7]) {
      assert.deepEqual(decodeFrames(bytes, chunkBytes), expectedFrames(vector), `${vector.name} by ${chunkBytes}`);
    }
  }
});

test("C reads the frame vectors", () => {
  const results = decodeInC(
    "frames",
    frameVectors.map((vector) => expand(vector.bytes)),
  );
  frameVectors.forEach((vector, index) => assert.deepEqual(results[index], expectedFrames(vector), vector.name));
});

test("the frame vectors are what the TypeScript encoder writes", () => {
  for (const vector of frameVectors) {
    if (vector.isRefused || vector.isIncomplete || vector.frames.length !== 1) continue;
    const [first] = vector.frames;
    assert(first);
    const encoded = frame.encodeFrame(first, Buffer.from(expand(first.payload), "hex"));
    assert.equal(encoded.toString("hex"), expand(vector.bytes), vector.name);
  }
});

test("both decoders give the same result for any bytes", () => {
  const piece = fc.oneof(
    fc.uint8Array({ maxLength: 20 }),
    fc.constant(new Uint8Array(9)),
    fc
      .record({
        type: fc.integer({ min: 0, max: 255 }),
        flags: fc.integer({ min: 0, max: 2 }),
        channel: fc.nat(),
        payload: fc.uint8Array({ maxLength: 40 }),
      })
      .map(({ payload, ...header }) => frame.encodeFrame(header, payload)),
  );
  const inputs = fc.sample(fc.array(piece, { maxLength: 6 }), 2000).map((pieces) => Buffer.concat(pieces));
  const results = decodeInC(
    "frames",
    inputs.map((bytes) => bytes.toString("hex")),
  );
  inputs.forEach((bytes, index) => {
    assert.deepEqual(decodeFrames(bytes, bytes.length || 1), results[index], bytes.toString("hex"));
  });
});

function written(fields: readonly FieldValue[]): Buffer {
  const writer = new FieldWriter();
  for (const field of fields) {
    if (field.kind === "u32") writer.u32(field.field, field.value);
    else if (field.kind === "u64") writer.u64(field.field, field.value);
    else if (field.kind === "text") writer.text(field.field, field.value);
    else writer.bytes(field.field, Buffer.from(String(field.value), "hex"));
  }
  return writer.end();
}

test("the field vectors are what TypeScript encodes, and what it decodes or refuses", () => {
  for (const vector of fieldVectors) {
    const bytes = Buffer.from(expand(vector.bytes), "hex");
    if (vector.isRefused) {
      assert.throws(() => new FieldReader(bytes), frame.GuestProtocolError, vector.name);
      continue;
    }
    assert.equal(written(vector.fields ?? []).toString("hex"), bytes.toString("hex"), vector.name);
    const fields = vector.fields ?? [];
    if (new Set(fields.map((field) => field.field)).size < fields.length) {
      assert.throws(() => new FieldReader(bytes), /appears twice/, vector.name);
      continue;
    }
    const reader = new FieldReader(bytes);
    for (const field of fields) {
      if (field.kind === "u32") assert.equal(reader.u32(field.field), field.value, vector.name);
      if (field.kind === "u64") assert.equal(reader.u64(field.field), field.value, vector.name);
      if (field.kind === "text") assert.equal(reader.text(field.field), field.value, vector.name);
    }
  }
});

test("C reads the field vectors", () => {
  const results = decodeInC(
    "fields",
    fieldVectors.map((vector) => expand(vector.bytes)),
  );
  fieldVectors.forEach((vector, index) => {
    const lines = results[index] ?? [];
    assert.equal(lines.at(-1), vector.isRefused ? "refused" : "ok", vector.name);
    if (vector.isRefused) return;
    assert.equal(lines.length - 1, vector.fields?.length, vector.name);
    vector.fields?.forEach((field, at) => {
      const parts = lines[at]?.split(" ") ?? [];
      assert.equal(parts[1], String(GUEST_FIELDS[field.field]), vector.name);
      if (field.kind === "bytes") assert.equal(parts[2], field.value, vector.name);
      else if (field.kind === "text") {
        assert(parts.includes(`text=${Buffer.from(field.value).toString("hex") || "-"}`), `${vector.name}: ${parts}`);
      } else assert(parts.includes(`${field.kind}=${field.value}`), `${vector.name}: ${parts}`);
    });
  });
});

test("a text with a zero byte in it, or without one at its end, is invalid", () => {
  for (const value of ["a\0b\0", "ab", ""]) {
    const bytes = new FieldWriter().bytes("message", Buffer.from(value)).end();
    assert.throws(() => new FieldReader(bytes).text("message"), frame.GuestProtocolError);
  }
  assert.throws(() => new FieldWriter().text("argument", "a\0b"), RangeError);
});

test("a message larger than a frame is split into several, and one over the limit is refused", () => {
  const message = Buffer.alloc(3 * frame.FRAME_PAYLOAD_BYTES_MAX - 5, 7);
  const parts: frame.Frame[] = [];
  new frame.FrameDecoder().push(frame.encodeMessage({ type: 16, channel: 9 }, message), (part) => parts.push(part));
  assert.deepEqual(
    parts.map(({ flags, channel }) => [flags, channel]),
    [
      [1, 9],
      [1, 9],
      [0, 9],
    ],
  );
  assert(Buffer.concat(parts.map((part) => part.payload)).equals(message));
  assert.throws(
    () => frame.encodeMessage({ type: 16, channel: 9 }, Buffer.alloc(frame.MESSAGE_BYTES_MAX + 1)),
    RangeError,
  );
});

/** `FRAME_HEADER_BYTES` and `fieldHostname` from a camel-case name. */
function defineName(prefix: string, name: string): string {
  return `${prefix}_${name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`;
}

test("every constant of the protocol is the same in C and TypeScript", () => {
  const header = readFileSync(join(GUEST_DIRECTORY, "protocol.h"), "utf8");
  const inC = new Map(
    [...header.matchAll(/^#define (\w+) (?:(0x[0-9a-f]+|\d+)|"(\w+)")$/gm)].map(([, name, number, text]) => [
      name,
      number === undefined ? text : Number(number),
    ]),
  );
  const expected = new Map<string, string | number>();
  for (const [name, value] of Object.entries({ ...frame, ...bulk })) {
    if (/^[A-Z_]+$/.test(name) && typeof value === "number") expected.set(name, value);
  }
  expected.delete("FRAME_PADDING_BYTES"); // only the host sends it
  for (const [name, value] of Object.entries(frame.HOST_FRAMES)) expected.set(defineName("HOST_FRAME", name), value);
  for (const [name, value] of Object.entries(frame.GUEST_FRAMES)) expected.set(defineName("GUEST_FRAME", name), value);
  for (const [name, value] of Object.entries(GUEST_FIELDS)) expected.set(defineName("FIELD", name), value);
  for (const [name, value] of Object.entries(GUEST_STREAMS)) expected.set(defineName("STREAM", name), value);
  for (const [name, value] of Object.entries(GUEST_FILE_OPERATIONS)) expected.set(defineName("FILE", name), value);
  expected.set("HELLO_MAGIC", HELLO_MAGIC.toString());
  expected.set("HELLO_NONCE_BYTES", HELLO_NONCE_BYTES);
  expected.set("GUEST_MESSAGE_BYTES_MAX", GUEST_MESSAGE_BYTES_MAX);
  expected.set("KILLED_PROGRAM_BYTES_MAX", KILLED_PROGRAM_BYTES_MAX);
  expected.set("FIELD_HEADER_BYTES", 5);
  assert.deepEqual(new Map([...inC].sort()), new Map([...expected].sort()));
});

test("the C decoder survives fuzzing", (context) => {
  if (spawnSync("clang", ["--version"]).status !== 0) {
    context.skip("clang is not installed, and only it has libFuzzer");
    return;
  }
  const corpus = mkdtempSync(join(tmpdir(), "flotilla-guest-fuzz-"));
  try {
    [...frameVectors, ...fieldVectors].forEach((vector, index) => {
      writeFileSync(join(corpus, `vector-${index}`), Buffer.from(expand(vector.bytes), "hex"));
    });
    const limits = [`-max_total_time=${FUZZ_SECONDS}`, "-max_len=4096", "-timeout=5", "-rss_limit_mb=1024"];
    const run = spawnSync(join(build("fuzz"), "fuzz"), [...limits, `-artifact_prefix=${corpus}/`, corpus], {
      encoding: "utf8",
      timeout: (FUZZ_SECONDS + 60) * 1000,
    });
    assert.equal(run.status, 0, run.stderr);
    const runs = Number(/Done (\d+) runs/.exec(run.stderr)?.[1]);
    assert(runs > 1000, `only ${runs} runs`);
    context.diagnostic(`${runs} inputs in ${FUZZ_SECONDS} s`);
  } finally {
    rmSync(corpus, { recursive: true, force: true });
  }
});
