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
