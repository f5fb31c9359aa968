/**
 * The requests of a node to its server, where the answer does not end.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { postJson } from "../src/link/post.ts";

const WRITES = 64;

for (const way of ["url", "socket"]) {
  test(`an answer that does not end is refused, over the ${way}`, async (t) => {
    const directory = await mkdtemp(join(tmpdir(), "flotilla-post-"));
    t.after(() => rm(directory, { recursive: true }));
    let sent = 0;
    const server = createServer((_request, response) => {
      const more = (): void => {
        if (response.destroyed || sent === WRITES) return void response.end();
        sent += 1;
        response.write("a".repeat(1024 * 1024), more);
      };
      more();
    });
    const socket = way === "socket" ? join(directory, "server.sock") : null;
    server.listen(socket ?? { port: 0, host: "127.0.0.1" });
    t.after(() => {
      server.closeAllConnections();
      server.close();
    });
    await once(server, "listening");
    const serverUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const post = { path: "/reports", token: "t", body: "{}", signal: AbortSignal.timeout(20_000) };
    await assert.rejects(postJson({ serverUrl, serverSocket: socket }, post), /does not end/);
    assert.ok(sent < WRITES);
  });
}
