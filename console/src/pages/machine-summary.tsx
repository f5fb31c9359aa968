/**
 * What a machine is: where it runs, what it was made with, its branches and its checkpoints.
 */
import type { CheckpointInfo, MachineInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, queries } from "../api.ts";
import { checkpointsQuery, lineageQuery, machineEventsQuery } from "../data.ts";
import { renderBytes, renderCount, renderMb, renderSeconds } from "../format.ts";
import { StateBadge } from "../machine-state.tsx";
import { useSession } from "../session.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Badge, Button, Cli, Facts, MachineLink, Panel, Time } from "../ui/parts.tsx";

const SHOWN_EVENTS = 5;

export function SummaryTab({ machine }: { readonly machine: MachineInfo }) {
  return (
    <div className="panels">
      <About machine={machine} />
      <Reach machine={machine} />
      <Latest machine={machine} />
      <Lineage machine={machine} />
      <Checkpoints machine={machine} />
      <Environment machine={machine} />
    </div>
  );
}

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
          ["Node", machine.nodeId],
          ["Command", machine.command?.join(" ")],
          ["Directory", machine.workdir],
          ["Created", <Time key="at" at={machine.createdAt} />],
          ["Last activity", machine.lastActivityAt && <Time key="at" at={machine.lastActivityAt} />],
          [
            "Stops when idle",
            machine.autoStopSeconds === null ? null : `after ${renderSeconds(machine.autoStopSeconds)}`,
          ],
          ["Deleted", machine.ttlSeconds === null ? null : `${renderSeconds(machine.ttlSeconds)} after it was created`],
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

function Lineage({ machine }: { readonly machine: MachineInfo }) {
  const lineage = useQuery(lineageQuery(machine.id));
  const machines = lineage.data?.machines ?? [];
  if (machines.length < 2) return null;
  const memory = new Map(lineage.data?.memory.map((each) => [each.machineId, each]));
  return (
    <Panel title="Branches">
      <ul className="events">
        {machines.map((each) => (
          <li key={each.id}>
            <span className={each.parentMachineId === null ? "" : "indented"}>
              {each.id === machine.id ? <strong>{each.name}</strong> : <MachineLink id={each.id} name={each.name} />}
            </span>
            <StateBadge machine={each} />
            <span className="dim grow">
              {memory.has(each.id) && `${renderBytes(memory.get(each.id)?.ownBytes ?? 0)} of separate memory`}
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Checkpoints({ machine }: { readonly machine: MachineInfo }) {
  const session = useSession();
  const checkpoints = useQuery(checkpointsQuery(machine.id));
  const [removed, setRemoved] = useState<CheckpointInfo | null>(null);
  const all = checkpoints.data ?? [];
  if (all.length === 0) return null;
  return (
    <Panel title="Checkpoints">
      <ul className="events">
        {all.map((each) => (
          <li key={each.id}>
            <span className="grow">
              {each.name ?? each.id}{" "}
              <span className="dim">
                {each.hasMemory ? "with its memory" : "its disk"}, {renderBytes(each.sizeBytes)}
              </span>
            </span>
            <Badge tone={each.status === "available" ? "good" : each.status === "failed" ? "bad" : "busy"}>
              {each.status}
            </Badge>
            {session.can("machine:delete") && (
              <Button
                look="quiet"
                icon="close"
                aria-label={`Delete checkpoint ${each.name ?? each.id}`}
                onClick={() => setRemoved(each)}
              />
            )}
          </li>
        ))}
      </ul>
      <Cli line={`flotilla checkpoint restore ${all[0]?.name ?? all[0]?.id ?? ""}`} />
      <Confirm
        title={`Delete checkpoint ${removed?.name ?? removed?.id ?? ""}?`}
        verb="Delete"
        isOpen={removed !== null}
        onClose={() => setRemoved(null)}
        act={async () => {
          await api.deleteCheckpoint(removed?.id ?? "");
          await queries.invalidateQueries({ queryKey: ["machine-parts", machine.id] });
        }}
      >
        <p>No machine can be made from it any more. Machines that were made from it stay.</p>
      </Confirm>
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
