/**
 * Which part of the gateway a request is for.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { routeOf } from "./route.ts";

const ID = `i${"0".repeat(32)}`;
const OTHER = `i${"1".repeat(32)}`;
const route = (given: Partial<Parameters<typeof routeOf>[0]>) =>
  routeOf({ host: undefined, sandboxId: undefined, port: undefined, target: "/", ...given });

test("a sandbox is named by the host, by headers, or by the path", () => {
  const expected = { kind: "sandbox", sandboxId: ID, port: 3000, path: "/a?b" };
  assert.deepEqual(route({ host: `3000-${ID}.localhost:1234`, target: "/a?b" }), expected);
  assert.deepEqual(route({ host: `3000-${ID}-x.example.com`, target: "/a?b" }), expected);
  assert.deepEqual(route({ sandboxId: ID, port: "3000", target: "/a?b" }), expected);
  assert.deepEqual(route({ target: `/3000-${ID}/a?b` }), expected);
  assert.deepEqual(route({ target: `/3000-${ID}?b` }), { ...expected, path: "/?b" });
});

test("a header does not lead from the host of one sandbox to another", () => {
  assert.equal(route({ host: `80-${ID}.example.com`, sandboxId: OTHER })?.kind, "sandbox");
  assert.deepEqual(route({ host: `80-${ID}.example.com`, sandboxId: OTHER, port: "81" }), {
    kind: "sandbox",
    sandboxId: ID,
    port: 80,
    path: "/",
  });
});

test("without a port a header leads to the sandbox's own service", () => {
  assert.deepEqual(route({ sandboxId: ID, target: "/health" }), {
    ...{ kind: "sandbox", sandboxId: ID, port: 49_983, path: "/health" },
  });
});

test("what names a sandbox or a port that cannot be one is refused", () => {
  for (const given of [
    { sandboxId: "../x" },
    { sandboxId: ID, port: "0" },
    { sandboxId: ID, port: "65536" },
    { sandboxId: ID, port: "x" },
    { host: "99999-abc.example.com" },
  ])
    assert.equal(route(given), null);
});

test("other requests are for the REST interface, and files without a sandbox for the one of their signature", () => {
  assert.deepEqual(route({ host: "localhost:3000", target: "/v2/sandboxes" }), { kind: "api", path: "/v2/sandboxes" });
  assert.deepEqual(route({ target: "/files?path=a" }), { kind: "unnamed", path: "/files?path=a" });
  assert.deepEqual(route({ target: "/filesystem.Filesystem/Stat" }), {
    kind: "api",
    path: "/filesystem.Filesystem/Stat",
  });
});
