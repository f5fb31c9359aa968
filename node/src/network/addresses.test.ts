/**
 * That no two machines of a node, and no two nodes of a host, share an address or an interface name.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { USER_ID_FIRST, USERS_PER_RANGE } from "../host/user-ids.ts";
import { BLOCKS, blockOf, vethPairOf } from "./addresses.ts";

test("every user of a node has its own veth pair in the node's block, apart from its name server", () => {
  const block = blockOf(0x1abc);
  assert.deepEqual(
    [block.network, block.nameServer, block.hostEndPrefix],
    ["246.175.0.0/18", "246.175.32.0", "flo1abc-"],
  );
  const seen = new Set([block.nameServer]);
  for (let uid = USER_ID_FIRST + USERS_PER_RANGE * 7; uid < USER_ID_FIRST + USERS_PER_RANGE * 8; uid += 1) {
    const pair = vethPairOf(block, uid);
    assert.ok(pair !== null && pair.hostEnd.length <= 15);
    for (const word of [pair.hostEnd, pair.hostAddress, pair.machineAddress]) {
      assert.ok(!seen.has(word), word);
      seen.add(word);
    }
    for (const address of [pair.hostAddress, pair.machineAddress])
      assert.match(address, /^246\.175\.([012]?\d|3[01])\./);
  }
});

test("blocks are consecutive and stay in the reserved range", () => {
  assert.equal(blockOf(0).network, "240.0.0.0/18");
  assert.equal(blockOf(1).network, "240.0.64.0/18");
  assert.equal(blockOf(BLOCKS - 1).network, "247.255.192.0/18");
});

test("a user that does not belong to a machine has no uplink", () => {
  assert.equal(vethPairOf(blockOf(0), 65_533), null);
});
