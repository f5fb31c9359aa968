/**
 * Names that tenants choose, with a DNS server that answers for some and is silent for others.
 */
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { nameResolver } from "@flotilla/base/name-resolver";

interface TestDns extends Disposable {
  readonly server: string;
  /** Answers what waits, and everything from now on. */
  answer(): void;
}

/**
 * Answers a query of type A with 198.41.0.4, and others with nothing. Those for names with `slow` wait; those
 * with `none` do not exist.
 */
async function startDns(): Promise<TestDns> {
  const socket = createSocket("udp4");
  const waiting: (() => void)[] = [];
  let isSilent = true;
  socket.on("message", (query, { port, address }) => {
    const nameEnd = query.indexOf(0, 12);
    const isA = query.readUInt16BE(nameEnd + 1) === 1;
    const isNone = query.includes("none");
    const head = Buffer.from([0x81, isNone ? 0x83 : 0x80, 0, 1, 0, isA && !isNone ? 1 : 0, 0, 0, 0, 0]);
    const question = query.subarray(12, nameEnd + 5);
    const record =
      isA && !isNone ? Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 41, 0, 4]) : Buffer.alloc(0);
    const send = () => socket.send(Buffer.concat([query.subarray(0, 2), head, question, record]), port, address);
    if (isSilent && query.includes("slow")) waiting.push(send);
    else send();
  });
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  return {
    server: `127.0.0.1:${socket.address().port}`,
    answer: () => {
      isSilent = false;
      for (const send of waiting.splice(0)) send();
    },
    [Symbol.dispose]: () => void socket.close(),
  };
}

const PUBLIC = { address: "198.41.0.4", family: 4 };

test("names whose servers are silent keep no other name waiting", async () => {
  using dns = await startDns();
  const resolve = nameResolver({ servers: [dns.server] });
  const ended: string[] = [];
  const ask = (name: string) => resolve(name).finally(() => ended.push(name));
  const slow = Array.from({ length: 20 }, (_, index) => ask(`slow${index}.example`));
  assert.deepEqual(await ask("good.example"), [PUBLIC]);
  assert.deepEqual(ended, ["good.example"]);
  dns.answer();
  assert.deepEqual((await Promise.all(slow)).flat(), Array(20).fill(PUBLIC));
});

test("a name without an address is an error, with its code", async () => {
  using dns = await startDns();
  const resolve = nameResolver({ servers: [dns.server] });
  await assert.rejects(resolve("none.example"), { code: "ENOTFOUND" });
});

test("a name in the hosts file means what that says", async (context) => {
  const directory = await mkdtemp(join(tmpdir(), "flotilla-hosts-"));
  context.after(() => rm(directory, { recursive: true }));
  const hostsPath = join(directory, "hosts");
  await writeFile(hostsPath, "# of the host\n10.1.0.5\thook.lan Hook # inside\n::1 hook.lan\nnonsense hook.lan\n");
  using dns = await startDns();
  const resolve = nameResolver({ servers: [dns.server], hostsPath });
  const both = [
    { address: "10.1.0.5", family: 4 },
    { address: "::1", family: 6 },
  ];
  assert.deepEqual(await resolve("hook.lan."), both);
  assert.deepEqual(await resolve("hook"), both.slice(0, 1));
  assert.deepEqual(await resolve("inside"), [PUBLIC]);
});
