/**
 * Which versions of the link work together.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { InvalidMessage } from "./read.ts";
import { LINK_VERSION, LINK_VERSION_LOWEST, linkHeader, linkVersionsOf, versionRefusal } from "./version.ts";

const server = (version: number, lowest: number) => ({ name: "the server", versions: { version, lowest } });
const node = (version: number, lowest: number) => ({ name: "node a", versions: { version, lowest } });

test("a version works with the one before it, whichever side is newer", () => {
  assert.ok(LINK_VERSION_LOWEST <= Math.max(1, LINK_VERSION - 1));
  for (const version of [2, 3, 9]) {
    assert.equal(versionRefusal(server(version, version - 1), node(version - 1, version - 2)), null);
    assert.equal(versionRefusal(server(version - 1, version - 2), node(version, version - 1)), null);
    assert.equal(versionRefusal(server(version, version - 1), node(version, version - 1)), null);
  }
});

test("a refusal names both versions and the side to upgrade", () => {
  assert.equal(
    versionRefusal(server(4, 3), node(2, 1)),
    "the server has version 4 of the link between server and nodes and works with version 3 and later, " +
      "and node a has version 2: upgrade node a, one release at a time",
  );
  assert.match(versionRefusal(server(2, 1), node(4, 3)) ?? "", /and the server has version 2: upgrade the server/);
});

test("the header says both versions, and a request without it has version 1", () => {
  assert.deepEqual(linkVersionsOf(linkHeader({ version: 7, lowest: 6 })), { version: 7, lowest: 6 });
  assert.deepEqual(linkVersionsOf(undefined), { version: 1, lowest: 1 });
  for (const header of ["", "2", "1-", "a-b", "1-2-3", "-1-2"])
    assert.throws(() => linkVersionsOf(header), InvalidMessage);
});
