/**
 * Reads a dirty bitmap of a VMM, which QEMU offers over NBD only: a client of that protocol that asks for
 * nothing else.
 *
 * Always: the VMM may have been taken over by its guest, so every length is bounded, and what is not expected
 * is an error. Wrong extents harm only the machine's own disk.
 */
import type { Duplex } from "node:stream";
import { BytesReader, type Extent } from "../../images/blocks.ts";

const GREETING = Buffer.from("NBDMAGICIHAVEOPT");
/** Fixed newstyle, without zeros after the handshake. */
const CLIENT_FLAGS = 3;
const OPTION_REPLY_MAGIC = 0x3_e8_89_04_55_65_a9n;
const REQUEST_MAGIC = 0x25_60_95_13;
const CHUNK_MAGIC = 0x66_8e_33_ef;
const OPTION = { go: 7, structuredReply: 8, setMetaContext: 10 } as const;
const OPTION_DONE = 1;
const OPTION_CONTEXT = 4;
const COMMAND = { disconnect: 2, blockStatus: 7 } as const;
const CHUNK_BLOCK_STATUS = 5;
const IS_DIRTY = 1;
const PAYLOAD_BYTES_MAX = 16 * 1024 * 1024;
const OPTION_REPLIES_MAX = 64;
/** Max bytes of one request: the protocol has 32 bits, and extents are multiples of blocks. */
const ASKED_BYTES_MAX = 2 ** 31;
const DESCRIPTOR_BYTES = 8;
/** More parts than this are not worth knowing. */
const DIRTY_MAX = 1_000_000;

export interface DirtyBitmap {
  /** Names of the export and of its bitmap. */
  readonly exportName: string;
  readonly bitmap: string;
  /** Size of the export. */
  readonly bytes: number;
}

/** The dirty parts, in order. The stream is connected to the VMM's NBD server; the caller destroys it. */
export async function readDirtyBitmap(
  stream: Duplex,
  { exportName, bitmap, bytes }: DirtyBitmap,
): Promise<readonly Extent[]> {
  const reader = new BytesReader(stream as AsyncIterable<Buffer>);
  if (!(await reader.take(GREETING.byteLength)).equals(GREETING)) throw new Error("the VMM's server is not one of NBD");
  await reader.take(2);
  stream.write(u32(CLIENT_FLAGS));
  const name = sized(exportName);
  const query = Buffer.concat([u32(1), sized(`qemu:dirty-bitmap:${bitmap}`)]);
  await option(stream, reader, OPTION.structuredReply, Buffer.alloc(0));
  const contexts = await option(stream, reader, OPTION.setMetaContext, Buffer.concat([name, query]));
  if (!contexts.includes(OPTION_CONTEXT)) throw new Error("the VMM does not offer its dirty bitmap");
  await option(stream, reader, OPTION.go, Buffer.concat([name, Buffer.alloc(2)]));
  const dirty: Extent[] = [];
  for (let at = 0; at < bytes; ) {
    stream.write(request(COMMAND.blockStatus, at, Math.min(bytes - at, ASKED_BYTES_MAX)));
    const known = await blockStatus(reader, at, dirty);
    if (known <= at) throw new Error("the VMM's dirty bitmap has no end");
    at = known;
  }
  stream.write(request(COMMAND.disconnect, 0, 0));
  return dirty;
}

/** Resolves with the kinds of the replies. */
async function option(stream: Duplex, reader: BytesReader, kind: number, data: Buffer): Promise<readonly number[]> {
  stream.write(Buffer.concat([GREETING.subarray(8), u32(kind), u32(data.byteLength), data]));
  const kinds: number[] = [];
  while (kinds.length < OPTION_REPLIES_MAX) {
    const head = await reader.take(20);
    const reply = head.readUInt32BE(12);
    if (head.readBigUInt64BE(0) !== OPTION_REPLY_MAGIC) throw new Error("the VMM's answer is not one of NBD");
    const text = await reader.take(bounded(head.readUInt32BE(16)));
    if (reply === OPTION_DONE) return kinds;
    if (reply >= 2 ** 31) throw new Error(`the VMM refuses option ${kind}: ${text.toString("utf8", 0, 200)}`);
    kinds.push(reply);
  }
  throw new Error("the VMM's answer has no end");
}

/** Adds the dirty parts from byte `from` on. Resolves with the byte up to which they are known. */
async function blockStatus(reader: BytesReader, from: number, dirty: Extent[]): Promise<number> {
  const head = await reader.take(20);
  const payload = await reader.take(bounded(head.readUInt32BE(16)));
  if (head.readUInt32BE(0) !== CHUNK_MAGIC || head.readUInt16BE(6) !== CHUNK_BLOCK_STATUS)
    throw new Error("the VMM did not read its dirty bitmap");
  let at = from;
  for (let place = 4; place + DESCRIPTOR_BYTES <= payload.byteLength; place += DESCRIPTOR_BYTES) {
    const end = at + payload.readUInt32BE(place);
    if ((payload.readUInt32BE(place + 4) & IS_DIRTY) !== 0) dirty.push({ start: at, end });
    if (dirty.length > DIRTY_MAX) throw new Error("the VMM's dirty bitmap has too many parts");
    at = end;
  }
  return at;
}

function request(command: number, offset: number, length: number): Buffer {
  const bytes = Buffer.alloc(28);
  bytes.writeUInt32BE(REQUEST_MAGIC, 0);
  bytes.writeUInt16BE(command, 6);
  bytes.writeBigUInt64BE(BigInt(offset), 16);
  bytes.writeUInt32BE(length, 24);
  return bytes;
}

function bounded(length: number): number {
  if (length > PAYLOAD_BYTES_MAX) throw new Error(`the VMM's answer has ${length} bytes`);
  return length;
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

const sized = (text: string): Buffer => Buffer.concat([u32(Buffer.byteLength(text)), Buffer.from(text)]);
