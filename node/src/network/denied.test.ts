/**
 * Which denied connections become events, and the parsing of the kernel's output.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { DenialLimit, destinationsIn, refusalsIn } from "./denied.ts";

test("a destination is reported once in ten minutes", () => {
  const reported: string[] = [];
  const limit = new DenialLimit((detail) => reported.push(detail));
  for (const now of [0, 3_000, 599_000]) limit.denied("192.0.2.1:443 (tcp)", now);
  assert.deepEqual(reported, ["to 192.0.2.1:443 (tcp)"]);
  limit.denied("192.0.2.1:443 (tcp)", 600_000);
  assert.equal(reported.length, 2);
});

test("a machine that scans the internet gets ten events a minute, and a count of the rest", () => {
  const reported: string[] = [];
  const limit = new DenialLimit((detail) => reported.push(detail));
  for (let count = 0; count < 500; count += 1) limit.denied(`192.0.2.${count}`, count);
  assert.equal(reported.length, 10);
  limit.tick(59_000);
  assert.equal(reported.length, 10);
  limit.tick(60_001);
  assert.deepEqual(reported.slice(10), ["to 490 more destinations"]);
  limit.tick(200_000);
  assert.equal(reported.length, 11);
  limit.denied("192.0.2.600", 200_001);
  assert.equal(reported.length, 12);
});

test("the kernel's count of rejections is found by its name", () => {
  const snmp =
    "Ip: A B\nIp: 1 2\nIcmp: InMsgs OutDestUnreachs OutEchos\nIcmp: 5 17 3\nIcmpMsg: OutType3\nIcmpMsg: 17\n";
  assert.equal(refusalsIn(snmp), 17);
  assert.equal(refusalsIn(""), 0);
});

test("destinations are read from nft's list of the set", () => {
  const element = (...concat: unknown[]) => ({ elem: { val: { concat }, timeout: 60, expires: 58 } });
  const elem = [element("192.0.2.1", "tcp", 443), element("192.0.2.2", "icmp", 0), { odd: true }];
  const listing = JSON.stringify({ nftables: [{ metainfo: {} }, { set: { name: "denied", elem } }] });
  assert.deepEqual(destinationsIn(listing), ["192.0.2.1:443 (tcp)", "192.0.2.2 (icmp)"]);
  assert.deepEqual(destinationsIn(JSON.stringify({ nftables: [{ set: { name: "denied" } }] })), []);
});
