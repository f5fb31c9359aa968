/**
 * One machine's log on the disk: what its workload says, outside the guest, so that it can be read while nothing runs.
 *
 * Owns `logs/<number>` in the machine's directory: the newest file is written, the one before it is kept, older ones are
 * removed, so a guest can not fill the host's disk. A line there is
 *
 *     <epoch ms> <boot's directory name> <offset> <kind> <text>
 *
 * where the offset is that of the byte of the workload's output behind the line, and says how far a boot's output is
 * safe: after a crash the next agent asks the guest for what comes behind it. Text is bytes, read as latin1.
 *
 * Always: a line is whole or not there; half of one, left by a crash, is cut off before the next is written. A position
 * is a file's number and a byte in it; a reader whose file is gone goes on at the oldest that is there.
 */
import { mkdir, open, readdir, rm, stat, truncate } from "node:fs/promises";
import { join } from "node:path";
import type { LogLine } from "@flotilla/contract/link";

const FILE_BYTES_MAX = 8 * 1024 * 1024;
const FILES_KEPT = 2;
const PIECE_BYTES = 64 * 1024;
const LINE_BREAK = 10;
const NAME = /^[0-9]{1,15}$/;

/** `end`: the workload's end; `after` is output behind it, of children that live on. */
const KINDS = { output: "o", note: "n", end: "e", after: "a" } as const;
export type LogKind = keyof typeof KINDS;

export interface LogPosition {
  readonly file: number;
  readonly byte: number;
}

/** Behind every position. */
const NOWHERE: LogPosition = { file: Number.POSITIVE_INFINITY, byte: 0 };

/** How far a boot's output is safe. */
export interface BootProgress {
  readonly offset: number;
  readonly hasEnded: boolean;
}

export interface LogPiece {
  readonly lines: readonly LogLine[];
  /** Behind the last of them. */
  readonly next: LogPosition;
}

/** A line as it stands in the file. `text` holds bytes as latin1, and no line break. */
export function logLine(at: number, boot: string, offset: number, kind: LogKind, text: string): string {
  return `${at} ${boot} ${offset} ${KINDS[kind]} ${text}\n`;
}

export class MachineLog {
  readonly #directory: string;
  /** Numbers of the files that are there, oldest first; null until they were looked for. */
  #files: number[] | null = null;
  #newestBytes = 0;
  readonly #listeners = new Set<() => void>();
  #isRemoved = false;

  /** Nothing is touched before something is read or written. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /** The machine is gone: whoever follows its log has heard everything. */
  get isRemoved(): boolean {
    return this.#isRemoved;
  }

  /** Calls back after every change; returns how to end that. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Forgets the files, which somebody else removes. */
  close(): void {
    this.#isRemoved = true;
    this.#notify();
  }

  /** Adds whole lines. One call at a time. */
  async append(lines: Buffer | string): Promise<void> {
    const bytes = typeof lines === "string" ? Buffer.from(lines, "latin1") : lines;
    const files = await this.#found();
    if (files.length === 0 || this.#newestBytes >= FILE_BYTES_MAX) await this.#rotate(files);
    const file = await open(this.#path(files.at(-1) ?? 0), "a", 0o600);
    try {
      await file.writeFile(bytes);
      this.#newestBytes += bytes.byteLength;
    } catch (error) {
      // A disk that was full took a part of it.
      await file.truncate(this.#newestBytes).catch(() => undefined);
      throw error;
    } finally {
      await file.close();
    }
    this.#notify();
  }

  /** How far the output of a boot is safe. */
  async progressOf(boot: string): Promise<BootProgress> {
    const files = await this.#found();
    const newest = files.at(-1);
    if (newest === undefined) return { offset: 0, hasEnded: false };
    const at = await this.#startOfTail({ file: newest, byte: this.#newestBytes }, 1);
    const [line = ""] = (await this.#bytesAt(at, this.#newestBytes - at.byte)).toString("latin1").split("\n");
    const [, ofBoot, offset, kind] = line.split(" ", 4);
    if (ofBoot !== boot) return { offset: 0, hasEnded: false };
    return { offset: Number(offset), hasEnded: kind === KINDS.end || kind === KINDS.after };
  }

  /** Behind the last line. */
  async end(): Promise<LogPosition> {
    const files = await this.#found();
    return { file: files.at(-1) ?? 0, byte: this.#newestBytes };
  }

  /** Where the last `count` lines before `end` begin; without it, the last of all. */
  async tail(count: number, before?: LogPosition): Promise<LogPosition> {
    const end = before ?? (await this.end());
    return end.file === 0 ? end : this.#startOfTail(end, count);
  }

  /** The lines behind a position, some at a time; none when there is no more now, or before `end`. */
  async read(position: LogPosition, end: LogPosition = NOWHERE): Promise<LogPiece> {
    const files = await this.#found();
    const [oldest] = files;
    if (oldest === undefined) return { lines: [], next: position };
    const from = position.file < oldest ? { file: oldest, byte: 0 } : position;
    const room = from.file === end.file ? end.byte - from.byte : PIECE_BYTES;
    if (room <= 0 || from.file > end.file) return { lines: [], next: from };
    const bytes = await this.#bytesAt(from, Math.min(room, PIECE_BYTES));
    const length = bytes.lastIndexOf(LINE_BREAK) + 1;
    if (length > 0) {
      const lines = bytes.toString("latin1", 0, length - 1).split("\n");
      return { lines: lines.map(parse), next: { file: from.file, byte: from.byte + length } };
    }
    const following = files.find((file) => file > from.file);
    return following === undefined ? { lines: [], next: from } : this.read({ file: following, byte: 0 }, end);
  }

  /** Also cuts off what a crash has left of a line. */
  async #found(): Promise<number[]> {
    if (this.#files !== null) return this.#files;
    const names = await readdir(this.#directory).catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return [];
      throw error;
    });
    const files = names
      .filter((name) => NAME.test(name))
      .map(Number)
      .toSorted((one, other) => one - other);
    const newest = files.at(-1);
    const bytes = newest === undefined ? 0 : await this.#cutOff(this.#path(newest));
    // Somebody else may have been faster.
    if (this.#files !== null) return this.#files;
    this.#newestBytes = bytes;
    this.#files = files;
    return files;
  }

  async #cutOff(path: string): Promise<number> {
    const file = await open(path, "r");
    let whole = 0;
    try {
      const { size } = await file.stat();
      for (let end = size; end > 0 && whole === 0; end -= PIECE_BYTES) {
        const from = Math.max(0, end - PIECE_BYTES);
        const { buffer } = await file.read({ buffer: Buffer.alloc(end - from), position: from });
        const at = buffer.lastIndexOf(LINE_BREAK);
        if (at >= 0) whole = from + at + 1;
      }
      if (whole === size) return size;
    } finally {
      await file.close();
    }
    await truncate(path, whole);
    return whole;
  }

  async #rotate(files: number[]): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    files.push((files.at(-1) ?? 0) + 1);
    this.#newestBytes = 0;
    for (const old of files.splice(0, Math.max(0, files.length - FILES_KEPT))) {
      await rm(this.#path(old), { force: true });
    }
  }

  /** Goes back from the end of the newest file over `count` lines. */
  async #startOfTail(end: LogPosition, count: number): Promise<LogPosition> {
    let left = count;
    let at = end;
    while (left > 0) {
      if (at.byte === 0) {
        const earlier = this.#files?.findLast((file) => file < at.file);
        if (earlier === undefined) return at;
        at = { file: earlier, byte: await this.#sizeOf(earlier) };
        if (at.byte === 0) return at;
      }
      const from = Math.max(0, at.byte - PIECE_BYTES);
      const bytes = await this.#bytesAt({ file: at.file, byte: from }, at.byte - from);
      let start = at.byte;
      while (left > 0 && start > from) {
        const lineEnd = start - from - 1;
        const before = lineEnd === 0 ? -1 : bytes.lastIndexOf(LINE_BREAK, lineEnd - 1);
        // It begins in the piece before this one.
        if (before < 0 && from > 0) break;
        start = from + before + 1;
        left -= 1;
      }
      if (start === at.byte) return at;
      at = { file: at.file, byte: start };
    }
    return at;
  }

  async #sizeOf(number: number): Promise<number> {
    return (await stat(this.#path(number)).catch(() => null))?.size ?? 0;
  }

  /** Fewer at the end of the file, none of one that is gone. */
  async #bytesAt({ file: number, byte }: LogPosition, bytes: number): Promise<Buffer> {
    const file = await open(this.#path(number), "r").catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return null;
      throw error;
    });
    if (file === null) return Buffer.alloc(0);
    try {
      const { buffer, bytesRead } = await file.read({ buffer: Buffer.alloc(bytes), position: byte });
      return buffer.subarray(0, bytesRead);
    } finally {
      await file.close();
    }
  }

  #path(number: number): string {
    return join(this.#directory, String(number));
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }
}

/** A line of a file, as others read it. */
function parse(line: string): LogLine {
  const [at = "", boot = "", offset = "", kind = ""] = line.split(" ", 4);
  const text = line.slice(at.length + boot.length + offset.length + kind.length + 4);
  const isOutput = kind === KINDS.output || kind === KINDS.after;
  return {
    at: Number(at),
    source: isOutput ? "workload" : "node",
    text: Buffer.from(text, "latin1").toString("utf8"),
  };
}
