/**
 * One node: what is used of it, its machines, and what operators do with it.
 */
import { usePathPart } from "../route.ts";
import type { DrainPlan, NodeInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, queries } from "../api.ts";
import { machinesQuery, nodesQuery } from "../data.ts";
import { renderBytes, renderMb, renderSeconds } from "../format.ts";
import { StateBadge } from "../machine-state.tsx";
import { useSession } from "../session.tsx";
import { attempt, Sheet } from "../ui/dialog.tsx";
import {
  Badge,
  Bar,
  Button,
  Cli,
  Empty,
  ErrorNote,
  Facts,
  Loading,
  MachineLink,
  PageHead,
  Panel,
  Time,
} from "../ui/parts.tsx";
import { NODE_TONES } from "./nodes.tsx";

const again = (): Promise<void> => queries.invalidateQueries({ queryKey: ["nodes"] });

export function NodePage() {
  const id = usePathPart("id");
  const nodes = useQuery(nodesQuery);
  const [isDraining, setIsDraining] = useState(false);
  const node = nodes.data?.find((each) => each.id === id);
  if (node === undefined)
    return nodes.isPending ? <Loading what="the node" /> : <Empty title="No such node">{id}</Empty>;
  const act = (what: string, call: () => Promise<unknown>): Promise<boolean> =>
    attempt(`${what} of ${id}`, async () => {
      await call();
      await again();
    });
  return (
    <>
      <title>{`${id} · Flotilla`}</title>
      <nav className="crumbs" aria-label="Where this is">
        <Link to="/nodes">All</Link> / {id}
      </nav>
      <PageHead title={id} badge={<Badge tone={NODE_TONES[node.status]}>{node.status}</Badge>}>
        {node.cordonedAt === null ? (
          <Button onClick={() => void act("Cordon", () => api.cordonNode(id))}>Cordon</Button>
        ) : (
          <Button look="main" onClick={() => void act("Uncordon", () => api.uncordonNode(id))}>
            Uncordon
          </Button>
        )}
        {node.status === "draining" ? (
          <Button onClick={() => void act("Cancel of the drain", () => api.cancelDrain(id))}>Cancel the drain</Button>
        ) : (
          <Button look="danger" onClick={() => setIsDraining(true)}>
            Drain
          </Button>
        )}
      </PageHead>
      {node.lastError !== null && <p className="note bad">{node.lastError.message}</p>}
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
              ...Object.entries(node.labels).map(([name, value]) => [name, value] as const),
            ]}
          />
        </Panel>
        <Machines id={id} />
      </div>
      <Cli line={`flotilla node show ${id}`} />
      <Drain id={id} isOpen={isDraining} onClose={() => setIsDraining(false)} />
    </>
  );
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

/** Shows what a drain would do before it is begun. */
function Drain({
  id,
  isOpen,
  onClose,
}: {
  readonly id: string;
  readonly isOpen: boolean;
  readonly onClose: () => void;
}) {
  const plan = useQuery({
    queryKey: ["drain plan", id],
    queryFn: ({ signal }) => api.planDrain(id, { signal }),
    enabled: isOpen,
    staleTime: 0,
  });
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const drain = async (): Promise<void> => {
    setIsBusy(true);
    setError(null);
    try {
      await api.drainNode(id);
      await Promise.all([again(), queries.invalidateQueries({ queryKey: ["operations"] })]);
      onClose();
    } catch (failed) {
      setError(failed);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <Sheet title={`Drain ${id}`} isOpen={isOpen} onClose={onClose}>
      <div className="body">
        {plan.isPending && <Loading what="what it would do" />}
        <ErrorNote error={plan.error ?? error} />
        {plan.data !== undefined && <PlannedMoves plan={plan.data} />}
        <Cli line={`flotilla node drain ${id}`} />
        <footer>
          <Button onClick={onClose}>Close</Button>
          <Button look="danger" isBusy={isBusy} disabled={plan.data === undefined} onClick={() => void drain()}>
            Drain it
          </Button>
        </footer>
      </div>
    </Sheet>
  );
}

function PlannedMoves({ plan }: { readonly plan: DrainPlan }) {
  return (
    <>
      <p>
        {plan.moves.length} machines move, {renderBytes(plan.bytes)} in about {renderSeconds(plan.seconds)}.{" "}
        {plan.estimate}
      </p>
      {plan.blocked.length > 0 && (
        <p className="note bad">
          {plan.blocked.length} cannot move and stay: {plan.blocked[0]?.reason}
        </p>
      )}
      <ul className="events">
        {plan.moves.slice(0, 12).map((move) => (
          <li key={move.machineId}>
            <span className="grow">{move.name ?? move.machineId}</span>
            <span className="dim">
              {move.disruption} to {move.toNodeId}
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}
