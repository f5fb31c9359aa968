/**
 * The address that a request is from, behind proxies and without.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { TrustedProxies } from "./caller-address.ts";

const proxies = new TrustedProxies(["127.0.0.0/8", "::1", "10.1.0.0/16"]);
const addressOf = (peer: string | undefined, header?: string) => proxies.callerOf(peer, header).address;

test("a stranger's forwarded header is not believed", () => {
  assert.deepEqual(proxies.callerOf("203.0.113.9", "198.51.100.1"), { address: "203.0.113.9", isProxy: false });
});

test("behind trusted proxies the last address that is none of theirs counts, whatever precedes it", () => {
  assert.deepEqual(proxies.callerOf("127.0.0.1", "1.1.1.1, 203.0.113.9"), { address: "203.0.113.9", isProxy: false });
  assert.equal(addressOf("127.0.0.1", "203.0.113.9, 10.1.2.3"), "203.0.113.9");
  assert.equal(addressOf("::ffff:127.0.0.1", "203.0.113.9"), "203.0.113.9");
});

test("a proxy that says nothing, or nonsense, is the caller itself and known as a proxy", () => {
  for (const header of [undefined, "", "unknown", "10.1.0.1", "203.0.113.9, garbage"])
    assert.deepEqual(proxies.callerOf("127.0.0.1", header), { address: "127.0.0.1", isProxy: true }, header);
  assert.deepEqual(proxies.callerOf(undefined, "203.0.113.9"), { address: "local", isProxy: true });
});

test("addresses of one IPv6 network of 64 bits are one caller", () => {
  const first = addressOf("2001:db8:0:1::5");
  assert.equal(first, "2001:db8:0:1::/64");
  assert.equal(addressOf("2001:0db8:0000:0001:ffff:1:2:3"), first);
  assert.notEqual(addressOf("2001:db8:0:2::5"), first);
  assert.equal(addressOf("::2"), "0:0:0:0::/64");
});
