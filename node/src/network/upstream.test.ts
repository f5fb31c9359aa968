/**
 * Queries to name servers of the host that cannot be reached, or never answer.
 */
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
import { fastClock } from "../../../test/support/fast-clock.ts";
import { monotonic } from "../../../test/support/until.ts";
import { temporaryDirectory } from "../../test/support/in-process.ts";
import { HostUpstream } from "./upstream.ts";

test("a query fails when the host has no route to its name servers, and the agent runs on", async () => {
  await using directory = await temporaryDirectory();
  const path = join(directory.path, "resolv.conf");
  // To which no socket of this program may connect, with a route or without.
  await writeFile(path, "nameserver 255.255.255.255\nnameserver 255.255.255.255\n");
  const upstream = new HostUpstream(systemClock, path);
  for (const transport of ["udp", "tcp"] as const)
    await assert.rejects(upstream.forward(Buffer.alloc(32), transport), /no name server of the host answered/);
});

const skip = process.getuid?.() !== 0 && "only root may answer at the port of name servers";

test("a query ends in time when three name servers are silent, or send an answer byte by byte", { skip }, async () => {
  await using directory = await temporaryDirectory();
  await using ended = new AsyncDisposableStack();
  // Addresses of the loopback network; no other process has the same.
  const addresses = [1, 2, 3].map((n) => `127.${8 + n}.${(process.pid >> 8) % 256}.${process.pid % 256}`);
  for (const address of addresses) {
    const silent = createSocket("udp4").bind(53, address);
    ended.defer(() => void silent.close());
    const slow = createServer(async (socket) => {
      socket.on("error", () => undefined);
      for (let sent = 0; sent < 500 && !socket.destroyed; sent += 1) {
        socket.write("\u007f");
        // tidy-allow sleep in a test: this is how slowly the server sends
        await systemClock.sleep(10);
      }
      socket.destroy();
    }).listen(53, address);
    ended.defer(() => void slow.close());
    await Promise.all([once(silent, "listening"), once(slow, "listening")]);
  }
  const path = join(directory.path, "resolv.conf");
  await writeFile(path, addresses.map((address) => `nameserver ${address}\n`).join(""));
  // Six seconds are 0.2.
  const upstream = new HostUpstream(fastClock(30), path);
  const startedAt = monotonic();
  await Promise.all([
    assert.rejects(upstream.resolve("example.com")),
    assert.rejects(upstream.forward(Buffer.alloc(32), "udp")),
    assert.rejects(upstream.forward(Buffer.alloc(32), "tcp")),
  ]);
  assert.ok(monotonic() - startedAt < 5_000);
});
