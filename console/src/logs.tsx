/**
 * The view of a log, of a machine or an app: search, jumps, and the lines.
 *
 * Always: the address of the page has the place (`at`: a line's cursor, or an instant) and the search, so a
 * link shows the same lines to others.
 */
import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useDeferredValue, useEffect, useState, useSyncExternalStore } from "react";
import { LogLines } from "./log-lines.tsx";
import { type LogPlace, LogReader, type LogView, type ReadLog } from "./log-reader.ts";
import type { LogLine } from "./log-window.ts";
import { useParameter } from "./route.ts";
import { Button, CopyButton, ErrorNote, Icon, Select } from "./ui/parts.tsx";
import "./styles/logs.css";

/** The longest text that the server searches for. */
const SEARCH_MAX = 200;

interface LogProps {
  readonly read: ReadLog;
  /** The path of the log in the API, for a download of all. */
  readonly path: string;
  readonly empty: string;
  /** What one may jump to, newest first: deploys of an app. */
  readonly jumps?: readonly { readonly text: string; readonly at: string }[];
}

const isInstant = (at: string): boolean => /^\d{4}-\d\d-\d\dT/.test(at);
const placeOf = (at: string): LogPlace | null => (at === "" ? null : isInstant(at) ? { time: at } : { cursor: at });

export function LogPane(props: LogProps) {
  const [isFiltered, setIsFiltered] = useState(false);
  const search = useParameter("search");
  const filter = isFiltered ? search : "";
  return <FilteredLog key={filter} {...props} filter={filter} isFiltered={isFiltered} setIsFiltered={setIsFiltered} />;
}

interface FilteredProps extends LogProps {
  readonly filter: string;
  readonly isFiltered: boolean;
  readonly setIsFiltered: (is: boolean) => void;
}

function FilteredLog({ read, path, empty, jumps = [], filter, isFiltered, setIsFiltered }: FilteredProps) {
  const at = useParameter("at");
  const search = useParameter("search");
  const address = useAddress();
  const [reader] = useState(() => new LogReader(read, filter));
  const [first] = useState(() => placeOf(at));
  useEffect(() => reader.start(first), [reader, first]);
  const view = useSyncExternalStore(reader.subscribe, reader.view);
  const [isWrapped, setIsWrapped] = useState(false);
  const [hasTimes, setHasTimes] = useState(false);
  const [found, setFound] = useState("");
  const wanted = useDeferredValue(search.trim().toLowerCase());
  const choose = (line: LogLine | null): void =>
    address({ at: line === null || line.cursor === "" ? "" : line.cursor });
  const goTo = (time: string): void => {
    address({ at: time });
    void reader.goTo({ time });
  };
  const find = async (direction: "down" | "up"): Promise<void> => {
    if (wanted === "") return;
    setFound("Searching");
    const from = view.lines.find(({ cursor }) => cursor === at) ?? null;
    const line = await reader.find(wanted, from, direction);
    if (line === null) setFound(direction === "down" ? "None further down" : "None further up");
    else {
      setFound("");
      choose(line);
      reader.see(line);
    }
  };
  return (
    <div className="log">
      <div className="filters">
        <Search
          search={search}
          setSearch={(text) => {
            setFound("");
            address({ search: text });
          }}
          find={(direction) => void find(direction)}
        />
        <label className="check">
          <input type="checkbox" checked={isFiltered} onChange={(event) => setIsFiltered(event.target.checked)} />
          Only matches
        </label>
        <span className="grow" />
        <JumpToTime goTo={goTo} />
        {jumps.length > 0 && (
          <Select
            isInline
            label="Jump to deploy"
            value=""
            options={[["", "Jump to deploy"], ...jumps.map(({ text, at: time }) => [time, text] as const)]}
            onChange={(time) => time !== "" && goTo(time)}
          />
        )}
        <a className="button plain" href={`${path}?format=plain&from=1970-01-01T00:00:00Z`} download>
          <Icon name="download" />
          Download all
        </a>
      </div>
      <div className="log-status" role="status">
        <span className={`log-state ${view.state}`}>{STATES[view.state]}</span>
        {found !== "" && <span>{found}</span>}
        {view.isTargetGone && <span>The line of this link was removed; this is what is kept nearest to it.</span>}
        {at !== "" && !isInstant(at) && (
          <span className="log-chosen">
            One line is chosen
            <CopyButton text={location.href} what="the link to this line" />
          </span>
        )}
        <span className="grow" />
        <label className="check">
          <input type="checkbox" checked={isWrapped} onChange={(event) => setIsWrapped(event.target.checked)} />
          Wrap
        </label>
        <label className="check">
          <input type="checkbox" checked={hasTimes} onChange={(event) => setHasTimes(event.target.checked)} />
          Times
        </label>
      </div>
      <ErrorNote error={view.error} />
      <LogLines
        reader={reader}
        view={view}
        isWrapped={isWrapped}
        hasTimes={hasTimes}
        wanted={wanted}
        chosen={at}
        choose={choose}
        empty={filter === "" ? empty : "No line has this text."}
      />
    </div>
  );
}

const STATES: Readonly<Record<LogView["state"], string>> = {
  reading: "Reading",
  following: "Following",
  waiting: "Waiting for the connection",
  paused: "Paused: new lines are not shown",
};

/** Changes what the address says, without another entry in the history. */
function useAddress(): (change: { readonly at?: string; readonly search?: string }) => void {
  const navigate = useNavigate();
  return (change) => {
    const search = (old: object): object =>
      Object.fromEntries(Object.entries({ ...old, ...change }).filter(([, value]) => value !== ""));
    void navigate({ to: ".", search, replace: true, resetScroll: false });
  };
}

interface SearchProps {
  readonly search: string;
  readonly setSearch: (text: string) => void;
  readonly find: (direction: "down" | "up") => void;
}

function Search({ search, setSearch, find }: SearchProps) {
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    find(event.shiftKey ? "down" : "up");
  };
  return (
    <span className="log-search">
      <input
        type="search"
        aria-label="Find in the log"
        placeholder="Find in the log"
        title="Enter: the one before. Shift and Enter: the next one."
        maxLength={SEARCH_MAX}
        value={search}
        onChange={(event) => setSearch(event.target.value)}
        onKeyDown={onKeyDown}
      />
      <Button aria-label="Find the one before" disabled={search.trim() === ""} onClick={() => find("up")}>
        ↑
      </Button>
      <Button aria-label="Find the next one" disabled={search.trim() === ""} onClick={() => find("down")}>
        ↓
      </Button>
    </span>
  );
}

function JumpToTime({ goTo }: { readonly goTo: (time: string) => void }) {
  const [time, setTime] = useState("");
  const jump = (): void => {
    const instant = new Date(time);
    if (!Number.isNaN(instant.getTime())) goTo(instant.toISOString());
  };
  return (
    <span className="log-search">
      <input
        type="datetime-local"
        step="1"
        aria-label="Time to jump to"
        value={time}
        onChange={(event) => setTime(event.target.value)}
        onKeyDown={(event) => event.key === "Enter" && jump()}
      />
      <Button disabled={time === ""} onClick={jump}>
        Jump
      </Button>
    </span>
  );
}
