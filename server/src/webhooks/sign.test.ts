/**
 * Signatures against the published example of the standard.
 */
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import { makeWebhookSecret, signatureOf } from "./sign.ts";

test("a signature equals the published example of Standard Webhooks", () => {
  const signed = { id: "msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp: 1_614_265_330, body: '{"test": 2432232314}' };
  const signature = signatureOf(signed, ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]);
  assert.equal(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
});

test("two secrets give two signatures, each by its own key", () => {
  const secrets = [1, 2].map((value) => makeWebhookSecret((size) => Buffer.alloc(size, value)));
  const parts = signatureOf({ id: "a", timestamp: 1, body: "b" }, secrets).split(" ");
  const expected = [1, 2].map(
    (value) => `v1,${createHmac("sha256", Buffer.alloc(32, value)).update("a.1.b").digest("base64")}`,
  );
  assert.deepEqual(parts, expected);
});
