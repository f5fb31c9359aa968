/**
 * Counts what a layer's tar will cost to unpack while it streams by, and rejects one that is too expensive.
 *
 * It need not read a tar exactly as the unpacking tool does: a tar that it misreads is still limited by the
 * processor time of the tools. It keeps no content, only a pair of numbers per directory, bounded by the
 * number of entries.
 */
import { CorruptData } from "./corrupt-data.ts";

export interface EntryLimits {
  /** Files, directories, links and whiteouts of all layers together. */
  readonly entries: number;
  /**
   * Bytes of a path, and directories in it. Linux allows 4096 bytes, but programs that walk a tree do it with
   * buffers that they grow: `mkfs.ext4 -d` of e2fsprogs 1.47.0 writes beyond one of 2,040 bytes.
   */
  readonly pathBytes: number;
  readonly levels: number;
  /**
   * `mkfs.ext4 -d` searches a directory for each entry that it adds. This limits the sum, over all entries,
   * of the bytes that their directory had before. 20,000 entries with short names in one directory are 5e9,
   * or 12 s of processor time.
   */
  readonly searchedBytes: number;
}

export const ENTRY_LIMITS: EntryLimits = { entries: 500_000, pathBytes: 1_000, levels: 200, searchedBytes: 2e10 };

const BLOCK_BYTES = 512;
/** The unpacking tool refuses larger records of this kind. */
const SPECIAL_BYTES_MAX = 1024 * 1024;
const ENTRY_BYTES = 8;
const DECIMAL_DIGITS_MAX = 20;
/** The records with the size of a sparse file, in versions 1.0 and 0 of the format. */
const SPARSE_SIZES = ["GNU.sparse.realsize", "GNU.sparse.size"];
/** The records that are looked at, as they begin. */
const KEYS = ["path", "size", ...SPARSE_SIZES].map((key) => ({ key, begin: Buffer.from(`${key}=`) }));
const FIRST_BYTES: ReadonlySet<number | undefined> = new Set(KEYS.map(({ begin }) => begin[0]));

interface Member {
  readonly type: string;
  /** Bytes of content still to come, with padding. */
  left: number;
  /** The kept content of a record that describes the next member. */
  readonly kept: Buffer[];
  readonly size: number;
}

export class TarEntries {
  readonly #limits: EntryLimits;
  readonly #directories = new Map<number, number>();
  #count = 0;
  #searched = 0;
  #header: Buffer = Buffer.alloc(0);
  #member: Member | null = null;
  /** From a record that precedes the member it describes. */
  #longName: Buffer | null = null;
  #longSize: number | null = null;
  #sparseSize = 0;
  #sparseBytes = 0;
  #hasEnded = false;

  constructor(limits: EntryLimits = ENTRY_LIMITS) {
    this.#limits = limits;
  }

  /** Entries so far, of all layers. */
  get count(): number {
    return this.#count;
  }

  /** The sizes of sparse files so far, of all layers. The unpacking tool writes their holes as zeros. */
  get sparseBytes(): number {
    return this.#sparseBytes;
  }

  /** Call before each layer. */
  begin(): void {
    this.#header = Buffer.alloc(0);
    this.#member = null;
    this.#longName = null;
    this.#longSize = null;
    this.#sparseSize = 0;
    this.#hasEnded = false;
  }

  /** Throws an Error with a user-facing message when a limit is exceeded. */
  add(chunk: Buffer): void {
    let at = 0;
    while (!this.#hasEnded && at < chunk.length) {
      if (this.#member !== null) at += this.#skip(this.#member, chunk.subarray(at));
      else {
        const part = chunk.subarray(at, at + BLOCK_BYTES - this.#header.length);
        this.#header = this.#header.length === 0 ? part : Buffer.concat([this.#header, part]);
        at += part.length;
        if (this.#header.length === BLOCK_BYTES) this.#open(this.#header);
      }
    }
    // Copied, because the caller may reuse the chunk while this holds the start of a header.
    if (this.#header.length > 0) this.#header = Buffer.from(this.#header);
  }

  #skip(member: Member, rest: Buffer): number {
    const part = rest.subarray(0, member.left);
    if ("xL+".includes(member.type)) member.kept.push(Buffer.from(part));
    member.left -= part.length;
    if (member.left === 0) this.#close(member);
    return part.length;
  }

  #open(header: Buffer): void {
    this.#header = Buffer.alloc(0);
    // A block of zeros ends a tar, even in the middle of a file.
    if (header.every((byte) => byte === 0)) {
      this.#hasEnded = true;
      return;
    }
    const type = String.fromCharCode(header[156] ?? 0);
    const isRecord = "xgLK".includes(type);
    const size = (isRecord ? null : this.#longSize) ?? numberAt(header, 124);
    if (isRecord && size > SPECIAL_BYTES_MAX) throw new Error("it has a name or an attribute that is too long");
    // A sparse file of the old format has its size at another place.
    if (type === "S") this.#sparseSize = Math.max(this.#sparseSize, numberAt(header, 483));
    if (!isRecord) this.#countMember(header);
    // Links and directories have no content, whatever their size field says; old sparse files have further
    // headers first.
    const bytes = "12345".includes(type) ? 0 : size;
    const more = type === "S" && header[482] !== 0 ? BLOCK_BYTES : 0;
    this.#expect(more > 0 ? "+" : type, more || padded(bytes), bytes);
  }

  #expect(type: string, left: number, size: number): void {
    this.#member = left === 0 ? null : { type, left, kept: [], size };
  }

  #close(member: Member): void {
    this.#member = null;
    if (member.type === "+") {
      const isLast = Buffer.concat(member.kept)[504] === 0;
      return this.#expect(isLast ? "S" : "+", isLast ? padded(member.size) : BLOCK_BYTES, member.size);
    }
    const content = Buffer.concat(member.kept).subarray(0, member.size);
    if (member.type === "L") this.#longName = content;
    if (member.type !== "x") return;
    for (const [key, value] of paxRecords(content)) {
      if (key === "path") this.#longName = value;
      // An empty value takes an earlier one back.
      if (key === "size") this.#longSize = value.length === 0 ? null : decimalOf(value);
      if (SPARSE_SIZES.includes(key)) this.#sparseSize = value.length === 0 ? 0 : decimalOf(value);
    }
  }

  #countMember(header: Buffer): void {
    const path = this.#longName ?? pathOf(header);
    this.#longName = null;
    this.#longSize = null;
    this.#sparseBytes += this.#sparseSize;
    this.#sparseSize = 0;
    this.#count += 1;
    if (this.#count > this.#limits.entries)
      throw new Error(`it has more than ${this.#limits.entries} files and directories`);
    if (path.length > this.#limits.pathBytes) throw pathTooLong(this.#limits);
    if (levelsOf(path) > this.#limits.levels) throw nestedTooDeeply(this.#limits);
    const { directory, name } = split(path);
    const before = this.#directories.get(directory) ?? 0;
    this.#directories.set(directory, before + ENTRY_BYTES + name);
    this.#searched += before;
    if (this.#searched > this.#limits.searchedBytes)
      throw new Error("it has too many files in one directory; about 40,000 with short names are possible");
  }
}

export const pathTooLong = ({ pathBytes }: Pick<EntryLimits, "pathBytes">): Error =>
  new Error(`it has a path of more than ${pathBytes} bytes`);

export const nestedTooDeeply = ({ levels }: Pick<EntryLimits, "levels">): Error =>
  new Error(`it has directories that are nested more than ${levels} levels deep`);

/** Names in a path, without empty ones and `.`. */
function levelsOf(path: Buffer): number {
  let [levels, start] = [0, 0];
  for (let at = 0; at <= path.length; at += 1) {
    if (at < path.length && path[at] !== 0x2f) continue;
    const isDot = at === start + 1 && path[start] === 0x2e;
    if (at > start && !isDot) levels += 1;
    start = at + 1;
  }
  return levels;
}

/** Hashes the directory, and returns the length of the name in it. */
function split(path: Buffer): { readonly directory: number; readonly name: number } {
  let end = path.length;
  while (end > 0 && path[end - 1] === 0x2f) end -= 1;
  const slash = path.lastIndexOf(0x2f, end - 1);
  let directory = 0x811c9dc5;
  for (let at = 0; at < slash; at += 1) directory = Math.imul(directory ^ (path[at] ?? 0), 0x01000193);
  return { directory, name: end - slash - 1 };
}

function text(header: Buffer, start: number, length: number): Buffer {
  const field = header.subarray(start, start + length);
  const end = field.indexOf(0);
  return end < 0 ? field : field.subarray(0, end);
}

function pathOf(header: Buffer): Buffer {
  const name = text(header, 0, 100);
  const prefix = header.toString("latin1", 257, 262) === "ustar" ? text(header, 345, 155) : Buffer.alloc(0);
  return Buffer.from(prefix.length === 0 ? name : Buffer.concat([prefix, Buffer.from("/"), name]));
}

/** Octal digits, or a binary number if the first byte is 0x80. */
function numberAt(header: Buffer, offset: number): number {
  const first = header[offset] ?? 0;
  const size =
    (first & 0x80) === 0
      ? Number.parseInt(text(header, offset, 12).toString("latin1").trim() || "0", 8)
      : Number(BigInt(`0x${header.subarray(offset + 1, offset + 12).toString("hex")}`));
  if (!Number.isSafeInteger(size) || size < 0) throw new CorruptData("its tar is damaged");
  return size;
}

/** Throws CorruptData for anything but a count of bytes: a member of any other size would never end. */
function decimalOf(value: Buffer): number {
  const size = value.length <= DECIMAL_DIGITS_MAX ? wholeIn(value.toString("latin1")) : Number.NaN;
  if (!Number.isSafeInteger(size)) throw new CorruptData("its tar is damaged");
  return size;
}

/** NaN: the text has anything but digits. */
const wholeIn = (digits: string): number => (/^[0-9]+$/.test(digits) ? Number(digits) : Number.NaN);

const padded = (size: number): number => Math.ceil(size / BLOCK_BYTES) * BLOCK_BYTES;

/**
 * Records of KEYS, of the form `<length> <key>=<value>\n`, up to the first that has another. Others are
 * passed over without an allocation: there may be 200,000 in a megabyte, and any number of megabytes.
 */
function* paxRecords(content: Buffer): Generator<readonly [string, Buffer]> {
  for (let at = 0; at < content.length; ) {
    let [length, space] = [0, at];
    for (let digit = digitAt(content, space); digit >= 0; digit = digitAt(content, space)) {
      if (space - at === DECIMAL_DIGITS_MAX) return;
      length = 10 * length + digit;
      space += 1;
    }
    const end = at + length;
    if (content[space] !== 0x20 || space >= end || end > content.length) return;
    const start = space + 1;
    const found = FIRST_BYTES.has(content[start]) && KEYS.find(({ begin }) => hasAt(content, start, begin, end));
    if (found) yield [found.key, content.subarray(start + found.begin.length, end - 1)];
    at = end;
  }
}

/** -1: it is none. */
function digitAt(content: Buffer, at: number): number {
  const digit = (content[at] ?? 0) - 0x30;
  return digit >= 0 && digit <= 9 ? digit : -1;
}

/** Whether the bytes are there, and end before `end`. */
function hasAt(content: Buffer, at: number, bytes: Buffer, end: number): boolean {
  if (at + bytes.length >= end) return false;
  for (let offset = 0; offset < bytes.length; offset += 1) if (content[at + offset] !== bytes[offset]) return false;
  return true;
}
