/**
 * What happened to the tenant's things, newest first, and live.
 *
 * Always: the list begins with the newest events and grows with the stream; older ones are read when they are
 * asked for.
 */
import type { TenantEvent } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useDeferredValue, useMemo, useState } from "react";
import { api, queries } from "../api.ts";
import { machineNamesQuery } from "../data.ts";
import { renderCount } from "../format.ts";
import { useSession } from "../session.tsx";
import { Badge, Button, Cli, Empty, ErrorNote, Loading, PageHead, Select, Time, type Tone } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

const FIRST = 200;
const PAGE = 1_000;
const KEPT = 5_000;
const RECENT = 6;
const TONES: Readonly<Record<TenantEvent["level"], Tone>> = { info: "off", warn: "warn", error: "bad" };
const LEVELS = [
  ["", "All levels"],
  ["warn", "Warnings and errors"],
  ["error", "Errors"],
] as const;

interface Known {
  /** Newest first. */
  readonly events: readonly TenantEvent[];
  /** Of the newest; undefined: there was none. */
  readonly cursor: string | undefined;
  readonly hasOlder: boolean;
}

const EVENTS = ["events"];

/** The newest events; when they were read before, with what is new since. At most KEPT are kept. */
async function readNewest(signal: AbortSignal): Promise<Known> {
  let known: Known | undefined = queries.getQueryData<Known>(EVENTS);
  if (known?.cursor === undefined) {
    let cursor: string | undefined;
    const onHeaders = (headers: Headers): void => void (cursor = headers.get("x-cursor") ?? undefined);
    const events = await api.listEvents({ query: { limit: FIRST, order: "desc" }, onHeaders, signal });
    return { events, cursor, hasOlder: events.length === FIRST };
  }
  for (;;) {
    let cursor: string | undefined = known.cursor;
    const onHeaders = (headers: Headers): void => void (cursor = headers.get("x-cursor") ?? cursor);
    const query = { limit: PAGE, ...(cursor === undefined ? {} : { cursor }) };
    const page = await api.listEvents({ query, onHeaders, signal });
    const events: readonly TenantEvent[] = [...page.toReversed(), ...known.events];
    known = { events: events.slice(0, KEPT), cursor, hasOlder: known.hasOlder || events.length > KEPT };
    if (page.length < PAGE) return known;
  }
}

/** Adds those before the oldest that is known. */
async function readOlder(): Promise<void> {
  const last = queries.getQueryData<Known>(EVENTS)?.events.at(-1);
  if (last === undefined) return;
  const older = await api.listEvents({ query: { limit: PAGE, order: "desc", cursor: last.cursor } });
  queries.setQueryData<Known>(EVENTS, (known) =>
    // New ones may have come, and the same ones been read twice.
    known === undefined || known.events.at(-1)?.cursor !== last.cursor
      ? known
      : { ...known, events: [...known.events, ...older], hasOlder: older.length === PAGE },
  );
}

const eventsQuery = {
  queryKey: EVENTS,
  queryFn: ({ signal }: { signal: AbortSignal }) => readNewest(signal),
};

/** The last few events. */
export function RecentEvents() {
  const events = useQuery(eventsQuery);
  return (
    <ul className="events">
      {(events.data?.events ?? []).slice(0, RECENT).map((event) => (
        <li key={event.cursor} className={event.level}>
          <span className="grow">
            <Subject event={event} /> <span className="dim">{event.message}</span>
          </span>
          <span className="dim">
            <Time at={event.createdAt} />
          </span>
        </li>
      ))}
      {events.data?.events.length === 0 && <li className="dim">Nothing has happened yet.</li>}
    </ul>
  );
}

function Subject({ event: { subject } }: { readonly event: TenantEvent }) {
  const names = useQuery({ ...machineNamesQuery, enabled: useSession().can("machine:read") });
  const short = names.data?.get(subject.id) ?? subject.id.replace(/-([0-9a-f]{8})[0-9a-f]{24}$/, "-$1");
  if (subject.kind !== "machine") return <>{short}</>;
  return (
    <Link to="/machines/$id/{-$tab}" params={{ id: subject.id, tab: undefined }}>
      {short}
    </Link>
  );
}

const COLUMNS: readonly Column<TenantEvent>[] = [
  { name: "When", show: ({ createdAt }) => <Time at={createdAt} />, by: ({ createdAt }) => createdAt },
  { name: "Level", show: ({ level }) => <Badge tone={TONES[level]}>{level}</Badge>, by: ({ level }) => level },
  { name: "Of", show: (event) => <Subject event={event} />, by: ({ subject }) => subject.id },
  { name: "Type", show: ({ type }) => <code>{type}</code>, by: ({ type }) => type, isWide: true },
  { name: "What happened", show: ({ message }) => message },
];

export function EventsPage() {
  const events = useQuery(eventsQuery);
  const [level, setLevel] = useState("");
  const [text, setText] = useState("");
  const [isReading, setIsReading] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const older = async (): Promise<void> => {
    setIsReading(true);
    setError(null);
    await readOlder().catch(setError);
    setIsReading(false);
  };
  const wanted = useDeferredValue(text.toLowerCase());
  const shown = useMemo(
    () =>
      (events.data?.events ?? []).filter(
        (event) =>
          (level === "" || event.level === level || event.level === "error") &&
          (wanted === "" || `${event.type} ${event.message} ${event.subject.id}`.toLowerCase().includes(wanted)),
      ),
    [events.data, level, wanted],
  );
  return (
    <>
      <title>Events · Flotilla</title>
      <PageHead title="Events" />
      <ErrorNote error={events.error} retry={() => void events.refetch()} />
      {events.isPending && <Loading what="events" />}
      {events.data?.events.length === 0 && (
        <Empty title="Nothing has happened yet">Events appear here as they happen.</Empty>
      )}
      {events.data !== undefined && events.data.events.length > 0 && (
        <>
          <div className="filters">
            <input
              type="search"
              aria-label="Filter"
              placeholder="Filter: text, type, id"
              value={text}
              onChange={(change) => setText(change.target.value)}
            />
            <Select label="Level" isInline value={level} options={LEVELS} onChange={setLevel} />
            <span className="dim" role="status">
              {renderCount(shown.length, "event")}
            </span>
          </div>
          <DataTable
            label="Events"
            rows={shown}
            columns={COLUMNS}
            idOf={({ cursor }) => cursor}
            empty={<Empty title="No event fits the filter" />}
          />
          {events.data.hasOlder && events.data.events.length < KEPT && (
            <Button isBusy={isReading} onClick={() => void older()}>
              Read older ones
            </Button>
          )}
          <ErrorNote error={error} />
          <Cli line="flotilla events --follow" />
        </>
      )}
    </>
  );
}
