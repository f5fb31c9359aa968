/**
 * One machine's log on the host's disk: the output of its workload, readable also while the machine is
 * stopped.
 *
 * Owns `logs/<number>` in the machine's directory. The newest file is appended to, the one before it is kept,
 * and older ones are removed, so a guest cannot fill the host's disk. The format of a line:
 *
 *     <epoch ms> <boot's directory name> <offset> <kind> <text>
 *
 * The offset is that of the byte after the line in the workload's output. It says how much of a boot's output
 * is safe: after a crash the next agent requests the output from there. Text is bytes, read as latin1.
 *
 * Always:
 * - Readers see whole lines. Half a line, left by a crash, is cut off before the next is written.
 * - A position is a file's number and a byte in it. A reader whose file was removed continues at the oldest
 *   file, and is notified of that. Positions of callers may be anywhere: `wholeLine` moves one to a line.
 */
import { mkdir, open, rm, stat, truncate } from "node:fs/promises";
import { join } from "node:path";
import type { LogLine } from "@flotilla/contract/link/link";
import { namesIn } from "../../host/names-in.ts";

const FILE_BYTES_MAX = 8 * 1024 * 1024;
const FILES_KEPT = 2;
const PIECE_BYTES = 64 * 1024;
const LINE_BREAK = 10;
/** Name of a file of the log. */
export const LOG_NAME = /^[0-9]{1,15}$/;

/** `end`: the workload's end. `after`: output after the end, from children that survive. */
const KINDS = { output: "o", note: "n", end: "e", after: "a" } as const;
export type LogKind = keyof typeof KINDS;

export interface LogPosition {
  readonly file: number;
  readonly byte: number;
}

/** After every position. */
const NOWHERE: LogPosition = { file: Number.POSITIVE_INFINITY, byte: 0 };

/** How much of a boot's output is safe. */
export interface BootProgress {
  readonly offset: number;
  readonly hasEnded: boolean;
}

export interface LogPiece {
  readonly lines: readonly LogLine[];
  /** Where each begins in the file of `next`. */
  readonly starts: readonly number[];
  /** After the last of them. */
  readonly next: LogPosition;
  /** Lines before the first of them, and after the requested position, were removed. */
  readonly isCut: boolean;
}

/** A line as it is in a file. */
interface PlacedLine {
  readonly at: number;
  readonly start: number;
  /** After its line break. */
  readonly next: number;
}

/** A line in the file's format. `text` holds bytes as latin1, without a line break. */
export function logLine(at: number, boot: string, offset: number, kind: LogKind, text: string): string {
  return `${at} ${boot} ${offset} ${KINDS[kind]} ${text}\n`;
}

export class MachineLog {
  readonly #directory: string;
  /** Numbers of the files, oldest first; null until the directory was read. */
  #files: number[] | null = null;
  #newestBytes = 0;
  readonly #listeners = new Set<() => void>();
  #isRemoved = false;

  /** Opens nothing until the first read or write. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /** The machine was removed, so its log does not grow any more. */
  get isRemoved(): boolean {
    return this.#isRemoved;
  }

  /** Calls back after every change; the function returned ends that. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The files are removed by the caller. */
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
      // A full disk may have written a part.
      await file.truncate(this.#newestBytes).catch(() => undefined);
      throw error;
    } finally {
      await file.close();
    }
    this.#notify();
  }

  /** How much of the output of a boot is safe. */
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

  /** The position after the last line. */
  async end(): Promise<LogPosition> {
    const files = await this.#found();
    return { file: files.at(-1) ?? 0, byte: this.#newestBytes };
  }

  /**
   * Where the last `count` lines before the position begin; without a position, the last lines of the log.
   */
  async tail(count: number, before?: LogPosition): Promise<LogPosition> {
    const end = before ?? (await this.end());
    return end.file === 0 ? end : this.#startOfTail(end, count);
  }

  /** The next lines after a position, PIECE_BYTES at most; none at the end of the log and at `end`. */
  async read(position: LogPosition, end: LogPosition = NOWHERE): Promise<LogPiece> {
    const files = await this.#found();
    const [oldest] = files;
    if (oldest === undefined) return nothingAt(position);
    const isRemoved = position.file < oldest;
    const from = isRemoved ? { file: oldest, byte: 0 } : position;
    // Before the first line of the first file there was none.
    const isCut = isRemoved && oldest > 1;
    const room = from.file === end.file ? end.byte - from.byte : PIECE_BYTES;
    if (room <= 0 || from.file > end.file) return { ...nothingAt(from), isCut };
    const bytes = await this.#bytesAt(from, Math.min(room, PIECE_BYTES));
    const length = bytes.lastIndexOf(LINE_BREAK) + 1;
    if (length > 0) {
      const lines = bytes.toString("latin1", 0, length - 1).split("\n");
      let start = from.byte;
      const starts = lines.map((line) => (start += line.length + 1) - line.length - 1);
      return { lines: lines.map(parse), starts, next: { file: from.file, byte: from.byte + length }, isCut };
    }
    const following = files.find((file) => file > from.file);
    if (following === undefined) return { ...nothingAt(from), isCut };
    const piece = await this.read({ file: following, byte: 0 }, end);
    return isCut ? { ...piece, isCut } : piece;
  }

  /** The position of the first line that is kept, and whether earlier ones were removed. */
  async start(): Promise<{ readonly position: LogPosition; readonly isTrimmed: boolean }> {
    const [oldest = 0] = await this.#found();
    return { position: { file: oldest, byte: 0 }, isTrimmed: oldest > 1 };
  }

  /**
   * The first line that was written at that time or later; the end of the log when there is none. Exact while
   * the host's clock was not set back.
   */
  async seek(at: number): Promise<LogPosition> {
    const files = await this.#found();
    let [file] = files;
    if (file === undefined) return this.end();
    for (const later of files.slice(1)) {
      const first = await this.#lineFrom({ file: later, byte: 0 });
      if (first !== null && first.at < at) file = later;
    }
    // Lines that begin before `low` are earlier; the first that begins at `high` or after it is not.
    let low = 0;
    let high = await this.#sizeOf(file);
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      const line = await this.#lineFrom({ file, byte: middle });
      if (line === null || line.start >= high || line.at >= at) high = middle;
      else low = line.next;
    }
    return { file, byte: low };
  }

  /** The position itself when a line begins there, else where the next one begins. */
  async wholeLine(position: LogPosition): Promise<LogPosition> {
    const { file, byte } = position;
    const files = await this.#found();
    if (byte === 0 || !files.includes(file)) return position;
    const line = await this.#lineFrom(position);
    return { file, byte: line === null ? Math.min(byte, await this.#sizeOf(file)) : line.start };
  }

  /** The first line that begins at a position or after it in the same file; null: there is none. */
  async #lineFrom({ file, byte }: LogPosition): Promise<PlacedLine | null> {
    const from = Math.max(0, byte - 1);
    const bytes = await this.#bytesAt({ file, byte: from }, PIECE_BYTES);
    const begin = byte === 0 ? 0 : bytes.indexOf(LINE_BREAK) + 1;
    if (byte > 0 && begin === 0) return null;
    const end = bytes.indexOf(LINE_BREAK, begin);
    if (end < 0) return null;
    return { at: parseInt(bytes.toString("latin1", begin, begin + 16), 10), start: from + begin, next: from + end + 1 };
  }

  /** The files' numbers. The first call also cuts off an incomplete line that a crash left. */
  async #found(): Promise<number[]> {
    if (this.#files !== null) return this.#files;
    const files = (await namesIn(this.#directory))
      .filter((name) => LOG_NAME.test(name))
      .map(Number)
      .toSorted((one, other) => one - other);
    const newest = files.at(-1);
    const bytes = newest === undefined ? 0 : await this.#cutOff(this.#path(newest));
    // A concurrent call may have been faster.
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

  /** Fewer bytes at the end of the file, none when the file was removed. */
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

const nothingAt = (next: LogPosition): LogPiece => ({ lines: [], starts: [], next, isCut: false });

/** A line of a file, in the link's format. */
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
