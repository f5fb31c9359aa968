/**
 * Which requests a session's cookie counts in.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sessionCookie, sessionTokenOf } from "./session-cookie.ts";

const cookie = "a=b; flotilla_console=smb_1; c=d";
const host = "127.0.0.1:8080";

test("a cookie counts in requests of the console's own pages only", () => {
  const own: readonly Record<string, string>[] = [
    { host, cookie, "sec-fetch-site": "same-origin" },
    { host, cookie, "sec-fetch-site": "same-origin", origin: "http://127.0.0.1:8080" },
    { host, cookie, "x-flotilla-console": "1" },
    { host: "console.example.com", cookie, "sec-fetch-site": "same-origin", origin: "https://console.example.com" },
  ];
  for (const headers of own) assert.equal(sessionTokenOf(headers, false), "smb_1", JSON.stringify(headers));
  const others: readonly Record<string, string>[] = [
    { host, cookie },
    { host, cookie, "sec-fetch-site": "same-site" },
    { host, cookie, "sec-fetch-site": "cross-site" },
    { host, cookie, "sec-fetch-site": "none" },
    { host, cookie, "sec-fetch-site": "same-site", "x-flotilla-console": "1" },
    { host, cookie, "sec-fetch-site": "same-origin", origin: "null" },
    { host, cookie, "x-flotilla-console": "1", origin: "http://127.0.0.1:9090" },
    { host, cookie, "x-flotilla-console": "1", origin: "http://page.localhost:8080" },
    { host, cookie, "x-flotilla-console": "1", origin: "ftp://127.0.0.1:8080" },
  ];
  for (const headers of others) assert.equal(sessionTokenOf(headers, false), undefined, JSON.stringify(headers));
});

test("a socket needs the origin, which browsers always send with one", () => {
  assert.equal(sessionTokenOf({ host, cookie, origin: "http://127.0.0.1:8080" }, true), "smb_1");
  assert.equal(sessionTokenOf({ host, cookie, "sec-fetch-site": "same-origin" }, true), undefined);
  assert.equal(sessionTokenOf({ host, cookie, "x-flotilla-console": "1" }, true), undefined);
  assert.equal(sessionTokenOf({ host, cookie, origin: "http://page.localhost:8080" }, true), undefined);
});

test("the cookie that only https can set counts before one that a neighbour may have set", () => {
  const headers = { host, "sec-fetch-site": "same-origin" };
  const both = { ...headers, cookie: "flotilla_console=planted; __Host-flotilla_console=smb_own" };
  assert.equal(sessionTokenOf(both, false), "smb_own");
  assert.equal(sessionTokenOf({ ...headers, cookie: "other=flotilla_console=1" }, false), undefined);
});

test("scripts cannot read the cookie, and only https gives it to every path", () => {
  assert.equal(
    sessionCookie("smb_1", { isEncrypted: false, maxAgeSeconds: 60 }),
    "flotilla_console=smb_1; Path=/v1; Max-Age=60; HttpOnly; SameSite=Strict",
  );
  assert.equal(
    sessionCookie("smb_1", { isEncrypted: true, maxAgeSeconds: 60 }),
    "__Host-flotilla_console=smb_1; Path=/; Secure; Max-Age=60; HttpOnly; SameSite=Strict",
  );
});
