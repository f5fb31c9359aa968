/**
 * What a machine is: where it runs, what it was made with, and what happened lately.
 */
import type { MachineInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { machineEventsQuery } from "../data.ts";
import { renderCount, renderMb, renderSeconds } from "../format.ts";
import { Facts, MachineLink, Panel, Time } from "../ui/parts.tsx";

const SHOWN_EVENTS = 5;

export function SummaryTab({ machine }: { readonly machine: MachineInfo }) {
  return (
    <div className="panels">
      <About machine={machine} />
      <Reach machine={machine} />
      <Latest machine={machine} />
      <Environment machine={machine} />
    </div>
  );
}

const ENDS = { delete: "Deleted", stop: "Stopped", suspend: "Suspended" } as const;

function About({ machine }: { readonly machine: MachineInfo }) {
  const { resources, startTimings } = machine;
  return (
    <Panel title="Machine">
      <Facts
        rows={[
          ["Image", machine.source.reference],
          [
            "Size",
            `${renderCount(resources.cpus, "CPU")}, ${renderMb(resources.memoryMb)}${resources.diskGb === null ? "" : `, ${resources.diskGb} GB disk`}`,
          ],
          ["Branch of", machine.parentMachineId && <MachineLink key="p" id={machine.parentMachineId} name={null} />],
          ["Node", machine.nodeId],
          ["Command", machine.command?.join(" ")],
          ["Directory", machine.workdir],
          ["Created", <Time key="at" at={machine.createdAt} />],
          ["Last activity", machine.lastActivityAt && <Time key="at" at={machine.lastActivityAt} />],
          [
            "Stops when idle",
            machine.autoStopSeconds === null ? null : `after ${renderSeconds(machine.autoStopSeconds)}`,
          ],
          [
            ENDS[machine.atEnd],
            machine.ttlSeconds === null ? null : `${renderSeconds(machine.ttlSeconds)} after it was created`,
          ],
          ["After a crash", machine.restart === "always" ? "it is restarted" : "it stays stopped"],
          [
            "Last start",
            startTimings?.totalMs === undefined
              ? null
              : `${Math.round(startTimings.totalMs)} ms${startTimings.vm === undefined ? "" : `, ${startTimings.vm}`}`,
          ],
          ["Id", <code key="id">{machine.id}</code>],
        ]}
      />
    </Panel>
  );
}

function Reach({ machine }: { readonly machine: MachineInfo }) {
  const { mode, cidrs = [], hosts = [] } = machine.network;
  const hasPorts = machine.ports.length > 0;
  return (
    <Panel title="Network">
      <Facts
        rows={[
          ["Outbound", mode === "allowCidrs" ? [...cidrs, ...hosts].join(", ") : mode],
          ["Ports", machine.ports.map(({ port }) => port).join(", ") || "none is published"],
          [
            "Address",
            hasPorts && machine.url !== null && (
              <a key="url" href={machine.url} target="_blank" rel="noreferrer noopener">
                {machine.url}
              </a>
            ),
          ],
          ["Open to everyone", hasPorts && (machine.public ? "yes" : "no, it needs a key or its share link")],
        ]}
      />
      {!hasPorts && <p className="dim small">Ports are named when a machine is made.</p>}
    </Panel>
  );
}

function Latest({ machine }: { readonly machine: MachineInfo }) {
  const events = useQuery(machineEventsQuery(machine.id));
  return (
    <Panel title="Lately">
      <ul className="events">
        {(events.data ?? []).slice(0, SHOWN_EVENTS).map((event) => (
          <li key={event.id} className={event.level}>
            <span className="grow">{event.message}</span>
            <span className="dim">
              <Time at={event.createdAt} />
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Environment({ machine }: { readonly machine: MachineInfo }) {
  const variables = Object.entries(machine.env);
  const labels = Object.entries(machine.labels);
  if (variables.length + labels.length + machine.secretEnvNames.length === 0) return null;
  return (
    <Panel title="Environment and labels">
      <Facts
        rows={[
          ...variables.map(([name, value]) => [name, <code key={name}>{value}</code>] as const),
          ...machine.secretEnvNames.map(
            (name) =>
              [
                name,
                <span key={name} className="dim">
                  secret
                </span>,
              ] as const,
          ),
          ...labels.map(([name, value]) => [`label ${name}`, value] as const),
        ]}
      />
    </Panel>
  );
}
