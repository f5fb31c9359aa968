/**
 * Tokens, signatures, and the spellings of keys and ids.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { keyOf, machineOf, sandboxIdOf, sandboxOf } from "./ids.ts";
import { isSame, signatureOf, Tokens } from "./tokens.ts";

const ID = `i${"0".repeat(32)}`;
const grant = { key: `smk_${"k".repeat(43)}`, sandboxId: ID };

test("an access token has the key and the sandbox, and is the same each time", () => {
  const tokens = new Tokens(Buffer.alloc(32, 1));
  const token = tokens.seal(grant);
  assert.deepEqual(tokens.open(token), grant);
  assert.equal(token, tokens.seal(grant));
  assert.ok(!Buffer.from(token, "base64url").includes("smk_"));
});

test("a token that was changed, or of another secret, opens nothing", () => {
  const tokens = new Tokens(Buffer.alloc(32, 1));
  const token = tokens.seal(grant);
  assert.equal(new Tokens(Buffer.alloc(32, 2)).open(token), null);
  for (const at of [0, 20, token.length - 2]) {
    const changed = token.slice(0, at) + (token[at] === "A" ? "B" : "A") + token.slice(at + 1);
    assert.equal(tokens.open(changed), null, `changed at ${at}`);
  }
  for (const text of ["", "x", token.slice(0, 40), `${token}${token}${token}${token}`])
    assert.equal(tokens.open(text), null);
});

test("a signature is what E2B's clients make", () => {
  const signed = { path: "hello.txt", operation: "read", user: "user", expiration: null } as const;
  const made = signatureOf(signed, "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0");
  assert.equal(made, "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
  assert.ok(isSame(made, made) && !isSame(made, `${made}x`));
});

test("a key has two spellings, and a sandbox the id of its machine", () => {
  const bytes = Buffer.from("00ff".repeat(16), "hex");
  assert.equal(keyOf(`e2b_${bytes.toString("hex")}`), `smk_${bytes.toString("base64url")}`);
  assert.equal(keyOf("e2b_nothing"), "e2b_nothing");
  const machine = `mach-${"a".repeat(32)}`;
  assert.equal(machineOf(sandboxOf(machine)), machine);
  assert.equal(sandboxIdOf(`${sandboxOf(machine)}-client`), sandboxOf(machine));
  assert.equal(sandboxIdOf("debug_sandbox_id"), null);
});
