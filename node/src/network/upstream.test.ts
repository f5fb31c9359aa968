/**
 * Queries to name servers of the host that cannot be reached.
 */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "@flotilla/base/clock";
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
