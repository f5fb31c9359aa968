/**
 * Who changed what: calls that changed something, in the tenant's hash chain.
 */
import type { AuditEntry } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { auditQuery } from "../data.ts";
import { renderDate } from "../format.ts";
import { Badge, Button, Cli, Empty, ErrorNote, Loading, PageHead, Time } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

const COLUMNS: readonly Column<AuditEntry>[] = [
  { name: "When", show: ({ at }) => <Time at={at} />, by: ({ at }) => at },
  {
    name: "Call",
    show: ({ type, calls }) => (
      <>
        <code>{type}</code>
        {calls !== undefined && ` × ${calls}`}
      </>
    ),
    by: ({ type }) => type,
  },
  {
    name: "Answer",
    show: ({ status, errorCode }) => <Badge tone={status < 400 ? "good" : "bad"}>{errorCode ?? status}</Badge>,
    by: ({ status }) => status,
  },
  { name: "Of", show: ({ resource }) => resource ?? "", by: ({ resource }) => resource ?? "" },
  { name: "Key", show: ({ keyId }) => <code>{keyId}</code>, by: ({ keyId }) => keyId, isWide: true },
  { name: "From", show: ({ address }) => address, by: ({ address }) => address, isWide: true },
];

export function AuditPage() {
  const audit = useQuery(auditQuery);
  const last = audit.data?.[0];
  return (
    <>
      <title>Audit · Flotilla</title>
      <PageHead title="Audit">
        <Button isBusy={audit.isFetching} onClick={() => void audit.refetch()}>
          Read again
        </Button>
      </PageHead>
      <ErrorNote error={audit.error} retry={() => void audit.refetch()} />
      {audit.isPending && <Loading what="the audit log" />}
      {audit.data !== undefined && (
        <>
          {last !== undefined && (
            <p className="dim">
              The newest of these was recorded {renderDate(last.at)}; each has the hash of the one before it.
            </p>
          )}
          <DataTable
            label="Audit"
            rows={audit.data}
            columns={COLUMNS}
            idOf={({ sequence }) => String(sequence)}
            empty={<Empty title="Nothing was changed yet" cli="flotilla audit ls" />}
          />
          <Cli line="flotilla audit verify" />
        </>
      )}
    </>
  );
}
