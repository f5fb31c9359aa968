/**
 * What happened to the tenant's things, newest first, and live.
 *
 * Always: the list begins with the events of the last day and grows with the stream; older ones are in the
 * timeline of each machine.
 */
import type { TenantEvent } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useDeferredValue, useMemo, useState } from "react";
import { api, queries } from "../api.ts";
import { machineNamesQuery } from "../data.ts";
import { renderCount } from "../format.ts";
import { useSession } from "../session.tsx";
import { Badge, Cli, Empty, ErrorNote, Loading, PageHead, Select, Time, type Tone } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

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
  readonly cursor: string | undefined;
}

/** The newest events, of which at most KEPT are kept. Reads only what is new since the last time. */
async function readNewest(signal: AbortSignal): Promise<Known> {
  let known = queries.getQueryData<Known>(["events"]) ?? { events: [], cursor: undefined };
  for (;;) {
    let { cursor } = known;
    const onHeaders = (headers: Headers): void => void (cursor = headers.get("x-cursor") ?? cursor);
    const query = { limit: PAGE, ...(cursor === undefined ? {} : { cursor }) };
    const page = await api.listEvents({ query, onHeaders, signal });
    known = { events: [...page.toReversed(), ...known.events].slice(0, KEPT), cursor };
    if (page.length < PAGE) return known;
  }
}

const eventsQuery = {
  queryKey: ["events"],
  queryFn: ({ signal }: { signal: AbortSignal }) => readNewest(signal),
  select: ({ events }: Known) => events,
};

/** The last few events. */
export function RecentEvents() {
  const events = useQuery(eventsQuery);
  return (
    <ul className="events">
      {(events.data ?? []).slice(0, RECENT).map((event) => (
        <li key={event.cursor} className={event.level}>
          <span className="grow">
            <Subject event={event} /> <span className="dim">{event.message}</span>
          </span>
          <span className="dim">
            <Time at={event.createdAt} />
          </span>
        </li>
      ))}
      {events.data?.length === 0 && <li className="dim">Nothing has happened yet.</li>}
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
  const wanted = useDeferredValue(text.toLowerCase());
  const shown = useMemo(
    () =>
      (events.data ?? []).filter(
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
      {events.data?.length === 0 && <Empty title="Nothing has happened yet">Events appear here as they happen.</Empty>}
      {events.data !== undefined && events.data.length > 0 && (
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
          <Cli line="flotilla events --follow" />
        </>
      )}
    </>
  );
}
