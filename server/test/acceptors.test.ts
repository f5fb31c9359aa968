/**
 * The sockets of the public listener: they accept several connections in a round of the event loop, and share their port with no other program.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createServer, type Server as HttpServer } from "node:http";
import { type AddressInfo, createServer as createNetServer, type Server } from "node:net";
import { test } from "node:test";
import { portToReturnTo } from "../../test/support/flotilla.ts";
import { acceptAt, closed, openingName } from "../src/http/acceptors.ts";

const HOST = "127.0.0.1";
const OPTIONS = { allowHalfOpen: true, noDelay: true };

interface Accepting extends AsyncDisposable {
  readonly server: HttpServer;
  readonly port: number;
}

async function accepting(port: number): Promise<Accepting> {
  const server = createServer((_, response) => response.end("hello"));
  const others = await acceptAt({ host: HOST, port }, server, OPTIONS);
  return {
    server,
    port: (server.address() as AddressInfo).port,
    [Symbol.asyncDispose]: async () => {
      const all: readonly Server[] = [server, ...others];
      const closing = Promise.all(all.map(closed));
      server.closeAllConnections();
      await closing;
    },
  };
}

test("connections that wait are accepted several in a round", async () => {
  await using first = await accepting(0);
  let rounds = 0;
  let isOver = false;
  const acceptedIn = new Set<number>();
  const count = 64;
  const all = new Promise<void>((resolve) => {
    let accepted = 0;
    first.server.on("connection", () => {
      acceptedIn.add(rounds);
      accepted += 1;
      if (accepted === count) resolve();
    });
  });
  const next = (): void => {
    rounds += 1;
    if (!isOver) setImmediate(next);
  };
  // This thread accepts nothing meanwhile.
  const caller = spawnSync(process.execPath, ["-e", CONNECTS, String(first.port), String(count)]);
  assert.equal(caller.status, 0, caller.stderr.toString());
  next();
  await all;
  isOver = true;
  // 4 sockets have 16 connections each on average; one socket would accept one in a round.
  assert.ok(acceptedIn.size <= count / 2, `${acceptedIn.size} rounds`);
});

async function refused(port: number): Promise<void> {
  const [outcome] = await Promise.allSettled([accepting(port)]);
  if (outcome.status === "fulfilled") await outcome.value[Symbol.asyncDispose]();
  assert.ok(outcome.status === "rejected" && outcome.reason.code === "EADDRINUSE", outcome.status);
}

/** Ends when all of its connections are established. */
const CONNECTS = `
  const [port, count] = process.argv.slice(1).map(Number);
  let left = count;
  for (let at = 0; at < count; at += 1)
    require("node:net").connect(port, "${HOST}", () => { left -= 1; if (left === 0) process.exit(0); });`;

test("each of many callers is answered, and no connection is left when the server has closed", async () => {
  const first = await accepting(0);
  const answers = await Promise.all(
    Array.from({ length: 64 }, async () => await (await fetch(`http://${HOST}:${first.port}/`)).text()),
  );
  assert.deepEqual(new Set(answers), new Set(["hello"]));
  await first[Symbol.asyncDispose]();
  await assert.rejects(fetch(`http://${HOST}:${first.port}/`));
});

test("a port that any program uses is refused, and nothing is left open", async () => {
  const port = await portToReturnTo();
  const at = { host: HOST, port };
  // The last is another server that is just opening its sockets.
  for (const others of [at, { ...at, reusePort: true }, { path: openingName(at) }]) {
    const other = createNetServer();
    await new Promise<void>((resolve) => void other.listen(others, resolve));
    try {
      await refused(port);
    } finally {
      await closed(other);
    }
  }
  {
    await using first = await accepting(port);
    await refused(first.port);
  }
  await using again = await accepting(port);
  assert.equal(again.port, port);
});

test("of servers that start at about the same time on a port one listens", async () => {
  for (let turn = 0; turn < 200; turn += 1) {
    const port = await portToReturnTo();
    const first = accepting(port);
    for (let step = 0; step < turn % 10; step += 1) await new Promise(setImmediate);
    const all = await Promise.allSettled([first, accepting(port)]);
    const listening = all.filter((each) => each.status === "fulfilled");
    for (const { value } of listening) await value[Symbol.asyncDispose]();
    assert.equal(listening.length, 1);
    for (const each of all) if (each.status === "rejected") assert.equal(each.reason.code, "EADDRINUSE");
  }
});
