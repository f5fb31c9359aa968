/** The steps that every request takes, seen from outside. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { startTestServer } from "./support/server.ts";

const server = await startTestServer();

test("without a key every path answers 401 with an empty body, even one that does not exist", async () => {
  const nobody = server.client.withKey(null);
  for (const path of ["/v1/me", "/v1/nope", "/v1/machines/x", "/"]) {
    const answer = await nobody.get(path);
    assert.equal(answer.status, 401, path);
    assert.equal(answer.text, "");
    assert.equal(answer.headers.get("x-error-code"), "missing_key");
  }
});

test("health is public", async () => {
  const nobody = server.client.withKey(null);
  assert.equal((await nobody.get("/livez")).status, 200);
  assert.equal((await nobody.get("/readyz")).status, 200);
  assert.equal((await nobody.get("/health")).status, 200);
});

test("the admin key says who it is", async () => {
  const answer = await server.client.get("/v1/me");
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.headers.get("content-type"), "application/json");
  assert.equal(answer.json.tenantName, "default");
});
