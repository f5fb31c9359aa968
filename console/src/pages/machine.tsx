/**
 * One machine: its state and why, what can be done with it, and a tab for each thing that is in it.
 */
import { useParameter, usePathPart } from "../route.ts";
import { Tabs } from "@base-ui/react/tabs";
import { FlotillaError, type MachineInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { lazy, type ReactNode, Suspense, useState } from "react";
import { api } from "../api.ts";
import { machineQuery } from "../data.ts";
import { putMachine } from "../live.ts";
import { isUp, StateBadge, stateOf } from "../machine-state.tsx";
import { useSession } from "../session.tsx";
import { Button, Empty, ErrorNote, Loading, PageHead } from "../ui/parts.tsx";
import { MachineActions } from "./machine-actions.tsx";
import { SummaryTab } from "./machine-summary.tsx";

const MachineTerminal = lazy(async () => ({ default: (await import("../terminal.tsx")).MachineTerminal }));
const LogPane = lazy(async () => ({ default: (await import("../logs.tsx")).LogPane }));
const FilesPane = lazy(async () => ({ default: (await import("../files.tsx")).FilesPane }));
const TimelineTab = lazy(async () => ({ default: (await import("./machine-timeline.tsx")).TimelineTab }));
const BranchesTab = lazy(async () => ({ default: (await import("./machine-branches.tsx")).BranchesTab }));
const PlacementTab = lazy(async () => ({ default: (await import("./machine-placement.tsx")).PlacementTab }));
const UsageTab = lazy(async () => ({ default: (await import("./machine-usage.tsx")).UsageTab }));

const TABS = [
  ["summary", "Summary", null],
  ["terminal", "Terminal", "machine:exec"],
  ["logs", "Logs", null],
  ["files", "Files", "machine:files"],
  ["timeline", "Timeline", null],
  ["usage", "Usage", null],
  ["branches", "Branches", null],
  ["placement", "Placement", "admin"],
] as const;

export function MachinePage() {
  const id = usePathPart("id");
  const tab = usePathPart("tab") || "summary";
  const path = useParameter("path") || "/";
  const watched = useParameter("watch");
  const session = useSession();
  const navigate = useNavigate();
  const read = useQuery(machineQuery(id));
  const isGone = read.data === null || (read.error instanceof FlotillaError && read.error.status === 404);
  if (isGone) return <Gone id={id} />;
  if (read.data === undefined || read.data === null)
    return read.isPending ? (
      <Loading what="the machine" />
    ) : (
      <ErrorNote error={read.error} retry={() => void read.refetch()} />
    );
  const machine = read.data;
  const name = machine.name ?? machine.id;
  const { why } = stateOf(machine);
  const open = (to: string): void =>
    void navigate({ to: "/machines/$id/{-$tab}", params: { id, tab: to === "summary" ? undefined : to } });
  const setPath = (at: string): void =>
    void navigate({
      to: "/machines/$id/{-$tab}",
      params: { id, tab: "files" },
      search: at === "/" ? {} : { path: at },
    });
  const panel = (which: string) => {
    if (which === "summary") return <SummaryTab machine={machine} />;
    if (which === "terminal")
      return (
        <WhenUp machine={machine} what="open a terminal">
          <MachineTerminal machineId={id} name={name} watched={watched} />
        </WhenUp>
      );
    if (which === "logs")
      return (
        <LogPane
          key={id}
          path={`/v1/machines/${id}/logs`}
          read={(query, signal) => api.listMachineLogs(id, { query, signal })}
          empty="The workload has written nothing. Commands and terminals have no log."
        />
      );
    if (which === "files")
      return (
        <WhenUp machine={machine} what="look at its files">
          <FilesPane machineId={id} name={name} path={path} setPath={setPath} />
        </WhenUp>
      );
    if (which === "branches") return <BranchesTab machine={machine} />;
    if (which === "placement") return <PlacementTab machine={machine} />;
    if (which === "timeline") return <TimelineTab machine={machine} />;
    return <UsageTab machine={machine} />;
  };
  return (
    <div className="machine">
      <title>{`${name} · Flotilla`}</title>
      <nav className="crumbs" aria-label="Where this is">
        <Link to="/machines">All</Link> / {name}
      </nav>
      <PageHead title={name} badge={<StateBadge machine={machine} />}>
        <MachineActions machine={machine} />
      </PageHead>
      {why !== null && <p className={machine.state === "error" ? "note bad" : "note"}>{why}</p>}
      <Tabs.Root value={tab} onValueChange={(value) => open(String(value))}>
        <Tabs.List className="tabs" aria-label={`Parts of ${name}`}>
          {TABS.filter(([, , scope]) => scope === null || session.can(scope)).map(([value, text]) => (
            <Tabs.Tab key={value} value={value}>
              {text}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        {TABS.map(([value]) => (
          <Tabs.Panel key={value} value={value} className="tab-panel">
            <Suspense fallback={<Loading what={value} />}>{panel(value)}</Suspense>
          </Tabs.Panel>
        ))}
      </Tabs.Root>
    </div>
  );
}

interface WhenUpProps {
  readonly machine: MachineInfo;
  readonly what: string;
  readonly children: ReactNode;
}

/** What needs a machine that runs: looking at a page starts none. */
function WhenUp({ machine, what, children }: WhenUpProps) {
  const session = useSession();
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const start = async (): Promise<void> => {
    setIsBusy(true);
    setError(null);
    await api.startMachine(machine.id, { query: { detach: true } }).then(putMachine, setError);
    setIsBusy(false);
  };
  if (machine.state === "started") return children;
  if (isUp(machine)) return <Loading what={`until the machine has started, to ${what}`} />;
  return (
    <Empty
      title={`The machine is ${machine.suspendedAt === null ? machine.state : "suspended"}`}
      cli={`flotilla machine start ${machine.name ?? machine.id}`}
      action={
        session.can("machine:create") && (
          <Button look="main" isBusy={isBusy} onClick={() => void start()}>
            Start it and {what}
          </Button>
        )
      }
    >
      <ErrorNote error={error} />
    </Empty>
  );
}

function Gone({ id }: { readonly id: string }) {
  return (
    <>
      <title>No such machine · Flotilla</title>
      <PageHead title="No such machine" />
      <Empty
        title="It was deleted, or is not yours"
        action={
          <Link to="/machines" className="button main">
            See the others
          </Link>
        }
      >
        {id}
      </Empty>
    </>
  );
}
