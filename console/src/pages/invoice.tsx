/**
 * One invoice: its lines, which machines, apps or keys they come from, and the intervals behind each line.
 */
import type { InvoiceCost, InvoiceInterval, InvoiceLine } from "@flotilla/sdk";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api } from "../api.ts";
import { invoiceQuery, machineNamesQuery, nextCursor } from "../data.ts";
import { renderMoney, renderSeconds } from "../format.ts";
import { usePathPart } from "../route.ts";
import { useSession } from "../session.tsx";
import { Sheet } from "../ui/dialog.tsx";
import {
  Badge,
  Button,
  Cli,
  Empty,
  ErrorNote,
  Facts,
  Loading,
  MachineLink,
  PageHead,
  Select,
  Time,
} from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";
import { INVOICE_TONES, monthOf } from "./usage.tsx";

const PAGE = 200;
const COSTS_MAX = 1_000;

const METERS: Readonly<Record<InvoiceLine["meter"], string>> = {
  uptime: "While machines run",
  cpu: "Processors",
  memory: "Memory",
  disk: "Disk",
  egress: "Egress",
  registry: "Registry",
};

const columns = (open: (line: InvoiceLine) => void): readonly Column<InvoiceLine>[] => [
  {
    name: "What",
    show: ({ meter, kind }) => (
      <>
        {METERS[meter]} {kind === "adjustment" && <Badge tone="warn">adjustment</Badge>}
      </>
    ),
    by: ({ meter }) => meter,
  },
  { name: "Month", show: ({ month }) => month, by: ({ month }) => month },
  { name: "Amount", show: ({ amount }) => amount, isNumber: true, isWide: true },
  { name: "Cost", show: ({ micros }) => renderMoney(micros), by: ({ micros }) => micros, isNumber: true },
  {
    name: "From",
    show: (line) => (
      <Button onClick={() => open(line)} aria-label={`Intervals of ${METERS[line.meter]} of ${line.month}`}>
        Intervals
      </Button>
    ),
  },
];

export function InvoicePage() {
  const id = usePathPart("id");
  const read = useQuery(invoiceQuery(id));
  const [opened, setOpened] = useState<InvoiceLine | null>(null);
  if (read.data === undefined)
    return read.isPending ? <Loading what="the invoice" /> : <ErrorNote error={read.error} />;
  const invoice = read.data;
  const title = `Invoice of ${monthOf(invoice.from)}`;
  return (
    <>
      <title>{`${title} · Flotilla`}</title>
      <nav className="crumbs" aria-label="Where this is">
        <Link to="/usage">Usage and invoices</Link> / {monthOf(invoice.from)}
      </nav>
      <PageHead title={title} badge={<Badge tone={INVOICE_TONES[invoice.status]}>{invoice.status}</Badge>} />
      {invoice.isTest && <p className="note">A rehearsal of a tenant with a test clock: it is not to be paid.</p>}
      <Facts
        rows={[
          ["Total", <strong key="t">{renderMoney(invoice.totalMicros)}</strong>],
          ["Final from", <Time key="f" at={invoice.finalFrom} isWhole />],
          ["Became final", invoice.finalizedAt && <Time key="z" at={invoice.finalizedAt} isWhole />],
          ["Number", invoice.number === null ? null : `${invoice.series ?? ""}${invoice.number}`],
        ]}
      />
      <DataTable
        label="Lines"
        rows={invoice.lines}
        columns={columns(setOpened)}
        idOf={(line) => `${line.month} ${line.meter} ${line.rateId} ${line.kind}`}
        empty={<Empty title="Nothing was used">A line appears as soon as a machine runs.</Empty>}
      />
      <Costs id={id} />
      <Cli line={`flotilla invoice show ${invoice.from.slice(0, 7)}`} />
      {opened !== null && <Intervals id={id} line={opened} onClose={() => setOpened(null)} />}
    </>
  );
}

const GROUPS = [
  ["machine", "machine"],
  ["app", "app"],
  ["key", "key"],
] as const;

/** The invoice's total, by who caused it. */
function Costs({ id }: { readonly id: string }) {
  const session = useSession();
  const [by, setBy] = useState<string>("machine");
  const names = useQuery({ ...machineNamesQuery, enabled: session.can("machine:read") });
  const costs = useQuery({
    queryKey: ["invoices", id, "costs", by],
    queryFn: ({ signal }) => api.listInvoiceCosts(id, { query: { by, limit: COSTS_MAX }, signal }),
  });
  const sums = [...Map.groupBy(costs.data ?? [], ({ group }: InvoiceCost) => group)]
    .map(([group, rows]) => ({ group, micros: rows.reduce((sum, { micros }) => sum + micros, 0) }))
    .toSorted((one, other) => other.micros - one.micros);
  return (
    <>
      <div className="filters">
        <h2 className="section">What it comes from</h2>
        <Select label="By" isInline value={by} options={GROUPS} onChange={setBy} />
      </div>
      <ErrorNote error={costs.error} retry={() => void costs.refetch()} />
      {costs.isPending && <Loading what="the costs" />}
      {costs.data?.length === 0 && <p className="dim fine">Nothing was used.</p>}
      <ul className="events">
        {sums.map(({ group, micros }) => (
          <li key={group ?? ""}>
            <span className="grow">
              {group === null ? (
                <span className="dim">none, or the registry</span>
              ) : by === "machine" ? (
                <MachineLink id={group} name={names.data?.get(group) ?? null} />
              ) : (
                group
              )}
            </span>
            <span className="number">{renderMoney(micros)}</span>
          </li>
        ))}
      </ul>
      {costs.data?.length === COSTS_MAX && <p className="dim">These are the first {COSTS_MAX} groups of lines.</p>}
    </>
  );
}

const INTERVALS: readonly Column<InvoiceInterval>[] = [
  {
    name: "Machine",
    show: ({ machineId }) =>
      machineId === null ? "the registry" : <MachineLink id={machineId} name={machineId.slice(0, 13)} />,
  },
  { name: "Quantity", show: ({ quantity }) => quantity, by: ({ quantity }) => quantity, isNumber: true },
  { name: "From", show: ({ startedAt }) => <Time at={startedAt} isWhole />, by: ({ startedAt }) => startedAt },
  {
    name: "For",
    show: ({ startedAt, countedUntil, endedAt }) =>
      `${renderSeconds(Math.max(0, Date.parse(countedUntil) - Date.parse(startedAt)) / 1000)}${endedAt === null ? " so far" : ""}`,
  },
];

interface IntervalsProps {
  readonly id: string;
  readonly line: InvoiceLine;
  readonly onClose: () => void;
}

/** What a line was computed from, one interval after the other. */
function Intervals({ id, line, onClose }: IntervalsProps) {
  const read = useInfiniteQuery({
    queryKey: ["invoices", id, "intervals", line.meter, line.month],
    queryFn: async ({ pageParam, signal }) => {
      let next: string | null = null;
      const onHeaders = (headers: Headers): void => void (next = nextCursor(headers));
      const query = {
        ...{ meter: line.meter, month: line.month, limit: PAGE },
        ...(pageParam === null ? {} : { cursor: pageParam }),
      };
      const items = await api.listInvoiceIntervals(id, { query, onHeaders, signal });
      return { items, next: next as string | null };
    },
    initialPageParam: null as string | null,
    getNextPageParam: ({ next }) => next,
  });
  const rows = (read.data?.pages ?? []).flatMap(({ items }) => items);
  return (
    <Sheet title={`${METERS[line.meter]} of ${line.month}`} isOpen onClose={onClose} isSide>
      <div className="body">
        <ErrorNote error={read.error} retry={() => void read.refetch()} />
        {read.isPending && <Loading what="the intervals" />}
        <DataTable
          label="Intervals"
          rows={rows}
          columns={INTERVALS}
          idOf={(each) => String(each.id)}
          empty={<p className="dim fine">None is known.</p>}
        />
        {read.hasNextPage && (
          <Button isBusy={read.isFetchingNextPage} onClick={() => void read.fetchNextPage()}>
            Read more
          </Button>
        )}
      </div>
    </Sheet>
  );
}
