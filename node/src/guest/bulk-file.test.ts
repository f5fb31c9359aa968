/**
 * The host's end of a transfer over the bulk disk, against a guest's worker that violates the protocol.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { PassThrough, Writable } from "node:stream";
import { test } from "node:test";
import { until } from "../../../test/support/until.ts";
import { encodeBulkRecord } from "@flotilla/contract/guest/bulk";
import type { BulkWindow } from "./bulk-disk.ts";
import { overBulkDisk } from "./bulk-file.ts";
import type { GuestExec } from "./guest.ts";

const SLOTS = 4;

/** A transfer whose worker is scripted: its records are written to `stdout`. */
function scripted({ givesCredit, isWrite = false }: { readonly givesCredit: boolean; readonly isWrite?: boolean }) {
  let reads = 0;
  const written: (readonly Buffer[])[] = [];
  const window: BulkWindow = {
    device: "vdb",
    offset: 0,
    bytes: SLOTS * 1024 * 1024,
    slots: SLOTS,
    write: async (_slot, _at, parts) => {
      written.push(parts);
    },
    read: async () => {
      reads += 1;
    },
    release: () => {},
  };
  // Without credit of its guest, a command's input takes nothing.
  const stdin = new Writable({ write: (_bytes, _encoding, done) => void (givesCredit && done()) });
  const stdout = new PassThrough();
  const exit = Promise.withResolvers<{ readonly exitCode: number }>();
  const inner: GuestExec = {
    pid: Promise.resolve(1),
    stdin,
    stdout,
    stderr: new PassThrough(),
    exit: exit.promise,
    resize: () => {},
    signal: () => {},
    kill: () => exit.resolve({ exitCode: 137 }),
  };
  const transfer = overBulkDisk(inner, window, isWrite);
  transfer.stdout.resume();
  return { transfer, stdin, stdout, exit, written, readsSoFar: () => reads };
}

test("a worker that sends pieces and takes no acknowledgement ends its transfer, and holds no memory", async () => {
  const { transfer, stdin, stdout, exit } = scripted({ givesCredit: false });
  stdout.write("f 0644 1000 0\n");
  for (let count = 0; count < 1000; count += 1) stdout.write(encodeBulkRecord({ length: 1, slot: 0 }));
  stdout.end(() => exit.resolve({ exitCode: 0 }));
  await assert.rejects(transfer.exit, /pieces before slots were free/);
  assert(stdin.writableLength <= SLOTS);
});

test("what a killed worker still announces is not read from the disk", async () => {
  const { transfer, stdout, readsSoFar } = scripted({ givesCredit: true });
  stdout.write("f 0644 1000 0\n");
  stdout.write(encodeBulkRecord({ length: 1, slot: 0 }));
  await once(transfer.stdout, "data");
  transfer.kill();
  await transfer.exit;
  const before = readsSoFar();
  const ended = once(transfer.stdout, "end");
  for (let count = 0; count < 1000; count += 1) stdout.write(encodeBulkRecord({ length: 1, slot: 0 }));
  stdout.end();
  await ended;
  assert(readsSoFar() <= before + 1);
});

test("a file that arrives in single bytes is held, and written, in few pieces", async () => {
  const { transfer, written } = scripted({ givesCredit: true, isWrite: true });
  const read = Buffer.from("0123456789abcdef");
  for (let count = 0; count < 256 * 1024; count += 1) transfer.stdin.write(read.subarray(count % 16, (count % 16) + 1));
  await until(() => written.length > 0, { what: "the first write" });
  const [parts = []] = written;
  assert.equal(Buffer.concat(parts).toString(), read.toString().repeat(16 * 1024));
  assert.ok(parts.length < 64, `${parts.length} pieces`);
  transfer.kill();
});
