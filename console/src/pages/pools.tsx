/**
 * Pools: machines that are started before they are needed.
 */
import type { PoolInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type SyntheticEvent, useMemo, useState } from "react";
import { api, queries } from "../api.ts";
import { poolsQuery } from "../data.ts";
import { putMachine } from "../live.ts";
import { useSession } from "../session.tsx";
import { attempt, Confirm, Sheet } from "../ui/dialog.tsx";
import { Badge, Bar, Button, Cli, Empty, ErrorNote, Field, Loading, PageHead, Time } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

const TONES = { filling: "busy", ready: "good", degraded: "bad" } as const;
const again = (): Promise<void> => queries.invalidateQueries({ queryKey: ["pools"] });

export function PoolsPage() {
  const session = useSession();
  const navigate = useNavigate();
  const pools = useQuery(poolsQuery);
  const [isMaking, setIsMaking] = useState(false);
  const [removed, setRemoved] = useState<PoolInfo | null>(null);
  const columns = useMemo<readonly Column<PoolInfo>[]>(
    () => [
      { name: "Image", show: ({ image }) => <strong>{image}</strong>, by: ({ image }) => image },
      {
        name: "State",
        show: ({ status, error }) => (
          <span title={error ?? ""}>
            <Badge tone={TONES[status]}>{status}</Badge>
          </span>
        ),
        by: ({ status }) => status,
      },
      {
        name: "Waiting",
        show: (pool) => (
          <Bar
            isGoal
            isBare
            label="Machines that wait"
            used={pool.idleCount}
            total={pool.targetSize}
            text={`${pool.idleCount} of ${pool.targetSize}`}
          />
        ),
        by: ({ idleCount }) => idleCount,
      },
      {
        name: "Made",
        show: ({ createdAt }) => <Time at={createdAt} />,
        by: ({ createdAt }) => createdAt,
        isWide: true,
      },
      {
        name: "Actions",
        show: (pool) => (
          <span className="row-actions">
            {session.can("machine:create") && (
              <Button
                onClick={() =>
                  void attempt("The claim", async () => {
                    const machine = await api.claimMachine(pool.id);
                    putMachine(machine);
                    await navigate({ to: "/machines/$id/{-$tab}", params: { id: machine.id, tab: undefined } });
                  })
                }
              >
                Claim
              </Button>
            )}
            {session.can("pool:write") && (
              <Button
                look="quiet"
                icon="close"
                aria-label={`Delete the pool of ${pool.image}`}
                onClick={() => setRemoved(pool)}
              />
            )}
          </span>
        ),
      },
    ],
    [session.subject, navigate],
  );
  return (
    <>
      <title>Pools · Flotilla</title>
      <PageHead title="Pools">
        {session.can("pool:write") && (
          <Button look="main" icon="plus" onClick={() => setIsMaking(true)}>
            Create pool
          </Button>
        )}
      </PageHead>
      <ErrorNote error={pools.error} retry={() => void pools.refetch()} />
      {pools.isPending && <Loading what="pools" />}
      {pools.data !== undefined && (
        <DataTable
          label="Pools"
          rows={pools.data}
          columns={columns}
          idOf={({ id }) => id}
          empty={
            <Empty title="No pools yet" cli="flotilla pool create alpine --size 3">
              A pool keeps machines of an image started, so that a claim has one at once.
            </Empty>
          }
        />
      )}
      <Make isOpen={isMaking} onClose={() => setIsMaking(false)} />
      <Confirm
        title={`Delete the pool of ${removed?.image ?? ""}?`}
        verb="Delete"
        isOpen={removed !== null}
        onClose={() => setRemoved(null)}
        act={async () => {
          await api.deletePool(removed?.id ?? "");
          await again();
        }}
      >
        <p>Its {removed?.idleCount ?? 0} waiting machines are deleted. Machines that were claimed stay.</p>
      </Confirm>
    </>
  );
}

function Make({ isOpen, onClose }: { readonly isOpen: boolean; readonly onClose: () => void }) {
  const [draft, setDraft] = useState({ image: "", size: "2", memoryMb: "" });
  const [error, setError] = useState<unknown>(null);
  const submit = async (event: SyntheticEvent): Promise<void> => {
    event.preventDefault();
    setError(null);
    try {
      const memory = draft.memoryMb === "" ? {} : { memoryMb: Number(draft.memoryMb) };
      await api.createPool({ image: draft.image, targetSize: Number(draft.size), ...memory });
      await again();
      onClose();
    } catch (failed) {
      setError(failed);
    }
  };
  return (
    <Sheet title="Create a pool" isOpen={isOpen} onClose={onClose}>
      <form className="body" onSubmit={(event) => void submit(event)}>
        <Field
          label="Image"
          value={draft.image}
          onChange={(event) => setDraft({ ...draft, image: event.target.value })}
          required
        />
        <div className="row">
          <Field
            label="Machines that wait"
            type="number"
            min={1}
            value={draft.size}
            onChange={(event) => setDraft({ ...draft, size: event.target.value })}
          />
          <Field
            label="Memory (MB)"
            type="number"
            min={128}
            placeholder="default"
            value={draft.memoryMb}
            onChange={(event) => setDraft({ ...draft, memoryMb: event.target.value })}
          />
        </div>
        <ErrorNote error={error} />
        <Cli line={`flotilla pool create ${draft.image || "alpine"} --size ${draft.size}`} />
        <footer>
          <Button onClick={onClose}>Close</Button>
          <Button look="main" type="submit">
            Create
          </Button>
        </footer>
      </form>
    </Sheet>
  );
}
