/**
 * Which connections others could read.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { wayOf } from "./way.ts";

const way = (peer: string | undefined, isFromProxy: boolean, forwardedFor?: string, forwardedProto?: string) =>
  wayOf({ peer, isFromProxy, forwardedFor, forwardedProto });

test("a request of this host is local, and one through a proxy is what the proxy says", () => {
  for (const peer of ["127.0.0.1", "::1", "::ffff:127.0.0.1", undefined]) assert.equal(way(peer, false), "local");
  assert.equal(way("192.0.2.1", false), "open");
  assert.equal(way("192.0.2.1", true, "203.0.113.9", "https"), "encrypted");
  assert.equal(way("127.0.0.1", true, "203.0.113.9", "https"), "encrypted");
  assert.equal(way("127.0.0.1", true, "127.0.0.1", "http"), "local");
});

test("a proxy of this host that decrypts nothing does not make its callers local", () => {
  assert.equal(way("127.0.0.1", true, "203.0.113.9", "http"), "open");
  assert.equal(way("127.0.0.1", false, "203.0.113.9", "https"), "open");
  assert.equal(way("127.0.0.1", true, "203.0.113.9, 127.0.0.1"), "open");
  assert.equal(way("192.0.2.1", false, undefined, "https"), "open");
  assert.equal(way("127.0.0.1", false, "127.0.0.1.example"), "open");
});
