/**
 * The addresses a checked request connects to, recorded at its agent; no connection is made.
 */
import assert from "node:assert/strict";
import { Agent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { syncBuiltinESMExports } from "node:module";
import { BlockList, type LookupFunction, type NetConnectOpts } from "node:net";
import os from "node:os";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { AddressRefused, type CheckedRequest, sendChecked } from "./checked-request.ts";

class NotConnected extends Error {}

/** Records the address of each connection attempt and makes no connection. */
class WatchingAgent extends Agent {
  readonly looked: string[] = [];

  override createConnection(options: NetConnectOpts, done?: (error: Error | null, socket: Duplex) => void): undefined {
    const { lookup, host } = options as { readonly lookup: LookupFunction; readonly host: string };
    lookup(host, { all: true }, (_error, found) => {
      for (const item of typeof found === "string" ? [{ address: found }] : found) this.looked.push(item.address);
    });
    done?.(new NotConnected(), new Duplex());
  }
}

async function addressesOf(change: Partial<CheckedRequest> & { readonly answers: readonly string[] }) {
  const http = new WatchingAgent();
  let resolutions = 0;
  const resolve = async () => {
    resolutions += 1;
    return change.answers.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
  };
  const agents = { http, https: new HttpsAgent() };
  const signal = new AbortController().signal;
  const url = new URL("http://name.example:81/x");
  await assert.rejects(
    sendChecked({ url, headers: {}, allowedAddresses: "public", agents, resolve, signal, ...change }),
    NotConnected,
  );
  assert.equal(resolutions, 1);
  return http.looked;
}

test("a request connects only to the public addresses of a name that has both kinds", async () => {
  const answers = ["127.0.0.1", "198.41.0.4", "::1", "10.0.0.1", "2606:4700::1", "::ffff:127.0.0.1"];
  assert.deepEqual(await addressesOf({ answers }), ["198.41.0.4", "2606:4700::1"]);
});

test("a list allows its addresses besides the public ones", async () => {
  const allowedAddresses = new BlockList();
  allowedAddresses.addSubnet("10.0.0.0", 8, "ipv4");
  const answers = ["10.1.2.3", "127.0.0.1", "::1", "198.41.0.4"];
  assert.deepEqual(await addressesOf({ allowedAddresses, answers }), ["10.1.2.3", "198.41.0.4"]);
});

test("a public address that this host itself has is not connected to, unless it is listed", async (t) => {
  const own = {
    ...{ address: "198.41.0.4", netmask: "255.255.255.0", family: "IPv4" },
    ...{ mac: "", internal: false, cidr: null },
  } as const;
  const interfaces = t.mock.method(os, "networkInterfaces", () => ({ eth0: [own] }));
  syncBuiltinESMExports();
  t.after(() => {
    interfaces.mock.restore();
    syncBuiltinESMExports();
  });
  const answers = ["198.41.0.4", "198.41.0.5"];
  assert.deepEqual(await addressesOf({ answers }), ["198.41.0.5"]);
  const allowedAddresses = new BlockList();
  allowedAddresses.addAddress("198.41.0.4");
  assert.deepEqual(await addressesOf({ allowedAddresses, answers }), answers);
});

test("a request without restriction connects to whatever address the name resolves to", async () => {
  assert.deepEqual(await addressesOf({ allowedAddresses: "any", answers: ["127.0.0.1"] }), ["127.0.0.1"]);
});

const PRIVATE = [
  "http://127.0.0.1/",
  "http://2130706433/",
  "http://0x7f.1/",
  "http://017700000001/",
  "http://0.0.0.0/",
  "http://0/",
  "http://169.254.169.254/latest/meta-data",
  "http://[::1]/",
  "http://[::]/",
  "http://[::ffff:127.0.0.1]/",
  "http://[64:ff9b::7f00:1]/",
  "https://127.1/",
];
for (const text of PRIVATE)
  test(`${text} is refused when only public addresses are allowed`, async () => {
    const agents = { http: new WatchingAgent(), https: new HttpsAgent() };
    const resolve = () => assert.fail("an address is not resolved");
    const signal = new AbortController().signal;
    const request = { url: new URL(text), headers: {}, allowedAddresses: "public", agents, resolve, signal } as const;
    await assert.rejects(sendChecked(request), AddressRefused);
    assert.deepEqual(agents.http.looked, []);
  });

test("a name without a public address is refused", async () => {
  const agents = { http: new WatchingAgent(), https: new HttpsAgent() };
  const resolve = async () => [{ address: "192.168.0.1", family: 4 }];
  const signal = new AbortController().signal;
  const request = {
    url: new URL("http://a.example/"),
    headers: {},
    allowedAddresses: "public",
    agents,
    resolve,
    signal,
  } as const;
  await assert.rejects(sendChecked(request), AddressRefused);
});
