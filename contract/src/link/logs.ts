/**
 * A part of a machine's log on the link.
 *
 * `GET /v1/machines/{id}/logs` with a query; a position is `file:byte`, a time is in epoch milliseconds:
 *
 *     after=P, since=T     begins at a position, or with the first line of a time or later
 *     before=P, until=T    ends there
 *     tail=N               at most N lines, the last ones; without a beginning
 *     limit=N              at most N lines, the first ones
 *     search=TEXT          only lines that contain it, whatever their case
 *     follow=1             continues with new lines
 *     marks=1              each line has its position, and a mark is the first and the last message
 *
 * Always: a node of an earlier release knows only `tail`, `after` and `follow`, and sends no mark first, from
 * which the server sees that it did not understand.
 */

/** A line of a machine's log. */
export interface LogLine {
  /** Epoch milliseconds at which the node read it. */
  readonly at: number;
  /** `node`: the node's own remark, such as how the workload ended. */
  readonly source: "workload" | "node";
  /** Without its line break; bytes that are not text are U+FFFD. */
  readonly text: string;
  /** Its position, with `marks=1`. */
  readonly from?: string;
}

/** A position: `after=<next>` continues there without a gap and without a repetition. */
export interface LogMark {
  readonly next: string;
  /**
   * `start`: no line was before it; `trimmed`: those before it were removed; `end`: no line was after it when
   * it was sent.
   */
  readonly edge?: "start" | "trimmed" | "end";
  /** Lines before it that were requested were removed. */
  readonly isCut?: true;
}

export type LogMessage = LogLine | LogMark;
