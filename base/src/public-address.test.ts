/**
 * Which addresses count as public, with every notation of those that do not.
 */
import assert from "node:assert/strict";
import { it } from "node:test";
import { isPublicAddress } from "./public-address.ts";

const PUBLIC = ["1.1.1.1", "8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "223.255.255.255", "2606:4700::1"];
for (const address of PUBLIC) it(`${address} is public`, () => assert.ok(isPublicAddress(address)));

const OTHERS = [
  "127.0.0.1",
  "127.255.255.254",
  "0.0.0.0",
  "10.1.2.3",
  "172.16.0.1",
  "172.31.255.255",
  "192.168.1.1",
  "169.254.169.254",
  "100.64.0.1",
  "100.127.255.255",
  "192.0.0.2",
  "198.18.0.1",
  "224.0.0.1",
  "240.1.2.3",
  "255.255.255.255",
  "::",
  "::1",
  "::ffff:127.0.0.1",
  "::ffff:8.8.8.8",
  "::127.0.0.1",
  "64:ff9b::7f00:1",
  "64:ff9b:1::1",
  "fe80::1",
  "fe80::1%lo",
  "2606:4700::1%eth0",
  "fc00::1",
  "fd12:3456::1",
  "ff02::1",
  "2002:7f00:1::",
  "2001::1",
  "2001:db8::1",
  "3fff::1",
  "localhost",
  "2130706433",
  "",
];
for (const address of OTHERS) it(`${address || "nothing"} is not public`, () => assert.ok(!isPublicAddress(address)));
