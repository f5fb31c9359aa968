/**
 * Which requests a browser sends for a page of another host, by what its headers say.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isFromOtherPage, type PageRequest } from "./page-origin.ts";

const HOST = "web.apps.example.com:8443";
const OTHER = "https://evil.apps.example.com:8443";

const isRefused = (headers: PageRequest["headers"], more: Partial<PageRequest> = {}): boolean =>
  isFromOtherPage({ headers: { host: HOST, ...headers }, method: "GET", by: "host", isUpgrade: false, ...more });

test("a request without headers of a browser is accepted", () => {
  for (const method of ["GET", "POST"]) assert.equal(isRefused({}, { method }), false);
});

test("an origin is compared by host, of either scheme, and by port where the host has one", () => {
  const own = [`https://${HOST}`, `http://${HOST}`, "https://WEB.apps.example.com:8443"];
  for (const origin of own) assert.equal(isRefused({ origin }), false, origin);
  const others = [
    ...[OTHER, "https://web.apps.example.com", "https://web.apps.example.com:1", "https://apps.example.com:8443"],
    ...["https://xweb.apps.example.com:8443", `ftp://${HOST}`, `chrome-extension://${HOST}`, HOST, "", "x"],
    ...[`https://${HOST}, ${OTHER}`, "null, null"],
  ];
  for (const origin of others) assert.equal(isRefused({ origin }), true, origin);
  const isOf = (host: string, origin: string): boolean => !isRefused({ host, origin });
  assert.ok(isOf("web.example", "https://web.example"));
  assert.ok(isOf("web.example:443", "https://web.example"));
  assert.ok(isOf("web.example", "https://web.example:8443"), "a proxy may remove the port");
  assert.ok(isOf("[::1]:8080", "http://[::1]:8080"));
  assert.ok(isOf("[::1]", "http://[::1]:8080"));
  assert.ok(!isOf("", "https://web.example"));
});

test("of the requests of other sites' pages only a link that is followed is accepted", () => {
  for (const site of ["same-site", "cross-site", "something-new"]) {
    const followed = { "sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" };
    assert.equal(isRefused(followed), false);
    assert.equal(isRefused(followed, { method: "HEAD" }), false);
    assert.equal(isRefused(followed, { method: "POST" }), true);
    assert.equal(isRefused(followed, { isUpgrade: true }), true);
    assert.equal(isRefused({ ...followed, origin: OTHER }), true);
    assert.equal(isRefused({ ...followed, "sec-fetch-dest": "iframe" }), true);
    assert.equal(isRefused({ ...followed, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image" }), true);
    assert.equal(isRefused({ "sec-fetch-site": site }), true);
  }
  for (const site of ["same-origin", "none"]) assert.equal(isRefused({ "sec-fetch-site": site }), false);
});

test("no origin is accepted from a host's own page without a referrer, and by path", () => {
  assert.equal(isRefused({ origin: "null" }), true);
  assert.equal(isRefused({ origin: "null", "sec-fetch-site": "cross-site" }), true);
  assert.equal(isRefused({ origin: "null", "sec-fetch-site": "same-origin" }, { method: "POST" }), false);
  const byPath = { by: "path" } as const;
  assert.equal(isRefused({ origin: "null" }, byPath), false);
  assert.equal(isRefused({ origin: "null", "sec-fetch-site": "cross-site" }, { ...byPath, isUpgrade: true }), false);
  assert.equal(isRefused({ "sec-fetch-site": "cross-site", "sec-fetch-dest": "image" }, byPath), false);
  assert.equal(isRefused({ "sec-fetch-site": "same-site", "sec-fetch-dest": "image" }, byPath), true);
  assert.equal(isRefused({ origin: OTHER }, byPath), true);
});
