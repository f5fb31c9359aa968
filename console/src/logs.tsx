/**
 * The view of a log: a list of any length, of which only the lines that are seen are in the page.
 *
 * Always: it follows while its end is seen; scrolling back stops that, and a button resumes it.
 */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useDeferredValue, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { LogFollower, type LogLine } from "./log-follow.ts";
import { piecesOf, SHOWN_MAX } from "./log-text.ts";
import { renderBytes } from "./format.ts";
import { Button, ErrorNote } from "./ui/parts.tsx";

const LINE_PIXELS = 20;
const NEAR_END_PIXELS = 24;

interface LogProps {
  /** The start of the name of a downloaded file. */
  readonly name: string;
  readonly read: ConstructorParameters<typeof LogFollower>[0];
  readonly empty: string;
}

export function LogPane({ name, read, empty }: LogProps) {
  const [follower] = useState(() => new LogFollower(read));
  useEffect(() => follower.start(), [follower]);
  const { lines, dropped, state, error } = useSyncExternalStore(follower.subscribe, follower.view);
  const [find, setFind] = useState("");
  const [isWrapped, setIsWrapped] = useState(false);
  const [hasTimes, setHasTimes] = useState(false);
  const wanted = useDeferredValue(find.trim().toLowerCase());
  const count = lines.length;
  const shown = useMemo(
    () => (wanted === "" ? lines : lines.filter(({ text }) => text.toLowerCase().includes(wanted))),
    // The array grows in place: its length says that it did.
    [lines, count, dropped, wanted],
  );
  const download = (): void => {
    const text = lines.map((line) => `${line.at} ${line.text}\n`);
    const url = URL.createObjectURL(new Blob(text, { type: "text/plain" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = `${name}.log`;
    link.click();
    URL.revokeObjectURL(url);
  };
  return (
    <div className="log">
      <div className="filters">
        <input
          type="search"
          aria-label="Find in the log"
          placeholder="Find in the log"
          value={find}
          onChange={(event) => setFind(event.target.value)}
        />
        <label className="check">
          <input type="checkbox" checked={isWrapped} onChange={(event) => setIsWrapped(event.target.checked)} />
          Wrap
        </label>
        <label className="check">
          <input type="checkbox" checked={hasTimes} onChange={(event) => setHasTimes(event.target.checked)} />
          Times
        </label>
        <span className="dim grow" role="status">
          {wanted === ""
            ? `${(count + dropped).toLocaleString("en")} lines`
            : `${shown.length.toLocaleString("en")} of ${count.toLocaleString("en")} lines`}
          {state === "waiting" && " · waiting for the connection"}
        </span>
        <Button icon="download" onClick={download} disabled={count === 0}>
          Download
        </Button>
      </div>
      <ErrorNote error={error} />
      <Lines
        lines={shown}
        count={shown.length}
        isWrapped={isWrapped}
        hasTimes={hasTimes}
        wanted={wanted}
        empty={state === "reading" ? "Reading the log" : empty}
      />
    </div>
  );
}

interface LinesProps {
  readonly lines: readonly LogLine[];
  readonly count: number;
  readonly isWrapped: boolean;
  readonly hasTimes: boolean;
  readonly wanted: string;
  readonly empty: string;
}

function Lines({ lines, count, isWrapped, hasTimes, wanted, empty }: LinesProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const [isAtEnd, setIsAtEnd] = useState(true);
  const virtual = useVirtualizer({
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => LINE_PIXELS,
    overscan: 20,
  });
  useEffect(() => {
    if (isAtEnd && count > 0) virtual.scrollToIndex(count - 1, { align: "end" });
  }, [count, isAtEnd, isWrapped, virtual]);
  const onScroll = (): void => {
    const element = scroller.current;
    if (element === null) return;
    setIsAtEnd(element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PIXELS);
  };
  return (
    <div className="log-frame">
      <div
        className={isWrapped ? "log-lines wrapped" : "log-lines"}
        ref={scroller}
        onScroll={onScroll}
        tabIndex={0}
        role="log"
        aria-label="Log"
        aria-live="off"
      >
        {count === 0 && <p className="dim none">{wanted === "" ? empty : "No line has this text."}</p>}
        <div style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const line = lines[item.index];
            return (
              line && (
                <div
                  key={line.number}
                  className={line.source === "node" ? "log-line of-node" : "log-line"}
                  data-index={item.index}
                  ref={isWrapped ? virtual.measureElement : null}
                  style={{ transform: `translateY(${item.start}px)` }}
                >
                  {hasTimes && <time dateTime={line.at}>{line.at.slice(11, 23)} </time>}
                  {line.instanceId !== null && <span className="dim">{line.instanceId.slice(-6)} </span>}
                  <LineText text={line.text} />
                </div>
              )
            );
          })}
        </div>
      </div>
      {!isAtEnd && (
        <Button look="main" onClick={() => setIsAtEnd(true)}>
          Follow
        </Button>
      )}
    </div>
  );
}

function LineText({ text }: { readonly text: string }) {
  const [isWhole, setIsWhole] = useState(false);
  const pieces = useMemo(() => piecesOf(text, isWhole), [text, isWhole]);
  return (
    <>
      {pieces.map((piece, index) =>
        piece.look === "" ? (
          piece.text
        ) : (
          <span key={index} className={piece.look}>
            {piece.text}
          </span>
        ),
      )}
      {!isWhole && text.length > SHOWN_MAX && (
        <button type="button" className="label" onClick={() => setIsWhole(true)}>
          all {renderBytes(text.length)}
        </button>
      )}
    </>
  );
}
