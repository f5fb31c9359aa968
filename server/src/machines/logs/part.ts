/**
 * Which part of a log a request asks for. Pure.
 *
 * Always: a part has at most one beginning and one end, each a cursor or an instant; the format of cursors is
 * checked by who made them.
 */
import { Refusal } from "@flotilla/contract/errors";
import { LOG_SEARCH_CHARACTERS_MAX, LOG_TAIL_DEFAULT, LOG_TAIL_MAX } from "@flotilla/contract/limits";
import { parseInstant } from "../../api/instant.ts";
import type { LogFormat } from "./lines.ts";

/** The query of `listMachineLogs` and `listAppLogs`. */
export interface LogQuery {
  readonly follow?: boolean;
  readonly tail?: number;
  readonly format?: LogFormat;
  readonly from?: string;
  readonly to?: string;
  readonly after?: string;
  readonly before?: string;
  readonly limit?: number;
  readonly search?: string;
  readonly cursors?: boolean;
}

/** A place in a log: before a line, or before the first line of a time or later. */
export type LogPlace = { readonly cursor: string } | { readonly time: number };

export interface LogPart {
  readonly start: LogPlace | null;
  readonly end: LogPlace | null;
  /** At most the last lines; null: from the start. */
  readonly tail: number | null;
  /** At most the first lines; null: all. */
  readonly limit: number | null;
  readonly search: string;
  readonly isFollowing: boolean;
  readonly format: LogFormat;
  readonly hasCursors: boolean;
}

/** Throws a Refusal when the parameters contradict each other, or ask for too much. */
export function logPart(query: LogQuery): LogPart {
  const {
    follow: isFollowing = false,
    format = "text",
    search = "",
    limit = null,
    cursors: hasCursors = false,
  } = query;
  const start = placeOf(query.after, { name: "from", text: query.from, other: "after" });
  const end = placeOf(query.before, { name: "to", text: query.to, other: "before" });
  const tail = query.tail ?? (start === null ? LOG_TAIL_DEFAULT : null);
  if (tail !== null && tail > LOG_TAIL_MAX) {
    const text = `tail: ${tail} lines of a log are more than one request may have; request at most ${LOG_TAIL_MAX}`;
    throw new Refusal("invalid_request", text, { field: "tail" });
  }
  if (search.length > LOG_SEARCH_CHARACTERS_MAX)
    throw invalid(
      "search",
      `it has ${search.length} characters, and at most ${LOG_SEARCH_CHARACTERS_MAX} are compared`,
    );
  if (limit !== null && tail !== null)
    throw invalid("limit", "it counts lines after a beginning: send after or from too");
  if (isFollowing && (end !== null || limit !== null))
    throw invalid("follow", "what is followed has no end: send no before, to and limit");
  if (isFollowing && format === "plain") throw invalid("follow", "a plain log has an end: send another format");
  if (hasCursors && format !== "json") throw invalid("cursors", "only records have cursors: send format=json too");
  return { start, end, tail, limit, search, isFollowing, format, hasCursors };
}

/** Whether releases of nodes that know no parts understand it. */
export const isPlainPart = ({ start, end, limit, search, hasCursors }: LogPart): boolean =>
  start === null && end === null && limit === null && search === "" && !hasCursors;

function placeOf(
  cursor: string | undefined,
  { name, text, other }: { readonly name: string; readonly text: string | undefined; readonly other: string },
): LogPlace | null {
  if (cursor !== undefined && text !== undefined) throw invalid(other, `send ${other} or ${name}, not both`);
  if (cursor !== undefined) return { cursor };
  return text === undefined ? null : { time: Math.max(0, parseInstant(name, text)) };
}

/** The refusal of a parameter. */
export const invalid = (field: string, reason: string): Refusal =>
  new Refusal("invalid_request", `${field}: ${reason}`, { field });
