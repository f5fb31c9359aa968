/**
 * What the tenant has used and cost this month, its invoices and its ledger.
 */
import type { InvoiceInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { invoicesQuery } from "../data.ts";
import { renderMoney } from "../format.ts";
import { useAccount, useSession } from "../session.tsx";
import { Badge, Bar, Cli, Empty, ErrorNote, Facts, Loading, PageHead, Panel } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";
import { Ledger } from "./ledger.tsx";

/** The state of an invoice. */
export const INVOICE_TONES = { draft: "off", grace: "warn", finalized: "good" } as const;

export const monthOf = (at: string): string =>
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
  {
    name: "State",
    show: ({ status }) => <Badge tone={INVOICE_TONES[status]}>{status}</Badge>,
    by: ({ status }) => status,
  },
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
      {session.can("billing:read") && (
        <>
          <h2 className="section">Ledger</h2>
          <Ledger tenantId={null} name="" />
        </>
      )}
      {!session.can("billing:read") && <p className="dim">This key may not read invoices: it lacks billing:read.</p>}
    </>
  );
}
