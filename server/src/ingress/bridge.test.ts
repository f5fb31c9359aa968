/**
 * Which paths are the bridge's, and what of them is the guest's.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { bridgeRouteOf } from "./bridge.ts";

const ID = "mach-0123456789abcdef0123456789abcdef";

test("what follows the port is the guest's, byte for byte", () => {
  const cases = [
    ["", "/"],
    ["/", "/"],
    ["?a=1", "/?a=1"],
    ["/a//b/?c=%2f&d", "/a//b/?c=%2f&d"],
    ["/%", "/%"],
  ] as const;
  for (const [rest, path] of cases)
    assert.deepEqual(bridgeRouteOf(`/v1/machines/${ID}/connect/80${rest}`), { id: ID, port: "80", path });
});

test("segments may be escaped, and a percent sign that begins no escape is itself", () => {
  assert.deepEqual(bridgeRouteOf("/v1/%6dachines/a%2Fb/connec%74/8%30/x"), { id: "a/b", port: "80", path: "/x" });
  assert.deepEqual(bridgeRouteOf("/v1/machines/100%/connect/%zz"), { id: "100%", port: "%zz", path: "/" });
});

test("an id that no machine can have is empty", () => {
  for (const id of ["a%00b", "x".repeat(257)]) assert.equal(bridgeRouteOf(`/v1/machines/${id}/connect/80`)?.id, "");
});

test("other paths are not the bridge's", () => {
  const others = [
    "/",
    `/v1/machines/${ID}/connect`,
    `/v1/machines/${ID}/connect/`,
    `/v1/machines/${ID}/connect?x=/80`,
    `/v1/machines/${ID}/connect-token`,
    `/v1/machines//connect/80`,
    `/v1/machines/${ID}/files/connect/80`,
    `/v2/machines/${ID}/connect/80`,
    `//v1/machines/${ID}/connect/80`,
  ];
  for (const path of others) assert.equal(bridgeRouteOf(path), undefined, path);
});
