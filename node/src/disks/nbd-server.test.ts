/**
 * A file is read over NBD by QEMU's own client; a read waits for its part; what is not a read ends or is refused.
 */
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { promisify } from "node:util";
import { endOfTurn } from "@flotilla/base/clock";
import { serveNbd } from "./nbd-server.ts";

const hasQemuIo = spawnSync("qemu-io", ["--version"]).status === 0;
const options = hasQemuIo ? {} : { skip: "qemu-io is not installed" };
const BYTES = 8 * 2 ** 20;

/** Each block has another byte. */
const contentAt = (offset: number, length: number): Buffer =>
  Buffer.from(Uint8Array.from({ length }, (_, index) => Math.floor((offset + index) / 65536) & 255));

async function served(read: (offset: number, length: number) => Promise<Buffer>) {
  const directory = mkdtempSync(join(tmpdir(), "flotilla-nbd-"));
  const failures: string[] = [];
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    serveNbd(socket, { bytes: BYTES, read })
      .catch((error: Error) => failures.push(error.message))
      .finally(() => socket.destroy());
  });
  const path = join(directory, "socket");
  await new Promise<void>((resolve) => server.listen(path, resolve));
  const io = (commands: string | readonly string[], mode: readonly string[] = ["-r"]) => {
    const argv = [commands].flat().flatMap((command) => ["-c", command]);
    return promisify(execFile)("qemu-io", [...mode, "-f", "raw", ...argv, `nbd+unix:///disk?socket=${path}`]);
  };
  return {
    io,
    failures,
    [Symbol.dispose]: () => {
      server.close();
      rmSync(directory, { recursive: true });
    },
  };
}

test("QEMU reads what the file has, also in many requests at a time", options, async () => {
  using place = await served((offset, length) => Promise.resolve(contentAt(offset, length)));
  const { stdout } = await place.io("read -P 3 192k 64k");
  assert.match(stdout, /read 65536\/65536 bytes/);
  const many = await place.io(Array.from({ length: 40 }, (_, index) => `aio_read -P ${index} ${index * 64}k 64k`));
  assert.doesNotMatch(many.stdout, /failed|error/i);
  assert.match((await place.io("read 0 8m")).stdout, /8 MiB/);
});

test("a read waits until its part is there", options, async () => {
  let arrive = (): void => undefined;
  const isThere = new Promise<void>((resolve) => (arrive = resolve));
  let asked = 0;
  using place = await served(async (offset, length) => {
    asked += 1;
    if (offset >= 2 ** 20) await isThere;
    return contentAt(offset, length);
  });
  const waiting = place.io("read -P 16 1m 64k");
  assert.match((await place.io("read -P 0 0 64k")).stdout, /65536/);
  assert.ok(asked >= 1);
  arrive();
  assert.match((await waiting).stdout, /read 65536\/65536 bytes/);
});

test("it is read-only", options, async () => {
  using place = await served((offset, length) => Promise.resolve(contentAt(offset, length)));
  await assert.rejects(place.io("write 0 64k", []), /permission denied|read-only/i);
});

test("a client that reads no answers to requests that are refused is not read either", async () => {
  const greeting = Buffer.alloc(20);
  greeting.write("IHAVEOPT", 4);
  greeting.writeUInt32BE(1, 12);
  const trim = Buffer.alloc(28);
  trim.writeUInt32BE(0x25_60_95_13, 0);
  trim.writeUInt16BE(4, 6);
  const many = Buffer.concat(Array.from({ length: 2048 }, () => trim));
  let left = 300;
  const client = new Duplex({
    read() {
      left -= 1;
      this.push(left < 0 ? null : many);
    },
    // As a full socket.
    write: () => undefined,
  });
  client.push(greeting);
  const ended = serveNbd(client, { bytes: BYTES, read: () => Promise.resolve(Buffer.alloc(0)) }).catch(() => undefined);
  for (let turn = 0; turn < 2_000 && left > 0; turn += 1) await endOfTurn();
  assert.ok(client.writableLength < 2 ** 20, `${client.writableLength} bytes wait for a client that does not read`);
  assert.ok(left > 0);
  client.destroy();
  await ended;
});
