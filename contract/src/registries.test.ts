/**
 * Which registries the operator's list allows, and which addresses they may have.
 */
import assert from "node:assert/strict";
import { it } from "node:test";
import { authorityOf, parseAllowedRegistries, parseRegistry, RegistryList, type RegistryRules } from "./registries.ts";

const rules = (change: Partial<RegistryRules>): RegistryList =>
  new RegistryList({ allowed: null, mirrors: new Map(), insecure: [], ...change });
const allowing = (text: string): RegistryList => rules({ allowed: parseAllowedRegistries(text) });

it("by default, well-known registries may have public addresses only, and no others are allowed", () => {
  const list = rules({});
  for (const name of ["docker.io", "ghcr.io", "europe-docker.pkg.dev", "registry.k8s.io"])
    assert.equal(list.grant(name), "public", name);
  for (const name of ["127.0.0.1:5000", "localhost", "evil.example", "pkg.dev", "ghcr.io:22", "ghcr.io.evil.example"])
    assert.equal(list.grant(name), null, name);
});

it("a star allows every registry and every port, at public addresses only", () => {
  const list = allowing("*");
  for (const name of ["evil.example", "10.0.0.1:8080", "[::1]:5000"]) assert.equal(list.grant(name), "public", name);
});

it("an entry with a full host may have any address, and only its port", () => {
  const list = allowing("Registry.LAN:5000, 127.0.0.1:*, [::1]:5000, hub.example");
  for (const name of ["registry.lan:5000", "127.0.0.1:1", "127.0.0.1", "[::1]:5000", "hub.example", "hub.example:443"])
    assert.equal(list.grant(name), "listed", name);
  for (const name of ["registry.lan", "registry.lan:5001", "2130706433:5000", "[::1]", "hub.example:80", "docker.io"])
    assert.equal(list.grant(name), null, name);
});

it("registries that have a mirror, mirrors and insecure registries count as entries of the operator", () => {
  const mirrors = new Map([
    ["docker.io", "http://127.0.0.1:5000/"],
    ["quay.io", "cache.lan"],
  ]);
  const list = rules({ mirrors, insecure: ["plain.lan:80"] });
  for (const name of ["docker.io", "127.0.0.1:5000", "quay.io", "cache.lan", "plain.lan:80"])
    assert.equal(list.grant(name), "listed", name);
  assert.equal(list.grant("127.0.0.1:5001"), null);
});

it("all names of Docker Hub are one entry", () => {
  assert.equal(allowing("index.docker.io").grant("docker.io"), "listed");
});

it("an entry that is not a registry stops the start", () => {
  for (const text of ["https://ghcr.io", "ghcr.io/team", "a b", "ghcr.io:99999", "gh*r.io", "*:5000x"])
    assert.throws(() => parseAllowedRegistries(text), /expected registries/, text);
});

it("one registry is named as in references, and a pattern does not name one", () => {
  assert.equal(parseRegistry("Registry.LAN"), "registry.lan");
  assert.equal(parseRegistry("registry.lan:65535"), "registry.lan:65535");
  assert.equal(parseRegistry("registry-1.docker.io"), "docker.io");
  for (const text of ["*", "*.lan", "registry.lan:*", "*.lan:5000"])
    assert.throws(() => parseRegistry(text), /expected one host/, text);
});

it("two URLs have one authority exactly when they reach one server", () => {
  const of = (text: string): string => authorityOf(new URL(text));
  assert.equal(of("https://a.example/x"), of("https://a.example:443/"));
  assert.notEqual(of("http://a.example/x"), of("https://a.example/"));
  assert.equal(of("http://a.example"), "a.example:80");
  assert.equal(of("http://2130706433:1"), "127.0.0.1:1");
});
