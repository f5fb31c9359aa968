/**
 * Checked requests to servers that never come to an answer.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { sendChecked } from "@flotilla/base/checked-request";

const UNFINISHED: Readonly<Record<string, { readonly sent: string; readonly why: RegExp }>> = {
  "switches to another protocol": {
    sent: "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n",
    why: /the connection ended before an answer/,
  },
  "announces an answer again and again": {
    sent: "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100),
    why: /announced again and again/,
  },
};
for (const [what, { sent, why }] of Object.entries(UNFINISHED))
  test(`a request to a server that ${what} fails`, { timeout: 10_000 }, async () => {
    const server = createServer((socket) => socket.on("error", () => undefined).once("data", () => socket.write(sent)));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const agents = { http: new Agent(), https: new HttpsAgent() };
    const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    const resolve = () => assert.fail("an address is not resolved");
    const { signal } = new AbortController();
    const request = { url, headers: {}, allowedAddresses: "any", agents, resolve, signal } as const;
    await assert.rejects(sendChecked(request), why).finally(() => server.close());
  });
