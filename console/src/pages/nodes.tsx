/**
 * The nodes of the fleet, with what is used of each, and how another one joins.
 */
import type { JoinTokenCreated, NodeInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, queries } from "../api.ts";
import { findingsQuery, nodesQuery, serversQuery } from "../data.ts";
import { renderMb } from "../format.ts";
import { Confirm, Sheet } from "../ui/dialog.tsx";
import {
  Badge,
  Bar,
  Button,
  Cli,
  CopyButton,
  Empty,
  ErrorNote,
  Loading,
  PageHead,
  Panel,
  Time,
  type Tone,
} from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";
import { UpgradeForm } from "./node-actions.tsx";

export const NODE_TONES: Readonly<Record<NodeInfo["status"], Tone>> = {
  ready: "good",
  draining: "busy",
  drained: "warn",
  unreachable: "bad",
  revoked: "bad",
};

const COLUMNS: readonly Column<NodeInfo>[] = [
  {
    name: "Node",
    show: ({ id }) => (
      <Link to="/nodes/$id" params={{ id }}>
        {id}
      </Link>
    ),
    by: ({ id }) => id,
  },
  {
    name: "State",
    show: (node) => (
      <>
        <Badge tone={NODE_TONES[node.status]}>{node.status}</Badge>
        {node.cordonedAt !== null && <Badge tone="warn">cordoned</Badge>}
        {node.maintenanceAt !== null && <Badge tone="warn">maintenance</Badge>}
      </>
    ),
    by: ({ status }) => status,
  },
  {
    name: "CPUs",
    show: (node) => (
      <Bar
        isBare
        label="CPUs in use"
        used={node.usedCpus}
        total={node.totalCpus}
        text={`${node.usedCpus}/${node.totalCpus}`}
      />
    ),
    by: ({ usedCpus }) => usedCpus,
  },
  {
    name: "Memory",
    show: (node) => (
      <Bar
        isBare
        label="Memory in use"
        used={node.usedMemoryMb}
        total={node.totalMemoryMb}
        text={renderMb(node.usedMemoryMb)}
      />
    ),
    by: ({ usedMemoryMb }) => usedMemoryMb,
  },
  {
    name: "Disk",
    show: (node) => (
      <Bar
        isBare
        label="Disk in use"
        used={node.totalDiskGb - node.availableDiskGb}
        total={node.totalDiskGb}
        text={`${node.totalDiskGb - node.availableDiskGb}/${node.totalDiskGb} GB`}
      />
    ),
    by: ({ usedDiskGb }) => usedDiskGb,
    isWide: true,
  },
  {
    name: "Pressure",
    show: ({ pressure }) => {
      if (pressure === null) return <span className="dim">unknown</span>;
      const most = Math.max(pressure.cpu.some, pressure.memory.some, pressure.io.some);
      return <Bar isBare label="Processes that waited" used={most} total={100} text={`${most.toFixed(0)} %`} />;
    },
    by: ({ pressure }) =>
      pressure === null ? -1 : Math.max(pressure.cpu.some, pressure.memory.some, pressure.io.some),
    isWide: true,
  },
  { name: "Release", show: ({ release }) => release ?? "", isWide: true },
  { name: "Last seen", show: ({ lastHeartbeatAt }) => <Time at={lastHeartbeatAt} />, isWide: true },
];

export function NodesPage() {
  const nodes = useQuery(nodesQuery);
  const findings = useQuery(findingsQuery);
  const servers = useQuery(serversQuery);
  const [isJoining, setIsJoining] = useState(false);
  const [isUpgrading, setIsUpgrading] = useState(false);
  const wrong = (findings.data ?? []).filter(({ severity }) => severity !== "ok");
  return (
    <>
      <title>Nodes · Flotilla</title>
      <PageHead title="Nodes">
        {(nodes.data?.length ?? 0) > 0 && <Button onClick={() => setIsUpgrading(true)}>Upgrade all</Button>}
        <Button look="main" icon="plus" onClick={() => setIsJoining(true)}>
          Join another node
        </Button>
      </PageHead>
      <ErrorNote error={nodes.error} retry={() => void nodes.refetch()} />
      {nodes.isPending && <Loading what="the nodes" />}
      {nodes.data !== undefined && (
        <DataTable
          label="Nodes"
          rows={nodes.data}
          columns={COLUMNS}
          idOf={({ id }) => id}
          sortedBy="Node"
          empty={
            <Empty title="No node has joined" cli="flotilla token create">
              A node runs machines on its host.
            </Empty>
          }
        />
      )}
      <Lost />
      <div className="panels">
        <Panel title="What to look at">
          {wrong.length === 0 && <p className="dim fine">Nothing that Flotilla knows of.</p>}
          <ul className="events">
            {wrong.map(({ code, subject, severity, message, action }) => (
              <li key={`${code} ${subject.id}`} className={severity === "bad" ? "error" : "warn"}>
                <span>
                  {subject.kind} {subject.id}: {message}
                  <span className="dim block">{action}</span>
                </span>
              </li>
            ))}
          </ul>
          <Cli line="flotilla doctor" />
        </Panel>
        <Panel title="Servers">
          <ul className="events">
            {(servers.data ?? []).map((server) => (
              <li key={server.id}>
                <span className="grow">
                  {server.host} <span className="dim">{server.release}</span>
                </span>
                <span className="dim">
                  seen <Time at={server.seenAt} />
                </span>
              </li>
            ))}
          </ul>
        </Panel>
      </div>
      {isUpgrading && <UpgradeForm nodeIds={null} onClose={() => setIsUpgrading(false)} />}
      <Join isOpen={isJoining} onClose={() => setIsJoining(false)} />
    </>
  );
}

/** Nodes that do not report, and what becomes of their machines. */
function Lost() {
  const lost = useQuery({ queryKey: ["nodes", "lost"], queryFn: ({ signal }) => api.listLostNodes({ signal }) });
  const [isReplacing, setIsReplacing] = useState(false);
  const nodes = lost.data?.nodes ?? [];
  if (nodes.length === 0) return null;
  const held = nodes.filter(({ decision }) => decision === "held");
  return (
    <Panel
      title="Nodes that do not report"
      actions={held.length > 0 && <Button onClick={() => setIsReplacing(true)}>Replace their machines</Button>}
    >
      {lost.data?.isHeld === true && <p className="note bad">{lost.data.reason}</p>}
      <ul className="events">
        {nodes.map((node) => (
          <li key={node.nodeId}>
            <span className="grow">
              {node.nodeId}
              <span className="dim block">
                {node.replaceable} replaceable, {node.staying} wait for it{node.reason !== null && ` · ${node.reason}`}
              </span>
            </span>
            <Badge tone={node.decision === "held" ? "bad" : "warn"}>{node.decision}</Badge>
          </li>
        ))}
      </ul>
      <Confirm
        title="Replace the machines of lost nodes?"
        verb="Replace"
        isOpen={isReplacing}
        onClose={() => setIsReplacing(false)}
        act={async () => {
          await api.replaceLostNodes({});
          await queries.invalidateQueries({ queryKey: ["nodes"] });
        }}
      >
        <p>
          Instances of apps and machines of pools are made again on other nodes. What they wrote to their disks is lost.
        </p>
        <Cli line="flotilla node replace-lost --dry-run" />
      </Confirm>
    </Panel>
  );
}

function Join({ isOpen, onClose }: { readonly isOpen: boolean; readonly onClose: () => void }) {
  const [made, setMade] = useState<JoinTokenCreated | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setIsBusy] = useState(false);
  const make = async (): Promise<void> => {
    setIsBusy(true);
    setError(null);
    await api.createJoinToken({}).then(setMade, setError);
    setIsBusy(false);
  };
  const address = made?.nodeAddresses[0] ?? "https://SERVER:8443";
  const line = made === null ? "" : `FLOTILLA_JOIN_TOKEN=${made.token} ./flotilla node --url ${address}`;
  return (
    <Sheet title="Join another node" isOpen={isOpen} onClose={onClose}>
      <div className="body">
        <p className="dim">
          Run the line as root on the host, in a checkout after npm run setup. It is for one node and an hour.
        </p>
        {made === null ? (
          <Button look="main" isBusy={isBusy} onClick={() => void make()}>
            Make a line
          </Button>
        ) : (
          <div className="cli">
            <code>{line}</code>
            <CopyButton text={line} what="the line" />
          </div>
        )}
        {made?.nodeAddresses.length === 0 && (
          <p className="note">
            The server listens only for nodes of this host; start it with --node-listen for others.
          </p>
        )}
        <ErrorNote error={error} />
        <Cli line="flotilla token create" />
      </div>
    </Sheet>
  );
}
