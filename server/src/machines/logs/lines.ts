/**
 * Lines of a log in the format for callers, and which part of a log a request asks for. Pure.
 *
 * Existing clients print every line that is not empty, without its `data: `. So there are no `event:` or
 * `id:` lines and no comments, and an empty line, which no client prints, keeps a silent connection alive.
 */
import type { LogLine, LogMark } from "@flotilla/contract/link/link";

/** `plain`: a file of lines, each with its time. */
export type LogFormat = "text" | "json" | "plain";

interface AboutLine {
  /** In the log of an app: whose line it is. */
  readonly instanceId?: string;
  /** Where it begins. */
  readonly cursor?: string | undefined;
}

/** A line in the caller's format. Remarks of the node are distinct from the workload's output. */
export function logEvent({ at, source, text }: LogLine, format: LogFormat, about: AboutLine = {}): string {
  const { instanceId, cursor } = about;
  const timestamp = new Date(at).toISOString();
  if (format === "json") {
    const whose = instanceId === undefined ? {} : { instanceId };
    const record = { timestamp, level: "info", ...whose, message: text, source };
    return `data: ${JSON.stringify(cursor === undefined ? record : { ...record, cursor })}\n\n`;
  }
  const whose = instanceId === undefined ? "" : `[${instanceId}] `;
  const own = source === "node" ? "flotilla: " : "";
  if (format === "plain") return `${timestamp} ${whose}${own}${text}\n`;
  return partsOf(`${own}${text}`)
    .map((part) => `data: ${whose}${part}\n\n`)
    .join("");
}

/**
 * A carriage return ends a line for readers of event streams, and the text after it would be lost. So each
 * part between carriage returns is a separate event.
 */
function partsOf(text: string): readonly string[] {
  const parts = text.split("\r").filter((part) => part !== "");
  return parts.length === 0 ? [""] : parts;
}

/** What a reader of cursors gets between lines. */
export function markEvent(cursor: string, { edge, isCut }: Pick<LogMark, "edge" | "isCut"> = {}): string {
  return `data: ${JSON.stringify({ cursor, edge, isCut })}\n\n`;
}
