/**
 * A value that a parser accepts is one that the program can use.
 */
import assert from "node:assert/strict";
import { BlockList, isIPv6 } from "node:net";
import { test } from "node:test";
import { parseBlockedNetworks, parseMirrors, parseNetworks, parseRegistries } from "./setting-values.ts";

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

test("private means all private networks of IPv4, beside others", () => {
  assert.deepEqual(parseBlockedNetworks("none"), []);
  const blocked = new BlockList();
  for (const network of parseBlockedNetworks("203.0.113.0/24, private")) {
    const [address = "", prefix] = network.split("/");
    blocked.addSubnet(address, Number(prefix));
  }
  for (const address of ["10.1.2.3", "172.31.0.1", "192.168.1.1", "100.127.0.1", "203.0.113.9"])
    assert(blocked.check(address), address);
  for (const address of ["11.0.0.1", "172.32.0.1", "192.169.0.1", "100.128.0.1"])
    assert(!blocked.check(address), address);
  assert.throws(() => parseBlockedNetworks("public"), /expected addresses or networks/);
});

test("a registry that no image reference can name is refused, and the others are named as references name them", () => {
  for (const value of [
    "http://registry.lan:5000",
    "registry.lan/team",
    "*.lan",
    "registry.lan:*",
    "registry.lan:99999",
  ])
    assert.throws(() => parseRegistries(value), /expected registries such as registry\.lan:5000.*; got /, value);
  assert.deepEqual(parseRegistries("Registry.LAN:5000, [::1]:5000"), ["registry.lan:5000", "[::1]:5000"]);
  assert.deepEqual([...parseMirrors("Index.Docker.io=mirror.lan")], [["docker.io", "mirror.lan"]]);
});

test("a mirror with another scheme than http or https is refused", () => {
  for (const mirror of ["ftp://mirror.lan", "http:/mirror.lan:5000", "HTTP://mirror.lan"])
    assert.throws(() => parseMirrors(`docker.io=${mirror}`), /expected registry=http:\/\/host:port/, mirror);
  for (const mirror of ["http://127.0.0.1:5000", "https://mirror.lan", "mirror.lan:5000/hub", "[::1]:5000"])
    assert.deepEqual([...parseMirrors(`docker.io=${mirror}`)], [["docker.io", mirror]]);
});
