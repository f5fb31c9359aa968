/**
 * What the tenant has used and cost this month, and its invoices with what each line comes from.
 */
import { usePathPart } from "../route.ts";
import type { InvoiceInfo, InvoiceLine } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { invoiceQuery, invoicesQuery } from "../data.ts";
import { renderMoney } from "../format.ts";
import { useAccount, useSession } from "../session.tsx";
import { Badge, Bar, Cli, Empty, ErrorNote, Facts, Loading, PageHead, Panel, Time } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

const TONES = { draft: "off", grace: "warn", finalized: "good" } as const;

const monthOf = (at: string): string =>
  new Date(at).toLocaleDateString(undefined, { month: "long", year: "numeric", timeZone: "UTC" });

const COLUMNS: readonly Column<InvoiceInfo>[] = [
  {
    name: "Month",
    show: ({ id, from }) => (
      <Link to="/usage/$id" params={{ id }}>
        {monthOf(from)}
      </Link>
    ),
    by: ({ from }) => from,
  },
  { name: "State", show: ({ status }) => <Badge tone={TONES[status]}>{status}</Badge>, by: ({ status }) => status },
  { name: "Number", show: ({ series, number }) => (number === null ? "" : `${series ?? ""}${number}`), isWide: true },
  {
    name: "Total",
    show: ({ totalMicros }) => renderMoney(totalMicros),
    by: ({ totalMicros }) => totalMicros,
    isNumber: true,
  },
];

export function UsagePage() {
  const session = useSession();
  const account = useAccount();
  const invoices = useQuery({ ...invoicesQuery, enabled: session.can("billing:read") });
  const { data } = account;
  return (
    <>
      <title>Usage and invoices · Flotilla</title>
      <PageHead title="Usage and invoices" />
      <ErrorNote error={account.error ?? invoices.error} retry={() => void account.refetch()} />
      {account.isPending && <Loading what="usage" />}
      {data !== undefined && (
        <div className="panels">
          <Panel title="This month">
            <p className="figure">{renderMoney(data.periodCost.totalMicros)}</p>
            {data.monthlyBudgetMicros !== null && (
              <Bar
                label="Budget"
                used={data.periodCost.totalMicros + data.heldMicros}
                total={data.monthlyBudgetMicros}
                text={`${renderMoney(data.periodCost.totalMicros)} of ${renderMoney(data.monthlyBudgetMicros)}`}
              />
            )}
            <Facts
              rows={[
                ["Plan", data.plan?.name],
                ["Credit left", data.prepaidCreditMicros === 0 ? null : renderMoney(data.prepaidCreditMicros)],
                ["Held", data.heldMicros === 0 ? null : renderMoney(data.heldMicros)],
                ["Test clock", data.testClock],
              ]}
            />
          </Panel>
          <Panel title="What it comes from">
            <Facts
              rows={[
                [
                  "Processors",
                  `${renderMoney(data.periodCost.cpuMicros)} for ${data.periodUsage.cpuHours.toFixed(3)} hours`,
                ],
                [
                  "Memory",
                  `${renderMoney(data.periodCost.memoryMicros)} for ${data.periodUsage.memoryGbHours.toFixed(3)} GB hours`,
                ],
                [
                  "Disk",
                  `${renderMoney(data.periodCost.diskMicros)} for ${data.periodUsage.diskGbHours.toFixed(3)} GB hours`,
                ],
                [
                  "Egress",
                  `${renderMoney(data.periodCost.egressMicros)} for ${data.periodUsage.egressGb.toFixed(3)} GB`,
                ],
                ["While machines run", renderMoney(data.periodCost.baseMicros)],
              ]}
            />
            <Cli line="flotilla usage" />
          </Panel>
        </div>
      )}
      <h2 className="section">Invoices</h2>
      {invoices.data !== undefined && (
        <DataTable
          label="Invoices"
          rows={invoices.data}
          columns={COLUMNS}
          idOf={({ id }) => id}
          empty={
            <Empty title="No invoice yet" cli="flotilla invoice ls">
              Each month that ends becomes one.
            </Empty>
          }
        />
      )}
      {!session.can("billing:read") && <p className="dim">This key may not read invoices: it lacks billing:read.</p>}
    </>
  );
}

const LINES: readonly Column<InvoiceLine>[] = [
  {
    name: "What",
    show: ({ meter, kind }) => (
      <>
        {meter} {kind === "adjustment" && <Badge tone="warn">adjustment</Badge>}
      </>
    ),
    by: ({ meter }) => meter,
  },
  { name: "Month", show: ({ month }) => month, by: ({ month }) => month },
  { name: "Amount", show: ({ amount }) => amount, isNumber: true, isWide: true },
  { name: "From", show: ({ intervals }) => <span className="dim">{intervals} intervals</span>, isWide: true },
  { name: "Cost", show: ({ micros }) => renderMoney(micros), by: ({ micros }) => micros, isNumber: true },
];

export function InvoicePage() {
  const id = usePathPart("id");
  const read = useQuery(invoiceQuery(id));
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
      <PageHead title={title} badge={<Badge tone={TONES[invoice.status]}>{invoice.status}</Badge>} />
      <Facts
        rows={[
          ["Total", <strong key="t">{renderMoney(invoice.totalMicros)}</strong>],
          ["Final from", <Time key="f" at={invoice.finalFrom} isWhole />],
        ]}
      />
      <DataTable
        label="Lines"
        rows={invoice.lines.map((line, index) => ({ ...line, index }))}
        columns={LINES}
        idOf={(line) => `${line.month} ${line.meter} ${line.rateId} ${line.kind}`}
        empty={<Empty title="Nothing was used" />}
      />
      <Cli line={`flotilla invoice show ${invoice.from.slice(0, 7)}`} />
    </>
  );
}
