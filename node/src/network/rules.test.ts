/**
 * The parts of the rules that depend on the host.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { blockOf, vethPairOf } from "./addresses.ts";
import { connectionsMax, namespaceSetup } from "./rules.ts";

test("many machines that use all their connections do not fill the host's connection table", () => {
  for (const ofHost of [65_536, 262_144, 1_048_576, 4_194_304]) {
    const one = connectionsMax(ofHost);
    assert.ok(one * 100 < ofHost, `${one} of ${ofHost}`);
  }
});

test("a machine's limit of connections has a minimum and a maximum", () => {
  assert.equal(connectionsMax(1), 256);
  assert.equal(connectionsMax(2 ** 30), 8192);
});

test("a machine's rules contain its limit of connections", () => {
  const block = blockOf(1);
  const { rules } = namespaceSetup(block, vethPairOf(block, 700_001), { uid: 700_001, connections: 321 });
  assert.match(rules, /ct count over 321 drop/);
});
