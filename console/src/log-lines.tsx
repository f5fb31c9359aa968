/**
 * The lines of a log as a list, of which only those that are seen are in the page.
 *
 * Always:
 * - While the log is followed the last line is seen; scrolling up pauses it.
 * - What is read before the first line moves nothing that is seen.
 * - Home goes to the first line of the log and End to its last, whatever is in memory.
 */
import { type KeyboardEvent, memo, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { LogReader, LogView } from "./log-reader.ts";
import { type Rows, useRows } from "./log-rows.ts";
import { marked, piecesOf, SHOWN_MAX } from "./log-text.ts";
import type { LogLine } from "./log-window.ts";
import { renderBytes } from "./format.ts";
import { Button } from "./ui/parts.tsx";

const END_PIXELS = 24;
/** Further lines are read before they are seen. */
const NEAR_PIXELS = 3_000;
/** Before every line. */
const BEGINNING = "1970-01-01T00:00:00Z";

interface LogLinesProps {
  readonly reader: LogReader;
  readonly view: LogView;
  readonly isWrapped: boolean;
  readonly hasTimes: boolean;
  /** In lower case. */
  readonly wanted: string;
  /** The line that is chosen, by its cursor. */
  readonly chosen: string;
  readonly choose: (line: LogLine | null) => void;
  readonly empty: string;
}

export function LogLines(props: LogLinesProps) {
  const { reader, view, isWrapped, chosen, choose } = props;
  const { lines, state, start, hasMore, jump, target } = view;
  const scroller = useRef<HTMLDivElement>(null);
  const count = lines.length;
  const first = lines[0]?.number ?? 0;
  const all = useRows({
    scroller,
    count,
    keyOf: (index) => lines[index]?.number ?? index,
    isWrapped,
    isAtEnd: state === "following",
  });
  const last = useRef({ first, top: 0, jump: -1, isDown: false, anchor: { number: 0, below: 0 } });
  /** Notes which line is seen first, and how far it is above the edge. */
  const noteAnchor = (top: number): void => {
    const item = all.at(top);
    const line = item === undefined ? undefined : lines[item.index];
    if (item !== undefined && line !== undefined)
      last.current.anchor = { number: line.number, below: top - item.start };
  };
  useLayoutEffect(() => {
    const element = scroller.current;
    if (element === null) return;
    const { anchor, jump: jumped, first: former } = last.current;
    if (jumped !== jump) {
      const index = target === null ? -1 : target - first;
      const start = index < 0 ? undefined : all.startOf(index);
      if (start !== undefined) element.scrollTop = start - element.clientHeight / 2;
      last.current.isDown = false;
    } else if (state !== "following" && former !== first) {
      // Lines came or went above: what is seen stays where it is.
      const start = all.startOf(anchor.number - first);
      if (start !== undefined) element.scrollTop = start + anchor.below;
    }
    if (state === "following" && count > 0) {
      // A move whose event is still to come; one by removed lines ends at the end.
      const isMoved = jumped === jump && element.scrollTop < last.current.top - 1 && isAwayFromEnd(element);
      if (isMoved) last.current.isDown = false;
      if (isMoved) reader.pause();
      else element.scrollTop = element.scrollHeight;
    }
    last.current = { ...last.current, first, jump, top: element.scrollTop };
    // Where it is followed, the last rows are in the page wherever it was scrolled.
    if (state !== "following") all.scrolled();
    noteAnchor(element.scrollTop);
  });
  const resumeAtEnd = (): void => {
    const element = scroller.current;
    const { state: now, hasMore: mayRead } = reader.view();
    if (element === null || now !== "paused" || mayRead || !last.current.isDown) return;
    if (!isAwayFromEnd(element)) reader.resume();
  };
  const onScroll = (): void => {
    const element = scroller.current;
    if (element === null) return;
    const { scrollTop: top, scrollHeight, clientHeight } = element;
    const isUp = top < last.current.top - 1;
    if (isUp || top > last.current.top + 1) last.current.isDown = !isUp;
    last.current.top = top;
    all.scrolled();
    noteAnchor(top);
    const left = scrollHeight - top - clientHeight;
    if (isUp && isAwayFromEnd(element)) reader.pause();
    if (top < NEAR_PIXELS) void reader.readBefore();
    if (left < NEAR_PIXELS && !isUp && hasMore) void reader.readAfter().then(resumeAtEnd);
    else resumeAtEnd();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Home" && event.key !== "End") return;
    event.preventDefault();
    if (event.key === "End") reader.follow();
    else void reader.goTo({ time: BEGINNING });
  };
  return (
    <div className="log-frame">
      <div
        className={isWrapped ? "log-lines wrapped" : "log-lines"}
        ref={scroller}
        onScroll={onScroll}
        onKeyDown={onKeyDown}
        tabIndex={0}
        role="log"
        aria-label="Log"
        aria-live="off"
      >
        {count === 0 ? (
          <p className="dim none">{state === "reading" ? "Reading the log" : props.empty}</p>
        ) : (
          <div className="log-all" style={{ height: all.total }}>
            <p className="log-edge dim">{EDGES[start]}</p>
            {all.rows.map((item) => {
              const line = lines[item.index];
              return (
                line && (
                  <Row
                    key={line.number}
                    line={line}
                    index={item.index}
                    top={item.start}
                    measure={all.measure}
                    hasTimes={props.hasTimes}
                    wanted={props.wanted}
                    isChosen={chosen !== "" && line.cursor === chosen}
                    choose={choose}
                  />
                )
              );
            })}
          </div>
        )}
      </div>
      {state === "paused" && (
        <Button look="main" onClick={() => reader.follow()}>
          Follow
        </Button>
      )}
    </div>
  );
}

const isAwayFromEnd = ({ scrollHeight, scrollTop, clientHeight }: HTMLElement): boolean =>
  scrollHeight - scrollTop - clientHeight > END_PIXELS;

const EDGES: Readonly<Record<LogView["start"], string>> = {
  start: "The log begins here.",
  trimmed: "Earlier lines were removed: the newest 8 to 16 MiB of each machine's log are kept.",
  more: "Reading earlier lines",
};

interface RowProps {
  readonly line: LogLine;
  readonly index: number;
  readonly top: number;
  readonly measure: Rows["measure"];
  readonly hasTimes: boolean;
  readonly wanted: string;
  readonly isChosen: boolean;
  readonly choose: (line: LogLine | null) => void;
}

const SOURCES: Readonly<Record<LogLine["source"], string>> = {
  workload: "log-line",
  node: "log-line of-node",
  gap: "log-line of-gap",
};

const Row = memo(function Row({ line, index, top, measure, hasTimes, wanted, isChosen, choose }: RowProps) {
  const onClick = (): void => {
    // A drag over lines chooses text.
    if (getSelection()?.isCollapsed === false || line.source === "gap") return;
    choose(isChosen ? null : line);
  };
  return (
    // The keyboard chooses lines by search; a pointer may choose any.
    <div
      className={isChosen ? `${SOURCES[line.source]} chosen` : SOURCES[line.source]}
      data-index={index}
      data-number={line.number}
      ref={measure}
      style={{ transform: `translateY(${top}px)` }}
      onClick={onClick}
    >
      {hasTimes && line.at !== "" && <time dateTime={line.at}>{timeOf(line.at)} </time>}
      {line.instanceId !== null && <InstanceName id={line.instanceId} />}
      <LineText text={line.text} wanted={wanted} />
    </div>
  );
});

/** In the browser's time zone. */
function timeOf(at: string): string {
  const date = new Date(at);
  const two = (value: number): string => String(value).padStart(2, "0");
  const millis = String(date.getMilliseconds()).padStart(3, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${millis}`;
}

const INSTANCE_LOOKS = 6;

function InstanceName({ id }: { readonly id: string }) {
  const end = id.slice(-6);
  return <span className={`log-instance look-${Number.parseInt(end, 16) % INSTANCE_LOOKS}`}>{end} </span>;
}

function LineText({ text, wanted }: { readonly text: string; readonly wanted: string }) {
  const [isWhole, setIsWhole] = useState(false);
  const pieces = useMemo(() => marked(piecesOf(text, isWhole), wanted), [text, isWhole, wanted]);
  return (
    <>
      {pieces.map((piece, index) => {
        if (piece.isHit === true)
          return (
            <mark key={index} className={piece.look}>
              {piece.text}
            </mark>
          );
        if (piece.look === "") return piece.text;
        return (
          <span key={index} className={piece.look}>
            {piece.text}
          </span>
        );
      })}
      {!isWhole && text.length > SHOWN_MAX && (
        <button
          type="button"
          className="label"
          onClick={(event) => {
            event.stopPropagation();
            setIsWhole(true);
          }}
        >
          show all {renderBytes(text.length)}
        </button>
      )}
    </>
  );
}
