/**
 * How the challenge of another registry is read, and its token.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { challengeFrom, tokenFrom } from "./challenge.ts";

const SECURE = new URL("https://registry.example/v2/");

test("a challenge names the token server", () => {
  const found = challengeFrom('Bearer realm="https://auth.example/token",service="registry.example"', SECURE);
  assert.ok(found?.kind === "bearer");
  assert.deepEqual([found.realm.href, found.service], ["https://auth.example/token", "registry.example"]);
  assert.deepEqual(challengeFrom('Basic realm="x"', SECURE), { kind: "basic" });
});

test("a password is never sent in the clear where the registry uses TLS", () => {
  assert.equal(challengeFrom('Bearer realm="http://auth.example/token"', SECURE), null);
  assert.notEqual(challengeFrom('Bearer realm="http://127.0.0.1/token"', new URL("http://127.0.0.1/v2/")), null);
  for (const realm of ["", "file:///etc/passwd", "ftp://x/"])
    assert.equal(challengeFrom(`Bearer realm="${realm}"`, new URL("ftp://x/")), null, realm);
});

test("whatever is answered is a challenge or none, and a token is one line of text", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      challengeFrom(text, SECURE);
      const got = tokenFrom(text);
      return got === null || /^[\x21-\x7e]+$/.test(got.token);
    }),
  );
  assert.deepEqual(tokenFrom('{"access_token":"a","expires_in":1e9}'), { token: "a", seconds: 3_600 });
  assert.deepEqual(tokenFrom('{"token":"t","access_token":"a"}'), { token: "t", seconds: 60 });
  for (const text of ["{}", "null", "[]", '{"token":"a\\nb"}', '{"token":5}'])
    assert.equal(tokenFrom(text), null, text);
});
