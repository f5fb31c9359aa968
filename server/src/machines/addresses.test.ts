/**
 * Which requests are a machine's, and which address a machine has.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { MachineAddresses } from "./addresses.ts";

const ID = `mach-${"a".repeat(32)}`;

test("without a domain machines are below /proxy of the server, where it listens or where it is said to be", () => {
  const addresses = new MachineAddresses({ machinesUrl: null, publicUrl: null });
  for (const [listens, shown] of [
    ["http://127.0.0.1:8080", "http://127.0.0.1:8080"],
    ["http://0.0.0.0:80", "http://127.0.0.1"],
    ["http://[::]:8080", "http://[::1]:8080"],
    ["http://192.0.2.7:8080", "http://192.0.2.7:8080"],
  ] as const) {
    addresses.listensAt(listens);
    assert.equal(addresses.urlOf({ id: ID, hostName: "web" }), `${shown}/proxy/${ID}/`);
  }
  const told = new MachineAddresses({ machinesUrl: null, publicUrl: "https://flotilla.example" });
  told.listensAt("http://127.0.0.1:8080");
  assert.equal(told.urlOf({ id: ID, hostName: "web" }), `https://flotilla.example/proxy/${ID}/`);
  assert.equal(told.routeOf("web.machines.example", "/"), undefined);
  // Its cookies are for encrypted connections only.
  assert.equal(told.routeOf("flotilla.example", `/proxy/${ID}/`)?.isEncrypted, true);
  assert.equal(addresses.routeOf("127.0.0.1", `/proxy/${ID}/`)?.isEncrypted, false);
});

test("paths that only begin like a machine's are none", () => {
  const addresses = new MachineAddresses({ machinesUrl: null, publicUrl: null });
  const prefixOf = (url: string): string | undefined => addresses.routeOf("127.0.0.1", url)?.prefix;
  for (const rest of ["", "/", "/a", "?x", "/?x"]) assert.equal(prefixOf(`/proxy/${ID}${rest}`), `/proxy/${ID}`);
  for (const url of [
    `/proxy/${ID}x`,
    `/proxy/${ID.toUpperCase()}/`,
    "/proxy/web/",
    "/proxy",
    `//proxy/${ID}/`,
    `/x/proxy/${ID}`,
  ])
    assert.equal(prefixOf(url), undefined, url);
});

test("one label below the domain is a machine's, in any spelling, and the server's own host is not", () => {
  const addresses = new MachineAddresses({
    machinesUrl: "http://machines.example:8080",
    publicUrl: "https://api.machines.example",
  });
  assert.equal(addresses.urlOf({ id: ID, hostName: "web" }), "http://web.machines.example:8080/");
  const nameOf = (host: string | undefined): string | undefined => addresses.routeOf(host, "/")?.name;
  for (const host of [
    "web.machines.example",
    "WEB.Machines.Example:9",
    "web.machines.example.",
    "web.machines.example.:8080",
  ])
    assert.equal(nameOf(host), "web", host);
  for (const host of [
    undefined,
    "",
    "machines.example",
    "a.b.machines.example",
    "-a.machines.example",
    "xmachines.example",
    "api.machines.example",
    "a_b.machines.example",
  ])
    assert.equal(nameOf(host), undefined, host);
});

test("without a domain, one label below localhost is a machine's or an app's, whatever the port", () => {
  const addresses = new MachineAddresses({ machinesUrl: null, publicUrl: null });
  addresses.listensAt("http://127.0.0.1:8080");
  const nameOf = (host: string): string | undefined => addresses.routeOf(host, "/")?.name;
  for (const host of ["web.localhost", "WEB.localhost:8080", "web.localhost."]) assert.equal(nameOf(host), "web", host);
  for (const host of ["localhost", "localhost:8080", "127.0.0.1:8080", "a.b.localhost", "web.example", "xlocalhost"])
    assert.equal(nameOf(host), undefined, host);
  const elsewhere = new MachineAddresses({ machinesUrl: "http://machines.example", publicUrl: null });
  assert.equal(elsewhere.routeOf("web.localhost", "/"), undefined);
});

test("a domain of an app leads to it, but not the server's own host or one below the domain for machines", () => {
  const addresses = new MachineAddresses({
    machinesUrl: "https://machines.example",
    publicUrl: "https://api.example:8443",
  });
  const nameOf = (host: string | undefined): string | undefined => addresses.routeOfDomain(host, () => true)?.name;
  assert.equal(nameOf("Shop.Example.:443"), "shop.example");
  assert.equal(addresses.routeOfDomain("shop.example", () => true)?.isEncrypted, true);
  assert.equal(
    addresses.routeOfDomain("shop.example", (name) => name !== "shop.example"),
    undefined,
  );
  for (const host of ["api.example", "API.example:1", "machines.example", "a.b.machines.example"]) {
    assert.equal(nameOf(host), undefined, host);
    assert.equal(addresses.isOwnHost(host), true, host);
  }
});
