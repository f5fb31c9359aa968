/**
 * The list of machines: filtered, sorted, and acted on together.
 */
import { useParameter } from "../route.ts";
import type { MachineInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import type { RowSelectionState } from "@tanstack/react-table";
import { useDeferredValue, useMemo, useState } from "react";
import { api } from "../api.ts";
import { machinesQuery } from "../data.ts";
import { renderCount, renderMb } from "../format.ts";
import { dropMachine, putMachine } from "../live.ts";
import { StateBadge, stateOf } from "../machine-state.tsx";
import { useSession } from "../session.tsx";
import { attempt, Confirm } from "../ui/dialog.tsx";
import { Button, Cli, Empty, ErrorNote, Loading, MachineLink, PageHead, Select, Time } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

const STATES = [
  ["", "All states"],
  ["started", "Started"],
  ["creating", "Starting"],
  ["stopped", "Stopped"],
  ["error", "Error"],
] as const;
/** So many calls at the same time: the server gives each tenant its turn. */
const AT_ONCE = 8;

const COLUMNS: readonly Column<MachineInfo>[] = [
  {
    name: "Name",
    show: ({ id, name }) => <MachineLink id={id} name={name} />,
    by: ({ id, name }) => (name ?? id).toLowerCase(),
  },
  { name: "State", show: (machine) => <StateBadge machine={machine} />, by: (machine) => stateOf(machine).text },
  { name: "Image", show: ({ source }) => source.reference, by: ({ source }) => source.reference },
  {
    name: "Size",
    show: ({ resources }) => `${resources.cpus} CPU · ${renderMb(resources.memoryMb)}`,
    by: ({ resources }) => resources.cpus * 1_000_000 + resources.memoryMb,
    isWide: true,
  },
  {
    name: "Labels",
    show: ({ labels }) => <Labels labels={labels} />,
    isWide: true,
  },
  {
    name: "Node",
    show: ({ nodeId }) => nodeId ?? <span className="dim">none</span>,
    by: ({ nodeId }) => nodeId ?? "",
    isWide: true,
  },
  { name: "Created", show: ({ createdAt }) => <Time at={createdAt} />, by: ({ createdAt }) => createdAt, isWide: true },
];

function Labels({ labels }: Pick<MachineInfo, "labels">) {
  return Object.entries(labels).map(([name, value]) => (
    <Link key={name} to="/machines" search={{ q: `${name}=${value}` }} className="label">
      {name}={value}
    </Link>
  ));
}

/** Whether each term of the filter is in the machine's name, id, image, node or labels. */
function fits(machine: MachineInfo, terms: readonly string[]): boolean {
  if (terms.length === 0) return true;
  const labels = Object.entries(machine.labels).map(([name, value]) => `${name}=${value}`);
  const text = [machine.name, machine.id, machine.source.reference, machine.nodeId, ...labels].join("\n").toLowerCase();
  return terms.every((term) => text.includes(term));
}

export function MachinesPage() {
  const session = useSession();
  const navigate = useNavigate();
  const q = useParameter("q");
  const state = useParameter("state");
  const machines = useQuery(machinesQuery);
  const [selected, setSelected] = useState<RowSelectionState>({});
  const wanted = useDeferredValue(q);
  const shown = useMemo(() => {
    const terms = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    return (machines.data ?? []).filter((each) => (state === "" || each.state === state) && fits(each, terms));
  }, [machines.data, wanted, state]);
  const setSearch = (search: { q?: string; state?: string }): void =>
    void navigate({ to: "/machines", search: clean({ q, state, ...search }), replace: true });
  const chosen = useMemo(() => shown.filter(({ id }) => selected[id] === true), [shown, selected]);
  const canChange = session.can("machine:create") || session.can("machine:delete");
  const all = machines.data ?? [];
  return (
    <>
      <title>Machines · Flotilla</title>
      <PageHead title="Machines">
        {session.can("machine:create") && (
          <Button look="main" icon="plus" onClick={() => void navigate({ to: "/machines/create" })}>
            Create machine
          </Button>
        )}
      </PageHead>
      <ErrorNote error={machines.error} retry={() => void machines.refetch()} />
      {machines.isPending && <Loading what="machines" />}
      {machines.data !== undefined && all.length === 0 && (
        <Empty title="No machines yet" cli="flotilla machine create local/busybox --name hello --start">
          A machine is made from an image, has its own kernel and disk, and keeps its files when it stops.
        </Empty>
      )}
      {all.length > 0 && (
        <>
          <div className="filters">
            <input
              type="search"
              aria-label="Filter"
              placeholder="Filter: text, image, node, label=value"
              value={q}
              onChange={(event) => setSearch({ q: event.target.value })}
            />
            <Select
              label="State"
              isInline
              value={state}
              options={STATES}
              onChange={(value) => setSearch({ state: value })}
            />
            <span className="dim" role="status">
              {shown.length === all.length ? renderCount(all.length, "machine") : `${shown.length} of ${all.length}`}
            </span>
          </div>
          {chosen.length > 0 && <Together machines={chosen} done={() => setSelected({})} />}
          <DataTable
            label="Machines"
            rows={shown}
            columns={COLUMNS}
            idOf={({ id }) => id}
            nameOf={({ id, name }) => name ?? id}
            empty={<Empty title="No machine fits the filter">Another text or state may.</Empty>}
            {...(canChange ? { selected, onSelect: setSelected } : {})}
          />
        </>
      )}
    </>
  );
}

const clean = (search: { q?: string; state?: string }) => ({
  ...(search.q ? { q: search.q } : {}),
  ...(search.state ? { state: search.state } : {}),
});

/** What can be done with all machines that are chosen. */
function Together({ machines, done }: { readonly machines: readonly MachineInfo[]; readonly done: () => void }) {
  const session = useSession();
  const [busy, setBusy] = useState<string | null>(null);
  const [isDeleting, setIsDeleting] = useState(false);
  const count = renderCount(machines.length, "machine");
  const each = async (verb: string, act: (machine: MachineInfo) => Promise<unknown>): Promise<void> => {
    setBusy(verb);
    const failures = await forEach(machines, act);
    setBusy(null);
    const [first] = failures;
    if (first !== undefined) await attempt(`${verb} of ${failures.length} of ${count}`, () => Promise.reject(first));
    done();
  };
  return (
    <div className="together" role="toolbar" aria-label="Chosen machines">
      <strong>{count} chosen</strong>
      {session.can("machine:create") && (
        <>
          <Button
            isBusy={busy === "Start"}
            disabled={busy !== null}
            onClick={() =>
              void each("Start", async ({ id }) => putMachine(await api.startMachine(id, { query: { detach: true } })))
            }
          >
            Start
          </Button>
          <Button
            isBusy={busy === "Stop"}
            disabled={busy !== null}
            onClick={() => void each("Stop", async ({ id }) => putMachine(await api.stopMachine(id)))}
          >
            Stop
          </Button>
        </>
      )}
      {session.can("machine:delete") && (
        <Button look="danger" disabled={busy !== null} onClick={() => setIsDeleting(true)}>
          Delete
        </Button>
      )}
      <Button look="quiet" onClick={done}>
        Choose none
      </Button>
      <Confirm
        title={`Delete ${count}?`}
        verb={`Delete ${count}`}
        isOpen={isDeleting}
        onClose={() => setIsDeleting(false)}
        act={() => each("Delete", remove)}
      >
        <p>Their disks with all files, their logs and their checkpoints are lost. This cannot be undone.</p>
        <p className="dim">
          {machines
            .slice(0, 10)
            .map(({ id, name }) => name ?? id)
            .join(", ")}
          {machines.length > 10 && ` and ${machines.length - 10} more`}
        </p>
        <Cli
          line={`flotilla machine rm ${machines
            .slice(0, 3)
            .map(({ id, name }) => name ?? id)
            .join(" ")}`}
        />
      </Confirm>
    </div>
  );
}

const remove = async ({ id }: MachineInfo): Promise<void> => {
  await api.deleteMachine(id);
  dropMachine(id);
};

/** Does it with each, some at the same time. Returns the errors. */
async function forEach<Item>(items: readonly Item[], act: (item: Item) => Promise<unknown>): Promise<Error[]> {
  const errors: Error[] = [];
  const left = items.values();
  const work = async (): Promise<void> => {
    for (const item of left) await act(item).catch((error: Error) => errors.push(error));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return errors;
}
