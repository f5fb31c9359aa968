/**
 * Which fleet a node joins, and what it keeps of it.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, X509Certificate } from "node:crypto";
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { temporaryDirectory } from "../../test/support/in-process.ts";
import { Membership } from "./membership.ts";

/** A certificate of an authority. */
function authority(name: string): string {
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "/dev/null"];
  return execFileSync("openssl", ["req", "-x509", ...key, "-days", "2", "-subj", `/CN=${name}`], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
}

const tokenOf = (certificate: string): string =>
  `join_${"0".repeat(12)}_${"x".repeat(43)}${createHash("sha256").update(new X509Certificate(certificate).raw).digest("hex")}`;

test("a node joins only the fleet that its token names, and keeps what it learns for itself", async () => {
  await using directory = await temporaryDirectory();
  const [own, other] = [authority("own"), authority("other")];
  const listeners = [{ id: "server-1", addresses: ["127.0.0.1:1"] }];
  const facts = { certificate: own, authorities: [own], listeners, ingresses: [] };
  const membership = await Membership.open(directory.path, "node-1", tokenOf(own));
  assert.ok(membership !== null);
  await assert.rejects(membership.accept({ ...facts, authorities: [other] }, tokenOf(own)), /belongs to another fleet/);
  assert.equal(membership.identity, null);
  assert.deepEqual(await readdir(directory.path), ["node.key"]);
  await membership.accept({ ...facts, authorities: [other, own] }, tokenOf(own));
  await membership.accept({ ...facts, certificate: null, listeners: [] }, null);
  const read = await Membership.open(directory.path, "node-1", null);
  for (const each of [membership, read]) {
    assert.deepEqual([each?.identity?.cert, each?.identity?.ca], [own, [own]]);
    assert.deepEqual(each?.listeners, listeners, "an answer without listeners leaves the known ones");
  }
  for (const name of ["node.key", "membership.json"])
    assert.equal((await stat(join(directory.path, name))).mode & 0o777, 0o600, name);
  await assert.rejects(Membership.open(directory.path, "node-2", null), /belongs to node node-1 of a fleet/);
});
