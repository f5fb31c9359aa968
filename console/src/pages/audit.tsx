/**
 * Who changed what: calls that changed something or were refused, newest first, in the tenant's hash chain.
 */
import type { AuditEntry } from "@flotilla/sdk";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useDeferredValue, useState } from "react";
import { api } from "../api.ts";
import { nextCursor } from "../data.ts";
import { renderCount, renderDate } from "../format.ts";
import { useSession } from "../session.tsx";
import { Badge, Button, Cli, CopyButton, Empty, ErrorNote, Loading, PageHead, Time } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

const PAGE = 200;

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

interface AuditPage {
  readonly entries: readonly AuditEntry[];
  readonly next: string | null;
}

async function readPage(all: boolean, cursor: string | null, signal: AbortSignal): Promise<AuditPage> {
  let next: string | null = null;
  const onHeaders = (headers: Headers): void => void (next = nextCursor(headers));
  const query = {
    limit: PAGE,
    order: "desc" as const,
    ...(all ? { all } : {}),
    ...(cursor === null ? {} : { cursor }),
  };
  const entries = await api.listAudit({ query, onHeaders, signal });
  return { entries, next };
}

export function AuditPage() {
  const session = useSession();
  const [isOfAll, setIsOfAll] = useState(false);
  const [text, setText] = useState("");
  const wanted = useDeferredValue(text.trim().toLowerCase());
  const audit = useInfiniteQuery({
    queryKey: ["audit", isOfAll],
    queryFn: ({ pageParam, signal }) => readPage(isOfAll, pageParam, signal),
    initialPageParam: null as string | null,
    getNextPageParam: ({ next }) => next,
  });
  const read = (audit.data?.pages ?? []).flatMap(({ entries }) => entries);
  const shown = read.filter(
    ({ type, resource, keyId, address, errorCode, tenantId }) =>
      wanted === "" ||
      `${type} ${resource} ${keyId} ${address} ${errorCode} ${tenantId}`.toLowerCase().includes(wanted),
  );
  const last = read[0];
  return (
    <>
      <title>Audit · Flotilla</title>
      <PageHead title="Audit" />
      <ErrorNote error={audit.error} retry={() => void audit.refetch()} />
      {audit.isPending && <Loading what="the audit log" />}
      {audit.data !== undefined && (
        <>
          <div className="filters">
            <input
              type="search"
              aria-label="Filter"
              placeholder="Filter: call, thing, key, address"
              value={text}
              onChange={(change) => setText(change.target.value)}
            />
            {session.can("admin") && (
              <label className="check">
                <input type="checkbox" checked={isOfAll} onChange={(change) => setIsOfAll(change.target.checked)} />
                All tenants
              </label>
            )}
            <span className="dim" role="status">
              {renderCount(shown.length, "call")}
            </span>
          </div>
          <DataTable
            label="Audit"
            rows={shown}
            columns={COLUMNS}
            idOf={({ tenantId, sequence }) => `${tenantId} ${sequence}`}
            empty={
              wanted === "" ? (
                <Empty title="Nothing was changed yet" cli="flotilla audit ls">
                  Each call that changes something, or is refused, appears here.
                </Empty>
              ) : (
                <Empty title="No call fits the filter" />
              )
            }
          />
          {audit.hasNextPage && (
            <Button isBusy={audit.isFetchingNextPage} onClick={() => void audit.fetchNextPage()}>
              Read older ones
            </Button>
          )}
          {last !== undefined && !isOfAll && (
            <p className="dim">
              The newest was recorded {renderDate(last.at)} as number {last.sequence}; each has the hash of the one
              before it. Keep the last hash elsewhere, to notice a log that was rewritten:{" "}
              <code>{last.hash.slice(0, 16)}…</code> <CopyButton text={last.hash} what="the last hash" />
            </p>
          )}
          <Cli line="flotilla audit verify" />
        </>
      )}
    </>
  );
}
