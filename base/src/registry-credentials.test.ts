/**
 * Which credentials each registry gets, and that the content of a bad file never appears in an error.
 */
import assert from "node:assert/strict";
import { it } from "node:test";
import { parseCredentials } from "./registry-credentials.ts";

const auth = (pair: string) => ({ auth: Buffer.from(pair).toString("base64") });
const parse = (auths: object) => parseCredentials(JSON.stringify({ auths }));

it("a registry gets only the credentials of its exact host and port", () => {
  const credentials = parse({ "127.0.0.1:5000": auth("sailor:main:sail"), "https://ghcr.io/v2/": auth("a:b") });
  const expected = `Basic ${Buffer.from("sailor:main:sail").toString("base64")}`;
  assert.equal(credentials.basicFor("127.0.0.1:5000"), expected);
  assert.notEqual(credentials.basicFor("ghcr.io"), undefined);
  for (const host of ["127.0.0.1", "127.0.0.1:5001", "evil.ghcr.io", "registry-1.docker.io"])
    assert.equal(credentials.basicFor(host), undefined);
});

it("Docker Hub's three names are the same registry", () => {
  for (const key of ["https://index.docker.io/v1/", "docker.io", "registry-1.docker.io"])
    assert.notEqual(parse({ [key]: auth("a:b") }).basicFor("registry-1.docker.io"), undefined);
});

it("user name and password may be separate fields, and other entries are ignored", () => {
  const credentials = parse({
    a: { username: "u", password: "p" },
    b: { identitytoken: "t" },
    c: null,
    d: auth("none"),
  });
  assert.equal(credentials.basicFor("a"), `Basic ${Buffer.from("u:p").toString("base64")}`);
  for (const host of ["b", "c", "d"]) assert.equal(credentials.basicFor(host), undefined);
});

it("a file without auths is refused", () => {
  for (const text of ["{}", "[]", "null", '{"auths":[]}']) assert.throws(() => parseCredentials(text));
});
