/**
 * One node: what is used of it, its machines, and what operators do with it.
 */
import { usePathPart } from "../route.ts";
import type { NodeInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { machinesQuery, nodesQuery, operationsQuery } from "../data.ts";
import { renderCount, renderMb } from "../format.ts";
import { StateBadge } from "../machine-state.tsx";
import { useSession } from "../session.tsx";
import { Badge, Bar, Cli, Empty, Facts, Loading, MachineLink, PageHead, Panel, Time } from "../ui/parts.tsx";
import { progressOf } from "../tasks.tsx";
import { NodeActions } from "./node-actions.tsx";
import { NODE_TONES } from "./nodes.tsx";

export function NodePage() {
  const id = usePathPart("id");
  const nodes = useQuery(nodesQuery);
  const node = nodes.data?.find((each) => each.id === id);
  if (node === undefined)
    return nodes.isPending ? <Loading what="the node" /> : <Empty title="No such node">{id}</Empty>;
  return (
    <>
      <title>{`${id} · Flotilla`}</title>
      <nav className="crumbs" aria-label="Where this is">
        <Link to="/nodes">All</Link> / {id}
      </nav>
      <PageHead title={id} badge={<Badge tone={NODE_TONES[node.status]}>{node.status}</Badge>}>
        <NodeActions node={node} />
      </PageHead>
      {node.lastError !== null && <p className="note bad">{node.lastError.message}</p>}
      {node.replacement?.decision === "held" && (
        <p className="note bad">Its machines are not replaced: {node.replacement.reason}</p>
      )}
      <Progress id={id} />
      <div className="panels">
        <Used node={node} />
        <Panel title="Node">
          <Facts
            rows={[
              ["Last seen", <Time key="s" at={node.lastHeartbeatAt} />],
              ["Joined", <Time key="j" at={node.registeredAt} />],
              ["Release", node.release],
              ["Address", node.address],
              ["Cordoned", node.cordonedAt && <Time key="c" at={node.cordonedAt} />],
              ["Maintenance", node.maintenanceAt && <Time key="m" at={node.maintenanceAt} />],
              [
                "Certificate until",
                node.certificateExpiresAt && <Time key="e" at={node.certificateExpiresAt} isWhole />,
              ],
              ["Runtime", node.runtime],
              [
                "Clock",
                node.clockAheadMs === null || Math.abs(node.clockAheadMs) < 1000
                  ? null
                  : `${(node.clockAheadMs / 1000).toFixed(1)} s ${node.clockAheadMs > 0 ? "ahead" : "behind"}`,
              ],
              [
                "Older VMMs",
                node.outdatedVmms === null || node.outdatedVmms.length === 0
                  ? null
                  : `${renderCount(node.outdatedVmms.length, "machine")}: upgrade it with its VMMs`,
              ],
              [
                "Unknown machines",
                node.unknownMachines.length === 0 ? null : `${node.unknownMachines.length}, which it keeps`,
              ],
              ...Object.entries(node.labels).map(([name, value]) => [name, value] as const),
            ]}
          />
        </Panel>
        <Machines id={id} />
      </div>
      <Cli line={`flotilla node show ${id}`} />
    </>
  );
}

/** The drain or upgrade that is under way, step by step. */
function Progress({ id }: { readonly id: string }) {
  const operations = useQuery(operationsQuery);
  const own = (operations.data ?? []).filter(
    ({ kind, status, resource, steps }) =>
      kind.startsWith("node ") &&
      status === "running" &&
      (resource.id === id || steps.some(({ name }) => name.includes(id))),
  );
  return own.map((operation) => {
    const done = operation.steps.filter(({ status }) => status === "succeeded").length;
    return (
      <Panel key={operation.id} title={operation.kind === "node drain" ? "It is drained" : "It is upgraded"}>
        <Bar label="Steps" used={done} total={operation.steps.length} text={`${done} of ${operation.steps.length}`} />
        <p className="dim" role="status">
          {progressOf(operation)}{" "}
          <Link to="/operations/$id" params={{ id: operation.id }}>
            all steps
          </Link>
        </p>
      </Panel>
    );
  });
}

function Used({ node }: { readonly node: NodeInfo }) {
  const { pressure } = node;
  return (
    <Panel title="In use">
      <Bar label="CPUs" used={node.usedCpus} total={node.totalCpus} text={`${node.usedCpus} of ${node.totalCpus}`} />
      <Bar
        label="Memory"
        used={node.usedMemoryMb}
        total={node.totalMemoryMb}
        text={`${renderMb(node.usedMemoryMb)} of ${renderMb(node.totalMemoryMb)}`}
      />
      <Bar
        label="Disk"
        used={node.usedDiskGb}
        total={node.totalDiskGb}
        text={`${node.usedDiskGb} of ${node.totalDiskGb} GB`}
      />
      {pressure !== null && (
        <>
          <p className="dim small">How much of the last minute processes waited</p>
          <Bar label="for CPU" used={pressure.cpu.some} total={100} text={`${pressure.cpu.some.toFixed(0)} %`} />
          <Bar
            label="for memory"
            used={pressure.memory.some}
            total={100}
            text={`${pressure.memory.some.toFixed(0)} %`}
          />
          <Bar label="for disk" used={pressure.io.some} total={100} text={`${pressure.io.some.toFixed(0)} %`} />
        </>
      )}
    </Panel>
  );
}

function Machines({ id }: { readonly id: string }) {
  const session = useSession();
  const machines = useQuery({ ...machinesQuery, enabled: session.can("machine:read") });
  const own = (machines.data ?? []).filter(({ nodeId }) => nodeId === id);
  return (
    <Panel title="On this node, of your tenant">
      {own.length === 0 && <p className="dim fine">None.</p>}
      <ul className="events">
        {own.slice(0, 20).map((machine) => (
          <li key={machine.id}>
            <span className="grow">
              <MachineLink id={machine.id} name={machine.name} />
            </span>
            <StateBadge machine={machine} />
          </li>
        ))}
      </ul>
      {own.length > 20 && (
        <Link to="/machines" search={{ q: id }}>
          All {own.length}
        </Link>
      )}
    </Panel>
  );
}
