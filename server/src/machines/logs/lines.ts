/**
 * Lines of a machine's log: the format of a node, and the format for callers. Pure.
 *
 * Existing clients print every line that is not empty, without its `data: `. So there are no `event:` or
 * `id:` lines and no comments, and an empty line, which no client prints, keeps a silent connection alive.
 */
import type { LogLine, LogMessage } from "@flotilla/contract/link/link";

export type LogFormat = "text" | "json";

/** A line in the caller's format. Remarks of the node are distinct from the workload's output. */
export function logEvent({ at, source, text }: LogLine, format: LogFormat): string {
  if (format === "text") return textEvents(source === "node" ? `flotilla: ${text}` : text);
  const record = { timestamp: new Date(at).toISOString(), level: "info", message: text, source };
  return `data: ${JSON.stringify(record)}\n\n`;
}

/**
 * A carriage return ends a line for readers of event streams, and the text after it would be lost. So each
 * part between carriage returns is a separate event.
 */
function textEvents(text: string): string {
  const parts = text.split("\r").filter((part) => part !== "");
  return (parts.length === 0 ? [""] : parts).map((part) => `data: ${part}\n\n`).join("");
}

/** Longer than any line of a node. */
const LINE_CHARACTERS_MAX = 1024 * 1024;

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

function parse(line: string): LogMessage {
  const value = JSON.parse(line) as Partial<LogLine> & { readonly next?: unknown };
  if (typeof value.next === "string" && /^\d{1,16}:\d{1,16}$/.test(value.next)) return { next: value.next };
  const { at, source, text } = value;
  const isLine = typeof text === "string" && typeof at === "number" && Math.abs(at) <= 8.64e15;
  if (!isLine || (source !== "workload" && source !== "node")) throw new Error("a line of a log that does not fit");
  return { at, source, text: text.replaceAll("\n", " ") };
}
