/**
 * What a request for the log of a machine or an app may ask for.
 */
import { oneOf, text, Type } from "./schema.ts";

/** What the descriptions of both endpoints say about parts of a log. */
export const LOG_PARTS =
  "`from`, `to`, `after` and `before` choose a part of the log, `search` its lines with a text, and `format=plain` is a " +
  "file of lines with their times. With `cursors` each record has a `cursor`, which is a place before it for `after` and " +
  "`before`. Then records of a `cursor` alone come first, last and at times between: `edge` says whether it is the `start` " +
  "of the log, where earlier lines were removed (`trimmed`), or its present `end`; `isCut`, that lines before it were " +
  "removed which the request asked for. Such a reader continues after the last cursor without losing or repeating a line.";

const place = (description: string) => Type.Optional(text({ maxLength: 64, description }));
/** With the places of many instances it is long. */
const cursor = (description: string) => Type.Optional(text({ maxLength: 8_192, description }));

export const LogsQuery = Type.Object({
  follow: Type.Optional(Type.Boolean({ description: "continue with new lines; not with `before`, `to` and `limit`" })),
  tail: Type.Optional(
    Type.Integer({
      minimum: 0,
      description:
        "at most so many lines, the last ones before the end: at most 10,000; default: 100 without `from` and `after`, else all",
    }),
  ),
  format: Type.Optional(oneOf(["text", "json", "plain"])),
  from: place("RFC 3339, inclusive"),
  to: place("RFC 3339, exclusive"),
  after: cursor("a cursor of this log: lines after it"),
  before: cursor("a cursor of this log: lines before it"),
  limit: Type.Optional(
    Type.Integer({ minimum: 1, description: "at most so many lines, the first ones after `from` or `after`" }),
  ),
  search: Type.Optional(
    text({ description: "only lines that contain this text, in upper or lower case; at most 200 characters" }),
  ),
  cursors: Type.Optional(Type.Boolean({ description: "with `format=json`" })),
});
