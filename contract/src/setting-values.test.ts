/**
 * A value that a parser accepts is one that the program can use.
 */
import assert from "node:assert/strict";
import { BlockList, isIPv6 } from "node:net";
import { test } from "node:test";
import { parseNetworks } from "./setting-values.ts";

test("an address that the system does not know is refused with what was expected", () => {
  for (const value of [
    "010.0.0.0/8",
    "10.0.0.01",
    "10.0.0.256",
    "10.0.0",
    "1::2::3",
    "10.0.0.0/33",
    "::/129",
    "localhost",
  ])
    assert.throws(() => parseNetworks(value), /expected addresses or networks such as 10\.0\.0\.0\/8/, value);
});

test("each network that is accepted can be looked up", () => {
  const values = ["10.0.0.0/8", "0.0.0.0/0", "192.168.10.1", "fd00::/8", "::1", "::ffff:10.0.0.1", "2001:db8::1/128"];
  const networks = new BlockList();
  for (const network of parseNetworks(values.join(","))) {
    const [address = "", prefix = "32"] = network.split("/");
    networks.addSubnet(address, Number(prefix), isIPv6(address) ? "ipv6" : "ipv4");
  }
  assert(networks.check("192.168.10.1"));
});
