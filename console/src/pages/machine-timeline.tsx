/**
 * What happened to a machine and why, newest first.
 */
import type { MachineInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { machineEventsQuery } from "../data.ts";
import { renderDate } from "../format.ts";
import { Cli, ErrorNote, Loading, Time } from "../ui/parts.tsx";

export function TimelineTab({ machine }: { readonly machine: MachineInfo }) {
  const events = useQuery(machineEventsQuery(machine.id));
  return (
    <>
      <ErrorNote error={events.error} retry={() => void events.refetch()} />
      {events.isPending && <Loading what="the timeline" />}
      <ol className="timeline">
        {(events.data ?? []).map((event) => (
          <li key={event.id} className={event.level}>
            <div>
              <strong>{event.message}</strong>
              <span className="dim small">
                {event.type} · {renderDate(event.createdAt)}
              </span>
            </div>
            <span className="dim">
              <Time at={event.createdAt} />
            </span>
          </li>
        ))}
      </ol>
      <Cli line={`flotilla machine events ${machine.name ?? machine.id}`} />
    </>
  );
}
