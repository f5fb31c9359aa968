/**
 * How a machine's network specification is parsed.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { allowsName, policyOf } from "./policy.ts";

const allow = (cidrs: string[], hosts: string[] = []) => policyOf({ mode: "allowCidrs", cidrs, hosts });

test("host bits are cleared, single addresses become networks, and IPv6 networks are skipped", () => {
  const { networks } = allow(
    ["10.1.2.3/16", "192.0.2.7", "0.0.0.0/0", "2001:db8::/32", "10.1.0.0/16"],
    ["203.0.113.9"],
  );
  assert.deepEqual(networks, ["10.1.0.0/16", "192.0.2.7/32", "0.0.0.0/0", "203.0.113.9/32"]);
});

test("an invalid network or host name is refused and quoted", () => {
  const networks = [
    "10.0.0.0/33",
    "10.0.0/8",
    "10.0.0.0/8/8",
    "10.0.0.0/",
    "x",
    "",
    "10.0.0.0/8 } ; flush ruleset",
    "::/129",
  ];
  for (const wrong of networks) assert.throws(() => allow([wrong]), { message: /is not a network/ }, wrong);
  for (const wrong of ["a b", "*", "*.", "a..b", "", "a/b", "a*.b", `${"a".repeat(64)}.test`, "a.test\n"]) {
    assert.throws(() => allow([], [wrong]), { message: /is not a host name/ }, wrong);
  }
});

test("a host allows its name in any notation, and a wildcard all names below it", () => {
  const policy = allow([], ["Example.com.", "*.sub.test", "localhost"]);
  for (const name of ["example.com", "a.sub.test", "b.a.sub.test", "localhost"])
    assert.ok(allowsName(policy, name), name);
  for (const name of ["www.example.com", "sub.test", ".sub.test", "badsub.test", "com", ""]) {
    assert.ok(!allowsName(policy, name), name);
  }
});

test("a wildcard allows nothing that a resolver would take for another name", () => {
  const policy = allow([], ["*.sub.test"]);
  for (const name of ["evil.test\0.sub.test", "evil\\.sub.test", "evil.test/.sub.test", "é.sub.test", "a..sub.test"])
    assert.ok(!allowsName(policy, name), name);
});

test("open and blocked machines have no lists, whatever else the specification says", () => {
  for (const mode of ["open", "blocked"] as const) {
    assert.deepEqual(policyOf({ mode, cidrs: ["10.0.0.0/8"], hosts: ["a.test"] }), { mode, networks: [], hosts: [] });
  }
});
