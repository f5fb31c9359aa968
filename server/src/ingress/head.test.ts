/**
 * The forwarded and returned parts of heads, for heads that somebody made to do harm.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { answerHead, faultOfAnswer, requestHead, trailersOf, withoutCredential } from "./head.ts";

const KEY = `smk_${"k".repeat(43)}`;
const CONNECT_TOKEN = `smc_${"c".repeat(43)}`;
const SHARE_TOKEN = `sms_${"s".repeat(43)}`;
const FACTS = {
  prefix: "",
  remoteAddress: "192.0.2.1",
  isFromProxy: true,
  isEncrypted: false,
  upgradeTo: null,
  isKept: false,
} as const;

function valuesOf(head: readonly string[], name: string): readonly string[] {
  return head.flatMap((item, at) => (at % 2 === 0 && item.toLowerCase() === name ? [head[at + 1] ?? ""] : []));
}

test("fields after a body are passed on unless they frame, route or authorize, or hold a credential", () => {
  const passed = [
    ["grpc-status", "0"],
    ["X-Sum", "1"],
    ["x-sum", "2"],
  ] as const;
  const dropped = [
    ["Content-Length", "3"],
    ["transfer-encoding", "chunked"],
    ["Host", "evil.example"],
    ["set-cookie", "a=1"],
    ["Authorization", "Basic x"],
    ["x-forwarded-for", "192.0.2.9"],
    ["x-key", KEY],
    ["x-line", "a\nb"],
    ["no name", "x"],
  ] as const;
  assert.deepEqual(trailersOf([...passed, ...dropped].flat()), passed);
});

test("no share cookie, key or token of ours reaches a guest, however the head is written", () => {
  const noise = fc.array(fc.constantFrom("a=1", " b=2 ", "", " ", "flotilla_sharex=3", "x=flotilla_share"), {
    maxLength: 5,
  });
  fc.assert(
    fc.property(noise, noise, fc.constantFrom("Cookie", "cookie", "COOKIE"), (before, after, name) => {
      const value = [...before, ` flotilla_share=${SHARE_TOKEN}`, ...after].join(";");
      const head = requestHead([name, value, name, value], "GET", FACTS);
      assert.ok(!head.join().includes(SHARE_TOKEN));
      const kept = valuesOf(head, "cookie").join("; ").split("; ");
      assert.equal(
        kept.filter((part) => part === "a=1").length,
        2 * [...before, ...after].filter((part) => part === "a=1").length,
      );
    }),
  );
  const sent = (value: string) => valuesOf(requestHead(["Authorization", value], "GET", FACTS), "authorization");
  for (const token of [CONNECT_TOKEN, SHARE_TOKEN, KEY]) {
    for (const value of [`Bearer ${token}`, `bearer  ${token} `, `Basic x, Bearer ${token}`, token])
      assert.deepEqual(sent(value), [], value);
  }
  assert.deepEqual(sent("Bearer smk_short"), ["Bearer smk_short"], "what is not ours is the guest's");
});

test("a header without a value reaches the guest, but for a cookie header of which nothing is left", () => {
  const head = requestHead(["Accept-Encoding", "", "Cookie", "flotilla_share=x", "X-Empty", ""], "GET", FACTS);
  assert.deepEqual(head.slice(0, 4), ["Accept-Encoding", "", "X-Empty", ""]);
  assert.deepEqual(valuesOf(head, "cookie"), []);
});

test("no key or token of ours reaches a guest in any other header either, and what is not ours does", () => {
  for (const token of [CONNECT_TOKEN, SHARE_TOKEN, KEY]) {
    const escaped = encodeURIComponent(encodeURIComponent(`/x?access_token=${token}`));
    const held: readonly (readonly [string, string])[] = [
      ["X-Api-Key", token],
      ["Referer", `https://web.example/page?access_token=${token}&x=1`],
      ["Referer", `https://web.example/login?next=${encodeURIComponent(`/login?next=${escaped}`)}`],
      ["Referer", `https://web.example/?access_token=${token.replace("_", "%5F")}`],
      ["Sec-WebSocket-Protocol", `chat, ${token}`],
      ["Authorization", `Basic ${Buffer.from(`x:${token}`).toString("base64")}`],
      ["X-Forwarded-For", token],
      ["X-Forwarded-Host", `a.${token}`],
      ["Upgrade", token],
    ];
    for (const [name, value] of held) {
      const upgradeTo = name === "Upgrade" ? value : null;
      const head = requestHead(["Host", "web.example", name, value, "X-Other", "1"], "GET", { ...FACTS, upgradeTo });
      assert.ok(!head.includes(value), `${name}: ${value}`);
      assert.ok(!head.join().includes(token), `${name}: ${value}`);
      assert.deepEqual(valuesOf(head, "x-other"), ["1"]);
      assert.deepEqual(valuesOf(head, "host"), ["web.example"]);
      assert.deepEqual(valuesOf(head, "x-forwarded-host"), ["web.example"]);
    }
    const inJson = encodeURIComponent(JSON.stringify({ key: token }));
    const cookie = `a=1; key=${token}; b=%22x%22; state=${inJson}; c="2"`;
    const cookies = valuesOf(requestHead(["Cookie", cookie, "Cookie", `key=${token}`], "GET", FACTS), "cookie");
    assert.deepEqual(cookies, ['a=1; b=%22x%22; c="2"']);
  }
  const foreign = [
    ...["X-Api-Key", "smk_short", "Referer", "https://web.example/?x=%zz%", "Authorization", "Basic eDp5"],
    ...[
      "Cookie",
      `a=ssmk_${"k".repeat(43)}; b=100%`,
      "Sec-WebSocket-Protocol",
      "chat",
      "X-Key",
      `smx_${"k".repeat(43)}`,
    ],
  ];
  assert.deepEqual(requestHead(foreign, "GET", FACTS).slice(0, foreign.length), foreign);
});

test("a caller cannot take away what a request is about, nor say twice where it came from", () => {
  const head = requestHead(
    [
      ...["Host", "web.example", "Connection", "close, Host, Cookie, X-Hop", "X-Hop", "1", "Cookie", "a=1"],
      ...["X-Forwarded-For", "10.0.0.1", "X-Forwarded-For", "10.0.0.2", "X-Forwarded-Proto", "javascript"],
    ],
    "POST",
    { ...FACTS, prefix: "/proxy/x" },
  );
  assert.deepEqual(valuesOf(head, "host"), ["web.example"]);
  assert.deepEqual(valuesOf(head, "cookie"), ["a=1"]);
  assert.deepEqual(valuesOf(head, "x-hop"), []);
  assert.deepEqual(valuesOf(head, "x-forwarded-for"), ["10.0.0.1, 10.0.0.2, 192.0.2.1"]);
  assert.deepEqual(valuesOf(head, "x-forwarded-proto"), ["http"]);
  assert.deepEqual(valuesOf(head, "x-forwarded-prefix"), ["/proxy/x"]);
  assert.deepEqual(valuesOf(head, "content-length"), ["0"]);
  assert.deepEqual(valuesOf(head, "connection"), ["close"]);
});

test("no header of one connection reaches the other, nor how the sender framed its body twice", () => {
  const names = [
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Upgrade",
  ];
  const raw = ["Host", "web.example", ...names.flatMap((name) => [name, "x"]), "Transfer-Encoding", "chunked"];
  const request = requestHead(raw, "POST", FACTS);
  const answer = answerHead(raw, "", {});
  for (const name of names)
    for (const head of [request, answer]) assert.deepEqual(valuesOf(head, name.toLowerCase()), [], name);
  assert.deepEqual(valuesOf(request, "transfer-encoding"), ["chunked"]);
  assert.deepEqual(valuesOf(request, "content-length"), []);
  assert.deepEqual(valuesOf(answer, "transfer-encoding"), []);
  const framed = requestHead(["Host", "web.example", "Content-Length", "5"], "POST", FACTS);
  assert.deepEqual(valuesOf(framed, "content-length"), ["5"]);
  assert.deepEqual(valuesOf(requestHead(["Host", "web.example"], "GET", FACTS), "content-length"), []);
});

test("only a trusted proxy says where a request came from, and for which host", () => {
  const spoofed = [
    ...["Host", "web.example", "X-Forwarded-Host", "evil.example", "X-Forwarded-Proto", "https"],
    ...["X-Forwarded-For", "10.0.0.1", "X-Forwarded-Prefix", "/evil", "Forwarded", "for=10.0.0.1;host=evil.example"],
  ];
  const told = (isFromProxy: boolean) => {
    const head = requestHead(spoofed, "GET", { ...FACTS, isFromProxy });
    return ["for", "host", "proto", "prefix"].map((name) => valuesOf(head, `x-forwarded-${name}`).join());
  };
  assert.deepEqual(told(false), ["192.0.2.1", "web.example", "http", ""]);
  assert.deepEqual(told(true), ["10.0.0.1, 192.0.2.1", "evil.example", "https", ""]);
  const forwarded = (isFromProxy: boolean) =>
    valuesOf(requestHead(spoofed, "GET", { ...FACTS, isFromProxy }), "forwarded");
  assert.deepEqual(forwarded(false), []);
  assert.deepEqual(forwarded(true), ["for=10.0.0.1;host=evil.example"]);
});

test("a guest's cookie is limited to its host and prefix, whatever the guest requests", () => {
  const scoped = (cookie: string, prefix: string): readonly string[] =>
    valuesOf(answerHead(["Set-Cookie", cookie], prefix, {}), "set-cookie");
  assert.deepEqual(scoped("a=1; Domain=example.com; Path=/x; Secure", "/p"), ["a=1; Secure; Path=/p/x"]);
  assert.deepEqual(scoped("a=1;PATH=/;path = /y", "/p"), ["a=1; Path=/p/"]);
  assert.deepEqual(scoped("a=1; path=relative", "/p"), ["a=1; Path=/p/"]);
  assert.deepEqual(scoped("a=1; domain", ""), ["a=1"]);
  for (const ours of [" flotilla_share =x", "=flotilla_share=x", " = flotilla_share=x", "flotilla_share"])
    assert.deepEqual(scoped(ours, "/p"), [], ours);
  const attributes = fc.array(
    fc.constantFrom(" Path=/", "path=", " DOMAIN=a", "domain", " HttpOnly", " Path =/../..", " path=//x"),
  );
  fc.assert(
    fc.property(attributes, (list) => {
      const [cookie = ""] = scoped(["a=1", ...list].join(";"), "/proxy/m");
      assert.match(cookie, /^a=1(; ?HttpOnly)*; Path=\/proxy\/m\/\S*$/);
    }),
  );
});

test("under the API's address a guest's pages are sandboxed and its root is its prefix", () => {
  const head = answerHead(
    ["Location", "/a", "Content-Location", "//b", "Strict-Transport-Security", "max-age=1", "X-Request-Id", "g"],
    "/proxy/m",
    { "x-request-id": "ours" },
  );
  assert.deepEqual(valuesOf(head, "location"), ["/proxy/m/a"]);
  assert.deepEqual(valuesOf(head, "content-location"), ["//b"]);
  assert.deepEqual(valuesOf(head, "strict-transport-security"), []);
  assert.deepEqual(valuesOf(head, "x-request-id"), ["ours"]);
  assert.match(valuesOf(head, "content-security-policy").join(), /^sandbox /);
  for (const name of [
    ...["Alt-Svc", "Clear-Site-Data", "NEL", "Public-Key-Pins", "Report-To", "Reporting-Endpoints"],
    ...["Service-Worker-Allowed", "Strict-Transport-Security", "WWW-Authenticate"],
  ])
    assert.deepEqual(valuesOf(answerHead([name, "/"], "/proxy/m", {}), name.toLowerCase()), [], name);
  const own = answerHead(["Location", "/a", "Strict-Transport-Security", "max-age=1"], "", {});
  assert.deepEqual(own, ["Location", "/a", "Strict-Transport-Security", "max-age=1"]);
});

test("a parameter is taken out of a query and every other byte stays", () => {
  const token = SHARE_TOKEN;
  assert.equal(
    withoutCredential(`/a?t=${token}&x=%20&%74=${token.replace("_", "%5f")}&tt=3&t`, "t"),
    "/a?x=%20&tt=3&t",
  );
  assert.equal(withoutCredential(`/a?t=${token}`, "t"), "/a");
  assert.equal(withoutCredential("/a?t=own&x=%20&t", "t"), "/a?t=own&x=%20&t");
  assert.equal(withoutCredential(`/t=${token}`, "t"), `/t=${token}`);
});

test("an answer whose head could mean two things, or break out of ours, is not passed on", () => {
  const faults: readonly (readonly [readonly string[], RegExp | null])[] = [
    [["content-type", "text/html", "Content-Length", "5"], null],
    [["transfer-encoding", "Chunked"], null],
    [["set-cookie", "a=b; \u00e9"], null],
    [["content-length", "5", "Transfer-Encoding", "chunked"], /its length twice/],
    [["content-length", "5", "content-length", "5"], /its length twice/],
    [["content-length", "5, 6"], /content-length is "5, 6"/],
    [["content-length", "+5"], /content-length/],
    [["transfer-encoding", "gzip, chunked"], /transfer-encoding/],
    [["x", "a\rset-cookie: b"], /control characters/],
    [["x", "a\0"], /control characters/],
    [["x y", "a"], /header named/],
    [["", "a"], /header named/],
  ];
  for (const [head, fault] of faults) {
    if (fault === null) assert.equal(faultOfAnswer(head), null, String(head));
    else assert.match(faultOfAnswer(head) ?? "", fault);
  }
});

test("a guest under the address of the API cannot ask for a password, and gives what has no body no length", () => {
  const raw = ["WWW-Authenticate", 'Basic realm="Flotilla"', "Content-Length", "5"];
  assert.deepEqual(valuesOf(answerHead(raw, "/proxy/x", {}, 401), "www-authenticate"), []);
  assert.deepEqual(valuesOf(answerHead(raw, "", {}, 401), "www-authenticate"), ['Basic realm="Flotilla"']);
  assert.deepEqual(valuesOf(answerHead(raw, "", {}, 204), "content-length"), []);
  assert.deepEqual(valuesOf(answerHead(raw, "", {}, 200), "content-length"), ["5"]);
});
