/**
 * Long work: the list, and one with its steps.
 */
import type { Operation } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api } from "../api.ts";
import { operationsQuery } from "../data.ts";
import { putOperation } from "../live.ts";
import { usePathPart } from "../route.ts";
import { useSession } from "../session.tsx";
import { OPERATION_TONES, progressOf } from "../tasks.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Badge, Button, Cli, Empty, ErrorNote, Facts, Loading, PageHead, Panel, Time } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

const COLUMNS: readonly Column<Operation>[] = [
  {
    name: "Work",
    show: ({ id, kind, resource }) => (
      <Link to="/operations/$id" params={{ id }}>
        {kind} {resource.name ?? resource.id}
      </Link>
    ),
    by: ({ kind }) => kind,
  },
  {
    name: "State",
    show: ({ status }) => <Badge tone={OPERATION_TONES[status]}>{status}</Badge>,
    by: ({ status }) => status,
  },
  { name: "Progress", show: (operation) => progressOf(operation), isWide: true },
  { name: "Begun", show: ({ createdAt }) => <Time at={createdAt} />, by: ({ createdAt }) => createdAt },
];

export function OperationsPage() {
  const operations = useQuery(operationsQuery);
  return (
    <>
      <title>Operations · Flotilla</title>
      <PageHead title="Operations" />
      <ErrorNote error={operations.error} retry={() => void operations.refetch()} />
      {operations.isPending && <Loading what="operations" />}
      {operations.data !== undefined && (
        <DataTable
          label="Operations"
          rows={operations.data}
          columns={COLUMNS}
          idOf={({ id }) => id}
          empty={
            <Empty title="No long work yet" cli="flotilla operation ls">
              Moves, drains, image pulls, deploys and branches appear here with their steps.
            </Empty>
          }
        />
      )}
    </>
  );
}

const STEP_TONES = { pending: "off", running: "busy", succeeded: "good", failed: "bad" } as const;

export function OperationPage() {
  const id = usePathPart("id");
  const session = useSession();
  const [isCanceling, setIsCanceling] = useState(false);
  const read = useQuery({ queryKey: ["operations", id], queryFn: ({ signal }) => api.getOperation(id, { signal }) });
  if (read.data === undefined)
    return read.isPending ? <Loading what="the operation" /> : <ErrorNote error={read.error} />;
  const { kind, resource, status, steps, error, createdAt, updatedAt } = read.data;
  const title = `${kind} ${resource.name ?? resource.id}`;
  return (
    <>
      <title>{`${title} · Flotilla`}</title>
      <nav className="crumbs" aria-label="Where this is">
        <Link to="/operations">All</Link> / {title}
      </nav>
      <PageHead title={title} badge={<Badge tone={OPERATION_TONES[status]}>{status}</Badge>}>
        {status === "running" && session.can("admin") && (
          <Button look="danger" onClick={() => setIsCanceling(true)}>
            Cancel it
          </Button>
        )}
      </PageHead>
      {error !== null && <p className="note bad">{error}</p>}
      <Panel title="Steps">
        <ol className="timeline">
          {steps.map((step) => (
            <li key={step.name}>
              <div>
                <strong>{step.name}</strong>
                {step.message !== null && <span className="dim">{step.message}</span>}
              </div>
              <Badge tone={STEP_TONES[step.status]}>{step.status}</Badge>
            </li>
          ))}
        </ol>
        <Facts
          rows={[
            ["Begun", <Time key="a" at={createdAt} isWhole />],
            ["Changed", <Time key="b" at={updatedAt} isWhole />],
            ["Id", <code key="c">{id}</code>],
          ]}
        />
      </Panel>
      <Cli line={`flotilla operation get ${id}`} />
      <Confirm
        title={`Cancel ${title}?`}
        verb="Cancel it"
        isOpen={isCanceling}
        onClose={() => setIsCanceling(false)}
        act={async () => {
          putOperation(await api.cancelOperation(id));
        }}
      >
        <p>It ends as soon as its worker notices; what it has done is undone where that is possible.</p>
      </Confirm>
    </>
  );
}
