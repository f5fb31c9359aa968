/**
 * The owner of a directory, whatever its owner puts in its place.
 */
import assert from "node:assert/strict";
import { chownSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { directoryOwner, namedUser } from "./directory-owner.ts";

const asRoot = { skip: process.getuid?.() === 0 ? false : "only root can give a directory away" };

test("a directory's owner has the group of its entry, and a link leads to none", asRoot, (t) => {
  const above = mkdtempSync(join(tmpdir(), "flotilla-owner-"));
  t.after(() => rmSync(above, { recursive: true }));
  const daemon = namedUser("daemon");
  assert.ok(daemon !== null && daemon.uid > 0);
  const path = join(above, "data");
  assert.equal(directoryOwner(path), null);
  mkdirSync(path);
  assert.equal(directoryOwner(path), null, "it is root's");
  chownSync(path, daemon.uid, 0);
  assert.deepEqual(directoryOwner(path), daemon);
  chownSync(path, 65_432, 0);
  assert.deepEqual(directoryOwner(path), { uid: 65_432, gid: 65_432 }, "a user without an entry");
  symlinkSync(path, join(above, "link"));
  assert.equal(directoryOwner(join(above, "link")), null);
  writeFileSync(join(above, "file"), "");
  chownSync(join(above, "file"), daemon.uid, daemon.gid);
  assert.equal(directoryOwner(join(above, "file")), null);
});

test("a name without an entry names none", () => {
  assert.equal(namedUser("no-such-user"), null);
  assert.deepEqual(namedUser("root"), { uid: 0, gid: 0 });
});
