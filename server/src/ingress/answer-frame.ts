/**
 * Where an answer of a guest ends, counted byte by byte: whether the connection may carry another request.
 *
 * Pure. Node's HTTP client reads answers leniently and delivers them; this only decides about reuse, by a
 * stricter grammar (RFC 9112). Both must agree that the answer is complete.
 *
 * Always:
 * - an answer that the grammar does not cover leaves the frame `unclear` for good, and the connection is not
 *   used again: lines without a carriage return, HTTP/1.0, `connection: close`, more or less than one length,
 *   trailers, an answer to HEAD, a body after a status that has none, and every byte after the end;
 * - at most HEAD_BYTES_MAX of an answer are held.
 */
const HEAD_BYTES_MAX = 64 * 1024;
/** Max length of the line that gives the size of a chunk: eight digits and the line's end. */
const SIZE_BYTES_MAX = 10;

const STATUS_LINE = /^HTTP\/1\.1 (\d{3})(?: [\t\x20-\x7e\x80-\xff]*)?$/;
const FIELD = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t ]*([\t\x20-\x7e\x80-\xff]*?)[\t ]*$/;

type State = "head" | "sized" | "chunk size" | "chunk" | "chunk end" | "last end" | "whole" | "unclear";

export class AnswerFrame {
  #state: State = "whole";
  #method = "";
  /** What is held of a head, a chunk's size or a line's end. */
  #held = "";
  /** Bytes of the body, or of the chunk, that are still to come. */
  #left = 0;
  #hasBegun = false;
  #keepMs = Number.POSITIVE_INFINITY;

  /** A request was sent: what comes now is its answer. */
  begin(method: string): void {
    this.#method = method;
    this.#state = this.#state === "whole" ? "head" : "unclear";
    this.#hasBegun = false;
    this.#held = "";
  }

  /** Whether anything of the answer has arrived. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** Whether the answer has ended, with its last byte. */
  get isWhole(): boolean {
    return this.#state === "whole";
  }

  /** How long the guest keeps the connection, in milliseconds, if it said so. */
  get keepMs(): number {
    return this.#keepMs;
  }

  take(chunk: Buffer): void {
    this.#hasBegun = true;
    let at = 0;
    while (at < chunk.length && this.#state !== "unclear") {
      if (this.#state === "sized" || this.#state === "chunk") {
        const taken = Math.min(this.#left, chunk.length - at);
        at += taken;
        this.#left -= taken;
        if (this.#left === 0) this.#state = this.#state === "sized" ? "whole" : "chunk end";
      } else if (this.#state === "whole") this.#state = "unclear";
      else at = this.#takeText(chunk, at);
    }
  }

  /** Reads as far as the end of the current head or line; returns where that is. */
  #takeText(chunk: Buffer, at: number): number {
    const isHead = this.#state === "head";
    const end = isHead ? "\r\n\r\n" : "\r\n";
    const max = isHead ? HEAD_BYTES_MAX : SIZE_BYTES_MAX;
    // The end may be in two pieces.
    const before = this.#held.length;
    const searched = this.#held + chunk.toString("latin1", at, Math.min(chunk.length, at + max));
    const found = searched.indexOf(end, Math.max(0, before - end.length));
    if (found === -1) {
      if (searched.length >= max) this.#state = "unclear";
      this.#held = searched;
      return chunk.length;
    }
    this.#held = "";
    const text = searched.slice(0, found);
    if (isHead) this.#takeHead(text);
    else this.#takeLine(text);
    return at + found + end.length - before;
  }

  #takeLine(text: string): void {
    switch (this.#state) {
      case "chunk size":
        this.#left = /^[0-9a-fA-F]{1,8}$/.test(text) ? Number.parseInt(text, 16) : Number.NaN;
        if (Number.isNaN(this.#left)) this.#state = "unclear";
        else this.#state = this.#left === 0 ? "last end" : "chunk";
        return;
      case "chunk end":
        this.#state = text === "" ? "chunk size" : "unclear";
        return;
      default:
        this.#state = text === "" ? "whole" : "unclear";
    }
  }

  #takeHead(text: string): void {
    const [first = "", ...lines] = text.split("\r\n");
    const status = Number(STATUS_LINE.exec(first)?.[1] ?? 0);
    const fields = fieldsOf(lines);
    if (status < 100 || status === 101 || fields === null) this.#state = "unclear";
    else if (status >= 200) this.#state = this.#bodyOf(status, fields);
    // After one before the final answer the next head follows.
  }

  #bodyOf(status: number, fields: readonly (readonly [string, string])[]): State {
    const of = (name: string): readonly string[] => fields.filter(([each]) => each === name).map(([, value]) => value);
    const [lengths, codings] = [of("content-length"), of("transfer-encoding")];
    const options = of("connection").flatMap((value) => value.toLowerCase().split(/[\t ]*,[\t ]*/));
    const seconds = /^timeout=(\d{1,6})\b/i.exec(of("keep-alive").join())?.[1];
    this.#keepMs = seconds === undefined ? Number.POSITIVE_INFINITY : Number(seconds) * 1000;
    if (options.includes("close") || this.#method === "HEAD") return "unclear";
    if (status === 204 || status === 304) return lengths.length + codings.length === 0 ? "whole" : "unclear";
    if (lengths.length + codings.length !== 1) return "unclear";
    if (codings.length === 1) return codings[0]?.toLowerCase() === "chunked" ? "chunk size" : "unclear";
    if (!/^\d{1,15}$/.test(lengths[0] ?? "")) return "unclear";
    this.#left = Number(lengths[0]);
    return this.#left === 0 ? "whole" : "sized";
  }
}

/** Names in small letters. null: a line is not a field. */
function fieldsOf(lines: readonly string[]): readonly (readonly [string, string])[] | null {
  const fields: (readonly [string, string])[] = [];
  for (const line of lines) {
    const [, name, value] = FIELD.exec(line) ?? [];
    if (name === undefined || value === undefined) return null;
    fields.push([name.toLowerCase(), value]);
  }
  return fields;
}
