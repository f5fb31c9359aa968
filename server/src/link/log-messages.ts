/**
 * Messages of a node about a log, out of the pieces of its answer. Pure.
 */
import type { LogLine, LogMark, LogMessage } from "@flotilla/contract/link/link";

/** Longer than any line of a node. */
const LINE_CHARACTERS_MAX = 1024 * 1024;
const POSITION = /^\d{1,15}:\d{1,15}$/;
const EDGES = ["start", "trimmed", "end"] as const;

/** Decodes a node's response: text in chunks → whole messages. */
export class LogMessages {
  readonly #decoder = new TextDecoder();
  #rest = "";

  /** Throws when the text is not a message. */
  push(chunk: Uint8Array): readonly LogMessage[] {
    const lines = (this.#rest + this.#decoder.decode(chunk, { stream: true })).split("\n");
    this.#rest = lines.pop() ?? "";
    if (this.#rest.length > LINE_CHARACTERS_MAX) throw new Error("a line of a log that is too long");
    return lines.map((line) => parse(line));
  }
}

const isPosition = (value: unknown): value is string => typeof value === "string" && POSITION.test(value);

function parse(line: string): LogMessage {
  const value = JSON.parse(line) as Partial<LogLine> & { readonly [Name in keyof LogMark]?: unknown };
  if (isPosition(value.next)) {
    const edge = EDGES.find((each) => each === value.edge);
    return {
      next: value.next,
      ...(edge === undefined ? {} : { edge }),
      ...(value.isCut === true ? { isCut: true as const } : {}),
    };
  }
  const { at, source, text, from } = value;
  const isLine = typeof text === "string" && typeof at === "number" && Math.abs(at) <= 8.64e15;
  if (!isLine || (source !== "workload" && source !== "node")) throw new Error("a line of a log that does not fit");
  return { at, source, text: text.replaceAll("\n", " "), ...(isPosition(from) ? { from } : {}) };
}
