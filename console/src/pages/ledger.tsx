/**
 * The ledger of a tenant: what changed its balance, newest first.
 */
import type { LedgerTransaction } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api } from "../api.ts";
import { renderMoney, shellWord } from "../format.ts";
import { Badge, Cli, Empty, ErrorNote, Loading, Time } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

const PAGE = 1_000;
const TONES = { invoice: "warn", credit: "good", adjustment: "warn", hold: "off" } as const;

const columns = (isOwn: boolean): readonly Column<LedgerTransaction>[] => [
  { name: "When", show: ({ createdAt }) => <Time at={createdAt} />, by: ({ createdAt }) => createdAt },
  { name: "Kind", show: ({ kind }) => <Badge tone={TONES[kind]}>{kind}</Badge>, by: ({ kind }) => kind },
  {
    name: "What",
    show: ({ note, invoice }) =>
      invoice !== null && isOwn ? (
        <Link to="/usage/$id" params={{ id: invoice }}>
          {note || `invoice of ${invoice}`}
        </Link>
      ) : (
        note || invoice
      ),
    isWide: true,
  },
  {
    name: "Entries",
    show: ({ entries }) => (
      <span className="dim">
        {entries.map(({ account, micros }) => `${account} ${renderMoney(micros)}`).join(", ")}
      </span>
    ),
    isWide: true,
  },
  { name: "Balance", show: ({ balanceMicros }) => renderMoney(balanceMicros), isNumber: true },
];

interface LedgerProps {
  /** null: the session's own. */
  readonly tenantId: string | null;
  readonly name: string;
}

export function Ledger({ tenantId, name }: LedgerProps) {
  const ledger = useQuery({
    queryKey: ["ledger", tenantId],
    queryFn: async ({ signal }) => {
      const query = { limit: PAGE, ...(tenantId === null ? {} : { tenantId }) };
      return (await api.listLedger({ query, signal })).toReversed();
    },
    retry: false,
  });
  return (
    <>
      <ErrorNote error={ledger.error} retry={() => void ledger.refetch()} />
      {ledger.isPending && <Loading what="the ledger" />}
      {ledger.data !== undefined && (
        <DataTable
          label="Ledger"
          rows={ledger.data}
          columns={columns(tenantId === null)}
          idOf={({ id }) => id}
          empty={<Empty title="Nothing has changed the balance yet">Invoices and credit appear here.</Empty>}
        />
      )}
      <Cli line={`flotilla billing ledger${tenantId === null ? "" : ` --tenant ${shellWord(name)}`}`} />
    </>
  );
}
