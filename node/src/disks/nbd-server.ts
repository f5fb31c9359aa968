/**
 * Serves one file read-only over NBD on a connection: the smallest server of that protocol that QEMU's client uses.
 *
 * The reader may wait as long as it likes: QEMU's guest waits for these blocks. Requests are answered in any order.
 *
 * Always: the client may be a VMM that its guest has taken over, so every length is bounded, no more than REQUESTS_MAX requests are
 * read at a time, and a message that is not expected ends the connection.
 */
import type { Duplex } from "node:stream";
import { BytesReader } from "../images/blocks.ts";

const GREETING = Buffer.from("NBDMAGICIHAVEOPT");
/** Fixed newstyle, and no zeros after the handshake. */
const SERVER_FLAGS = 3;
const OPTION_REPLY_MAGIC = 0x3_e8_89_04_55_65_a9n;
const OPTION = { exportName: 1, abort: 2, info: 6, go: 7 } as const;
const REPLY = { ack: 1, info: 3, unsupported: 2 ** 31 + 1 } as const;
const INFO_EXPORT = 0;
const INFO_BLOCK_SIZE = 3;
const PREFERRED_BYTES = 4096;
/** Has flags, is read-only. */
const EXPORT_FLAGS = 3;
const REQUEST_MAGIC = 0x25_60_95_13;
const REPLY_MAGIC = 0x67_44_66_98;
const COMMAND = { read: 0, disconnect: 2 } as const;
const [NOT_PERMITTED, INVALID] = [1, 22];
const OPTION_BYTES_MAX = 4096;
const OPTIONS_MAX = 64;
const READ_BYTES_MAX = 2 * 1024 * 1024;
const REQUESTS_MAX = 16;

export interface ServedFile {
  readonly bytes: number;
  /** A part of the file, when it is there. Rejects when the signal is aborted. */
  read(offset: number, length: number, signal: AbortSignal): Promise<Buffer>;
}

/** Resolves when the client has said that it leaves. Rejects when it breaks off or sends something else; the caller destroys the stream. */
export async function serveNbd(stream: Duplex, file: ServedFile): Promise<void> {
  const reader = new BytesReader(stream as AsyncIterable<Buffer>);
  stream.write(Buffer.concat([GREETING, u16(SERVER_FLAGS)]));
  await reader.take(4);
  if (!(await negotiate(stream, reader, file))) return;
  stream.setMaxListeners(4 * REQUESTS_MAX);
  const left = new AbortController();
  const pending = new Set<Promise<void>>();
  try {
    for (;;) {
      const head = await reader.take(28);
      if (head.readUInt32BE(0) !== REQUEST_MAGIC) throw new Error("the client of a disk sent no request of NBD");
      const command = head.readUInt16BE(6);
      if (command === COMMAND.disconnect) return;
      const [handle, offset, length] = [head.subarray(8, 16), Number(head.readBigUInt64BE(16)), head.readUInt32BE(24)];
      const isInside = Number.isSafeInteger(offset) && offset + length <= file.bytes && length <= READ_BYTES_MAX;
      if (command !== COMMAND.read || !isInside) {
        // The data of a write would follow; the protocol is out of step then.
        if (command === 1) throw new Error("the client of a disk writes, which it must not");
        await written(stream, reply(command === COMMAND.read ? INVALID : NOT_PERMITTED, handle), left.signal);
        continue;
      }
      const answered = answer(stream, file, { handle: Buffer.from(handle), offset, length }, left.signal);
      pending.add(answered);
      void answered.finally(() => pending.delete(answered));
      if (pending.size >= REQUESTS_MAX) await Promise.race(pending);
    }
  } finally {
    left.abort(new Error("the reader of a disk has left"));
    await Promise.all(pending);
  }
}

/** Whether the client now sends requests. */
async function negotiate(stream: Duplex, reader: BytesReader, file: ServedFile): Promise<boolean> {
  for (let options = 0; options < OPTIONS_MAX; options += 1) {
    const head = await reader.take(16);
    const kind = head.readUInt32BE(8);
    const length = head.readUInt32BE(12);
    if (!head.subarray(0, 8).equals(GREETING.subarray(8)) || length > OPTION_BYTES_MAX)
      throw new Error("the client of a disk sent no option of NBD");
    await reader.take(length);
    if (kind === OPTION.exportName) {
      stream.write(Buffer.concat([u64(file.bytes), u16(EXPORT_FLAGS)]));
      return true;
    }
    if (kind === OPTION.go || kind === OPTION.info) {
      stream.write(
        optionReply(kind, REPLY.info, Buffer.concat([u16(INFO_EXPORT), u64(file.bytes), u16(EXPORT_FLAGS)])),
      );
      const sizes = [u16(INFO_BLOCK_SIZE), u32(1), u32(PREFERRED_BYTES), u32(READ_BYTES_MAX)];
      stream.write(optionReply(kind, REPLY.info, Buffer.concat(sizes)));
      stream.write(optionReply(kind, REPLY.ack));
      if (kind === OPTION.go) return true;
    } else if (kind === OPTION.abort) {
      stream.write(optionReply(kind, REPLY.ack));
      return false;
    } else stream.write(optionReply(kind, REPLY.unsupported));
  }
  throw new Error("the client of a disk sends options without end");
}

interface ReadRequest {
  readonly handle: Buffer;
  readonly offset: number;
  readonly length: number;
}

/** Never rejects. A part that cannot be read ends the connection: the client connects again, and its guest sees no error. */
async function answer(
  stream: Duplex,
  file: ServedFile,
  { handle, offset, length }: ReadRequest,
  signal: AbortSignal,
): Promise<void> {
  try {
    const data = await file.read(offset, length, signal);
    if (!signal.aborted) await written(stream, Buffer.concat([reply(0, handle), data]), signal);
  } catch (error) {
    if (!signal.aborted) stream.destroy(error as Error);
  }
}

/** A client that does not read gets no more. */
function written(stream: Duplex, bytes: Buffer, signal: AbortSignal): Promise<void> | undefined {
  return stream.write(bytes) ? undefined : drained(stream, signal);
}

function drained(stream: Duplex, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      for (const event of ["drain", "close"]) stream.off(event, done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    for (const event of ["drain", "close"]) stream.once(event, done);
    signal.addEventListener("abort", done, { once: true });
    if (stream.destroyed || signal.aborted) done();
  });
}

function reply(error: number, handle: Buffer): Buffer {
  return Buffer.concat([u32(REPLY_MAGIC), u32(error), handle]);
}

function optionReply(option: number, kind: number, data: Buffer = Buffer.alloc(0)): Buffer {
  return Buffer.concat([u64(OPTION_REPLY_MAGIC), u32(option), u32(kind), u32(data.byteLength), data]);
}

function u16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(value);
  return bytes;
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

function u64(value: number | bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
}
