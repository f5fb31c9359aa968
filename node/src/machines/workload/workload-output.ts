/**
 * Output of a workload that is not in its machine's log yet: held as the bytes that the guest sent, because
 * lines in the log's format may be 45 times larger.
 *
 * Always:
 * - What is held is bounded, whatever the lines are: the guest's window, GAPS_MAX gaps in it and ARRIVALS_MAX
 *   times. Only the lines of one batch are in the log's format.
 * - A line has the time when its last byte arrived, or a later one if more than ARRIVALS_MAX times are held.
 * - Where the lines of output end does not depend on the pieces in which it arrived, except of a line that
 *   overwrites itself: its parts up to a carriage return are lines when they are asked for.
 */
import { type LogKind, logLine } from "./machine-log.ts";

/** A longer line is split. */
export const LINE_BYTES_MAX = 16 * 1024;
/** Written, and acknowledged to the guest, together. */
const BATCH_BYTES = 128 * 1024;
/**
 * Output after more gaps is discarded. A guest whose host acknowledges batches from a full window makes about
 * 100.
 */
export const GAPS_MAX = 1_024;
export const ARRIVALS_MAX = 1_024;
const CAPACITY_BYTES_MIN = 1_024;
const LINE_BREAK = 10;
const CARRIAGE_RETURN = 13;
const NOTHING = Buffer.alloc(0);

/** Lines in the log's format. */
export interface Batch {
  readonly lines: Buffer;
  /** Offset of the output after them, and how many bytes of output they are. */
  readonly offset: number;
  readonly bytes: number;
}

/** A line of the node's own. */
interface Note {
  readonly at: number;
  readonly kind: LogKind;
  readonly text: string;
}

/** Output without a gap, and the note before it. */
interface Stretch {
  note: Note | null;
  readonly kind: LogKind;
  /** Offset of the first byte that was not taken. */
  offset: number;
  /** Number of bytes that were not taken. */
  bytes: number;
  /** Nothing is added, so that the text after the last line break is a line. */
  isClosed: boolean;
  /** Bytes of output that followed it and was discarded. Acknowledged with it. */
  discardedBytes: number;
}

/** When bytes arrived: those up to `position`, counted from the first byte of this object. */
interface Arrival {
  at: number;
  position: number;
}

const isEmpty = ({ note, bytes }: Stretch): boolean => note === null && bytes === 0;

export class WorkloadOutput {
  readonly #boot: string;
  #hasEnded: boolean;
  /** Offset of the next byte to come. */
  #nextOffset: number;
  /** In the order of the output. The last one grows. */
  #stretches: Stretch[] = [];
  #arrivals: Arrival[] = [];
  #receivedBytes = 0;
  #takenBytes = 0;
  /** To acknowledge with the batch that is being taken. */
  #creditBytes = 0;
  /** What is held is from `#start` to `#end` in it. */
  #buffer = NOTHING;
  #start = 0;
  #end = 0;

  /** Begins at an offset of the output of a boot. */
  constructor(boot: string, progress: { readonly offset: number; readonly hasEnded: boolean }) {
    this.#boot = boot;
    this.#nextOffset = progress.offset;
    this.#hasEnded = progress.hasEnded;
    this.#begin(null);
  }

  /** The workload has ended. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Memory for output, in bytes. */
  get capacity(): number {
    return this.#buffer.byteLength;
  }

  /** Adds output that arrived at a time; `offset` is that of its first byte. Copies it. */
  add(at: number, offset: number, bytes: Buffer): void {
    const lost = offset - this.#nextOffset;
    if (lost > 0) {
      if (this.#stretches.length > GAPS_MAX) {
        this.#discard(bytes.byteLength);
        return;
      }
      this.#nextOffset = offset;
      const text = `${lost} bytes of the workload's output were lost: no reader could take them`;
      this.#begin({ at, kind: "note", text });
    }
    const stretch = this.#stretches.at(-1);
    if (stretch !== undefined) stretch.bytes += bytes.byteLength;
    this.#nextOffset += bytes.byteLength;
    this.#receivedBytes += bytes.byteLength;
    this.#noteArrival(at);
    const end = this.#end + bytes.byteLength;
    if (end > this.#buffer.byteLength) this.#resize(end - this.#start);
    this.#end += bytes.copy(this.#buffer, this.#end);
  }

  /** The note of the next gap counts it: `#nextOffset` is unchanged. */
  #discard(bytes: number): void {
    this.close();
    const stretch = this.#stretches.at(-1);
    if (stretch !== undefined) stretch.discardedBytes += bytes;
  }

  /** Adds the workload's end. Output that follows is of children that survive. */
  end(at: number, text: string): void {
    this.#hasEnded = true;
    this.#begin({ at, kind: "end", text });
  }

  /** No more is added: the text after the last line break is a line. */
  close(): void {
    const stretch = this.#stretches.at(-1);
    if (stretch !== undefined) stretch.isClosed = true;
  }

  /** Discards what is held. */
  clear(): void {
    this.#stretches = [];
    this.#arrivals = [];
    this.#buffer = NOTHING;
    this.#start = 0;
    this.#end = 0;
  }

  /** The last line, which is not complete, overwrites itself, as a progress bar does. */
  get overwritesItself(): boolean {
    const [first, next] = this.#stretches;
    return first !== undefined && next === undefined && this.#overwrittenBytes(first) > 0;
  }

  /** Removes the next complete lines; null: there are none. `withOverwritten`: also what was overwritten. */
  take({ withOverwritten = false }: { readonly withOverwritten?: boolean } = {}): Batch | null {
    let text = "";
    for (let line = this.#takeLine(); line !== null; line = this.#takeLine()) {
      text += line;
      if (text.length >= BATCH_BYTES) break;
    }
    if (text === "" && withOverwritten && this.overwritesItself) text = this.#takeOverwritten();
    const [next] = this.#stretches;
    if (text === "" || next === undefined) return null;
    const held = this.#end - this.#start;
    if (held * 4 < this.#buffer.byteLength) this.#resize(held);
    // As bytes, because a string that was concatenated line by line takes many times its size.
    const lines = Buffer.from(text, "latin1");
    const bytes = this.#creditBytes;
    this.#creditBytes = 0;
    return { lines, offset: next.offset, bytes };
  }

  #begin(note: Note | null): void {
    this.close();
    const kind = this.#hasEnded ? "after" : "output";
    this.#stretches.push({ note, kind, offset: this.#nextOffset, bytes: 0, isClosed: false, discardedBytes: 0 });
  }

  #noteArrival(at: number): void {
    const last = this.#arrivals.at(-1);
    if (last !== undefined && (last.at === at || this.#arrivals.length >= ARRIVALS_MAX)) {
      last.at = at;
      last.position = this.#receivedBytes;
    } else {
      this.#arrivals.push({ at, position: this.#receivedBytes });
    }
  }

  /** The next line in the log's format; null: none is complete. */
  #takeLine(): string | null {
    let [stretch] = this.#stretches;
    while (stretch !== undefined && this.#stretches.length > 1 && isEmpty(stretch)) {
      this.#stretches.shift();
      [stretch] = this.#stretches;
    }
    if (stretch === undefined) return null;
    const line = stretch.note === null ? this.#takeOutput(stretch) : this.#takeNote(stretch, stretch.note);
    if (isEmpty(stretch)) {
      this.#creditBytes += stretch.discardedBytes;
      stretch.discardedBytes = 0;
    }
    return line;
  }

  #takeNote(stretch: Stretch, { at, kind, text }: Note): string {
    stretch.note = null;
    return logLine(at, this.#boot, stretch.offset, kind, text);
  }

  #takeOverwritten(): string {
    const [stretch] = this.#stretches;
    return (stretch && this.#takeOutput(stretch, this.#overwrittenBytes(stretch))) ?? "";
  }

  /** How many bytes are before the last carriage return that more follows, with it; 0: there is none. */
  #overwrittenBytes({ bytes }: Stretch): number {
    const seen = this.#buffer.subarray(this.#start, this.#start + Math.min(bytes, LINE_BYTES_MAX));
    return seen.includes(LINE_BREAK) || seen.byteLength < 2 ? 0 : seen.lastIndexOf(CARRIAGE_RETURN, -2) + 1;
  }

  #takeOutput(stretch: Stretch, bytes = this.#lineBytes(stretch)): string | null {
    if (bytes === 0) return null;
    const line = this.#buffer.toString("latin1", this.#start, this.#start + bytes);
    this.#start += bytes;
    this.#takenBytes += bytes;
    this.#creditBytes += bytes;
    stretch.offset += bytes;
    stretch.bytes -= bytes;
    const hasBreak = line.endsWith("\n");
    const isSplit = !hasBreak && stretch.bytes > 0;
    const text = hasBreak ? line.slice(0, -1) : line;
    const shown = text.endsWith("\r") && !isSplit ? text.slice(0, -1) : text;
    return logLine(this.#timeOfTaken(), this.#boot, stretch.offset, stretch.kind, shown);
  }

  /** How many bytes the next line of a stretch has, with its line break; 0: it is not complete. */
  #lineBytes({ bytes, isClosed }: Stretch): number {
    const seen = this.#buffer.subarray(this.#start, this.#start + Math.min(bytes, LINE_BYTES_MAX + 1));
    const at = seen.indexOf(LINE_BREAK);
    if (at >= 0) return at + 1;
    if (bytes > LINE_BYTES_MAX) return LINE_BYTES_MAX;
    return isClosed ? bytes : 0;
  }

  /** When the last byte that was taken arrived. */
  #timeOfTaken(): number {
    let [first] = this.#arrivals;
    while (first !== undefined && first.position < this.#takenBytes && this.#arrivals.length > 1) {
      this.#arrivals.shift();
      [first] = this.#arrivals;
    }
    return first?.at ?? 0;
  }

  /** Moves what is held to the beginning of a buffer with room for that many bytes. */
  #resize(bytes: number): void {
    const capacity = bytes === 0 ? 0 : Math.max(CAPACITY_BYTES_MIN, 2 ** Math.ceil(Math.log2(bytes)));
    const former = this.#buffer;
    // Not a part of a shared slab, which would be kept with it.
    if (capacity !== former.byteLength) this.#buffer = capacity === 0 ? NOTHING : Buffer.allocUnsafeSlow(capacity);
    this.#end = former.copy(this.#buffer, 0, this.#start, this.#end);
    this.#start = 0;
  }
}
