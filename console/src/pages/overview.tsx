/**
 * What runs, what it costs, what is wrong, and what waits for the reader.
 */
import type { AppInfo, MachineInfo, NodeInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import { appsQuery, findingsQuery, machinesQuery, nodesQuery, operationsQuery } from "../data.ts";
import { renderCount, renderMb, renderMoney } from "../format.ts";
import { stateOf } from "../machine-state.tsx";
import { useAccount, useSession } from "../session.tsx";
import { progressOf } from "../tasks.tsx";
import { Badge, Bar, Button, Cli, Empty, ErrorNote, MachineLink, PageHead, Panel, Time } from "../ui/parts.tsx";
import { RecentEvents } from "./events.tsx";

const WRONG_SHOWN = 8;

export function OverviewPage() {
  const session = useSession();
  const navigate = useNavigate();
  const machines = useQuery({ ...machinesQuery, enabled: session.can("machine:read") });
  const isNew = machines.data?.length === 0;
  return (
    <>
      <title>Overview · Flotilla</title>
      <PageHead title="Overview">
        {session.can("machine:create") && (
          <Button look="main" icon="plus" onClick={() => void navigate({ to: "/machines/create" })}>
            Create machine
          </Button>
        )}
      </PageHead>
      <ErrorNote error={machines.error} retry={() => void machines.refetch()} />
      {isNew && (
        <Empty title="Welcome" cli="flotilla machine create local/busybox --name hello --start">
          A machine has its own kernel and disk, starts in seconds and keeps its files when it stops. Make the first
          one.
        </Empty>
      )}
      <Figures machines={machines.data} />
      <div className="panels">
        <Wrong machines={machines.data} />
        <Waiting />
        <Capacity />
        {session.can("machine:read") && (
          <Panel title="Lately">
            <RecentEvents />
          </Panel>
        )}
      </div>
    </>
  );
}

/** What is not known yet, or not for this key. */
const UNKNOWN = "–";

interface OfMachines {
  /** undefined: not read yet. */
  readonly machines: readonly MachineInfo[] | undefined;
}

function Figures({ machines }: OfMachines) {
  const account = useAccount();
  const apps = useQuery(appsQuery);
  const running = useMemo(
    () => (machines ?? []).filter(({ state }) => state === "started" || state === "creating"),
    [machines],
  );
  const plan = account.data?.plan ?? null;
  const cpus = running.reduce((sum, { resources }) => sum + resources.cpus, 0);
  const memoryMb = running.reduce((sum, { resources }) => sum + resources.memoryMb, 0);
  const hourly =
    plan === null
      ? null
      : cpus * plan.rateCpuHourMicros +
        (memoryMb / 1024) * plan.rateMemoryGbHourMicros +
        running.length * plan.rateBaseHourMicros;
  return (
    <dl className="figures">
      <Figure
        name="Running now"
        value={machines === undefined ? UNKNOWN : `${running.length}`}
        note={`of ${renderCount(machines?.length ?? 0, "machine")}`}
      />
      <Figure name="In use" value={machines === undefined ? UNKNOWN : `${cpus} CPUs`} note={renderMb(memoryMb)} />
      <Figure
        name="Deployed"
        value={`${apps.data?.length ?? UNKNOWN}`}
        note={renderCount(
          (apps.data ?? []).reduce((sum, { instances }) => sum + instances.length, 0),
          "instance",
        )}
      />
      {hourly !== null && <Figure name="Cost now" value={renderMoney(hourly)} note="an hour, as it runs" />}
      {account.data !== undefined && (
        <Figure
          name="This month"
          value={renderMoney(account.data.periodCost.totalMicros)}
          note={
            account.data.monthlyBudgetMicros === null
              ? "no budget is set"
              : `of ${renderMoney(account.data.monthlyBudgetMicros)}`
          }
        />
      )}
    </dl>
  );
}

function Figure({ name, value, note }: { readonly name: string; readonly value: string; readonly note: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {value}
        <span className="dim">{note}</span>
      </dd>
    </div>
  );
}

function Wrong({ machines }: OfMachines) {
  const session = useSession();
  const isOperator = session.can("admin");
  const apps = useQuery(appsQuery);
  const findings = useQuery({ ...findingsQuery, enabled: isOperator });
  const rows: readonly { readonly key: string; readonly what: ReactNode; readonly why: string | null }[] = [
    ...(machines ?? [])
      .filter((machine) => ["bad", "warn"].includes(stateOf(machine).tone))
      .map((machine) => ({
        key: machine.id,
        what: <MachineLink id={machine.id} name={machine.name} />,
        why: stateOf(machine).why,
      })),
    ...(apps.data ?? [])
      .filter(({ status }) => status === "degraded" || status === "failed")
      .map((app) => ({ key: app.id, what: <AppLink app={app} />, why: app.message })),
    ...(findings.data ?? [])
      .filter(({ severity }) => severity !== "ok")
      .map(({ message, action, code, subject }) => ({
        key: `${code} ${subject.id}`,
        what: `${subject.kind} ${subject.id}: ${message}`,
        why: action,
      })),
  ];
  return (
    <Panel title="What is wrong">
      {rows.length === 0 && (
        <p className="fine">
          <Badge tone="good">Nothing</Badge> <span className="dim">that Flotilla knows of</span>
        </p>
      )}
      <ul className="events">
        {rows.slice(0, WRONG_SHOWN).map(({ key, what, why }) => (
          <li key={key} className="warn">
            <span className="grow">
              {what}
              {why && <span className="dim block">{why}</span>}
            </span>
          </li>
        ))}
      </ul>
      {rows.length > WRONG_SHOWN && <p className="dim">and {rows.length - WRONG_SHOWN} more</p>}
      {isOperator && <Cli line="flotilla doctor" />}
    </Panel>
  );
}

const AppLink = ({ app }: { readonly app: AppInfo }) => (
  <Link to="/apps/$name/{-$tab}" params={{ name: app.name, tab: undefined }}>
    {app.name}
  </Link>
);

/** What needs a decision, or is under way. */
function Waiting() {
  const apps = useQuery(appsQuery);
  const operations = useQuery(operationsQuery);
  const promotions = (apps.data ?? []).filter(({ status }) => status === "awaitingPromotion");
  const running = (operations.data ?? []).filter(({ status }) => status === "running");
  return (
    <Panel title="Waits for you">
      {promotions.length === 0 && <p className="dim fine">No rollout waits to be promoted.</p>}
      <ul className="events">
        {promotions.map((app) => (
          <li key={app.id}>
            <span className="grow">
              <AppLink app={app} /> waits to be promoted
            </span>
          </li>
        ))}
        {running.map((operation) => (
          <li key={operation.id}>
            <span className="grow">
              <Link to="/operations/$id" params={{ id: operation.id }}>
                {operation.kind} {operation.resource.name ?? operation.resource.id}
              </Link>
              <span className="dim block">{progressOf(operation)}</span>
            </span>
            <span className="dim">
              <Time at={operation.createdAt} />
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function Capacity() {
  const session = useSession();
  const nodes = useQuery({ ...nodesQuery, enabled: session.can("admin") });
  const account = useAccount();
  if (nodes.data === undefined) {
    const limits = account.data;
    if (limits === undefined) return null;
    return (
      <Panel title="Your plan">
        <p>{limits.plan?.name}</p>
        <p className="dim">
          at most {limits.effectiveMaxMachines} machines, {limits.effectiveMaxTotalCpus} CPUs and{" "}
          {renderMb(limits.effectiveMaxTotalMemoryMb)} together
        </p>
      </Panel>
    );
  }
  const { data } = nodes;
  const sum = (of: (node: NodeInfo) => number): number => data.reduce((all, node) => all + of(node), 0);
  const [cpus, totalCpus] = [sum((node) => node.usedCpus), sum((node) => node.totalCpus)];
  const [memory, totalMemory] = [sum((node) => node.usedMemoryMb), sum((node) => node.totalMemoryMb)];
  const [disk, totalDisk] = [sum((node) => node.usedDiskGb), sum((node) => node.totalDiskGb)];
  const ready = nodes.data.filter(({ status }) => status === "ready").length;
  return (
    <Panel title="Capacity">
      <p className="dim">
        {ready} of {nodes.data.length} nodes ready
      </p>
      <Bar label="CPUs" used={cpus} total={totalCpus} text={`${cpus} of ${totalCpus}`} />
      <Bar label="Memory" used={memory} total={totalMemory} text={`${renderMb(memory)} of ${renderMb(totalMemory)}`} />
      <Bar label="Disk" used={disk} total={totalDisk} text={`${disk} of ${totalDisk} GB`} />
    </Panel>
  );
}
