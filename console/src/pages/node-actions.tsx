/**
 * What operators do with a node. What is lost, or ends, is said before.
 */
import type { DrainPlan, NodeInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, queries } from "../api.ts";
import { renderBytes, renderCount, renderSeconds } from "../format.ts";
import { putOperation } from "../live.ts";
import { ActionMenu, attempt, Confirm, type MenuEntry } from "../ui/dialog.tsx";
import { Check, FormSheet } from "../ui/form.tsx";
import { Button, Cli, ErrorNote, Field, Loading } from "../ui/parts.tsx";

const again = (): Promise<void> => queries.invalidateQueries({ queryKey: ["nodes"] });

type Asking = "drain" | "upgrade" | "revoke" | "decommission";

export function NodeActions({ node }: { readonly node: NodeInfo }) {
  const navigate = useNavigate();
  const [asking, setAsking] = useState<Asking | null>(null);
  const [busy, setBusy] = useState<string | null>(null);
  const { id, status } = node;
  const act = async (what: string, call: () => Promise<unknown>): Promise<void> => {
    setBusy(what);
    await attempt(`${what} of ${id}`, async () => {
      await call();
      await again();
    });
    setBusy(null);
  };
  const isDraining = status === "draining" || status === "drained";
  const isOff = node.cordonedAt !== null || node.maintenanceAt !== null;
  const offered: readonly (MenuEntry & { readonly isOffered: boolean })[] = [
    {
      name: "Expect it to be away (maintenance)",
      isOffered: node.maintenanceAt === null && status !== "revoked",
      run: () => void act("Maintenance", () => api.maintainNode(id)),
    },
    { name: "Upgrade its agent", isOffered: status === "ready", run: () => setAsking("upgrade") },
    {
      name: "Revoke its membership",
      isDanger: true,
      isOffered: status !== "revoked",
      run: () => setAsking("revoke"),
    },
    {
      name: "Remove it for good",
      isDanger: true,
      isOffered: status === "drained" || status === "unreachable" || status === "revoked",
      run: () => setAsking("decommission"),
    },
  ];
  const close = (): void => setAsking(null);
  return (
    <>
      {isOff ? (
        <Button
          look="main"
          isBusy={busy === "Uncordon"}
          onClick={() => void act("Uncordon", () => api.uncordonNode(id))}
        >
          {node.maintenanceAt === null ? "Uncordon" : "End the maintenance"}
        </Button>
      ) : (
        <Button isBusy={busy === "Cordon"} onClick={() => void act("Cordon", () => api.cordonNode(id))}>
          Cordon
        </Button>
      )}
      {isDraining ? (
        <Button
          isBusy={busy === "Cancel of the drain"}
          onClick={() => void act("Cancel of the drain", () => api.cancelDrain(id))}
        >
          {status === "drained" ? "Open it again" : "Cancel the drain"}
        </Button>
      ) : (
        status === "ready" && (
          <Button look="danger" onClick={() => setAsking("drain")}>
            Drain
          </Button>
        )
      )}
      <ActionMenu label={`More for ${id}`} entries={offered.filter(({ isOffered }) => isOffered)} />
      {asking === "drain" && <Drain id={id} onClose={close} />}
      {asking === "upgrade" && <UpgradeForm nodeIds={[id]} onClose={close} />}
      <Confirm
        title={`Revoke the membership of ${id}?`}
        verb="Revoke"
        isOpen={asking === "revoke"}
        onClose={close}
        act={async () => {
          await api.revokeNodeCredential(id);
          await again();
        }}
      >
        <p>
          Its connections end now, and its machines cannot be reached or moved any more. It joins again only with a new
          token.
        </p>
        <Cli line={`flotilla node revoke ${id}`} />
      </Confirm>
      <Confirm
        title={`Remove ${id} for good?`}
        verb="Remove"
        isOpen={asking === "decommission"}
        onClose={close}
        act={async () => {
          await api.decommissionNode(id);
          await navigate({ to: "/nodes" });
          await again();
        }}
      >
        <p>It leaves the fleet. This is refused while a machine has its disk there.</p>
        <Cli line={`flotilla node decommission ${id}`} />
      </Confirm>
    </>
  );
}

interface UpgradeProps {
  /** null: all that are ready. */
  readonly nodeIds: readonly string[] | null;
  readonly onClose: () => void;
}

/** Restarts agents as the release that is installed on their hosts. */
export function UpgradeForm({ nodeIds, onClose }: UpgradeProps) {
  const [hasVmms, setHasVmms] = useState(false);
  const which = nodeIds === null ? "--rolling" : nodeIds.join(" ");
  return (
    <FormSheet
      title={nodeIds === null ? "Upgrade all nodes" : `Upgrade ${nodeIds.join(", ")}`}
      verb="Upgrade"
      cli={`flotilla node upgrade ${which}${hasVmms ? " --vmms" : ""}`}
      isOpen
      onClose={onClose}
      act={async () => {
        const request = { ...(nodeIds === null ? {} : { nodeIds: [...nodeIds] }), ...(hasVmms ? { vmms: true } : {}) };
        putOperation(await api.upgradeNodes(request));
        await again();
      }}
    >
      <p className="dim">
        Agents restart as the release that is installed on their hosts, one after the other. Machines run on. The first
        node that does not come back ends it.
      </p>
      <Check label="Also run machines in VMMs of the installed program" isChecked={hasVmms} onChange={setHasVmms} />
      {hasVmms && (
        <p className="note">Machines whose owners permit only a restart are restarted: their processes end.</p>
      )}
    </FormSheet>
  );
}

/** Shows what a drain would do before it is begun. */
function Drain({ id, onClose }: { readonly id: string; readonly onClose: () => void }) {
  const [minutes, setMinutes] = useState("");
  const plan = useQuery({
    queryKey: ["drain plan", id],
    queryFn: ({ signal }) => api.planDrain(id, { signal }),
    staleTime: 0,
  });
  const deadline = minutes.trim() === "" ? {} : { deadlineSeconds: Math.round(Number(minutes) * 60) };
  return (
    <FormSheet
      title={`Drain ${id}`}
      verb="Drain it"
      isDanger
      cli={`flotilla node drain ${id}${minutes.trim() === "" ? "" : ` --deadline ${minutes.trim()}m`}`}
      isOpen
      onClose={onClose}
      act={async () => {
        await api.drainNode(id, deadline);
        await Promise.all([again(), queries.invalidateQueries({ queryKey: ["operations"] })]);
      }}
    >
      {(faultOf) => (
        <>
          {plan.isPending && <Loading what="what it would do" />}
          <ErrorNote error={plan.error} />
          {plan.data !== undefined && <PlannedMoves plan={plan.data} />}
          <Field
            label="Minutes until machines that cannot move are stopped"
            type="number"
            min={0}
            step="any"
            placeholder="10"
            value={minutes}
            onChange={(event) => setMinutes(event.target.value)}
            fault={faultOf("deadlineSeconds")}
          />
        </>
      )}
    </FormSheet>
  );
}

const HOW = {
  none: "stays stopped",
  migrate: "moves with its memory",
  restart: "is booted there",
  stop: "is stopped",
} as const;

function PlannedMoves({ plan }: { readonly plan: DrainPlan }) {
  if (plan.moves.length === 0 && plan.blocked.length === 0)
    return <p>No machine has its disk there. Nothing is placed there from now on.</p>;
  return (
    <>
      <p>
        {renderCount(plan.moves.length, "machine")} would move, {renderBytes(plan.bytes)} in about{" "}
        {renderSeconds(plan.seconds)}. <span className="dim">{plan.estimate}</span>
      </p>
      {plan.blocked.length > 0 && (
        <div className="note bad">
          <div>
            <p>
              {renderCount(plan.blocked.length, "machine")} cannot move; those that run are stopped at the deadline:
            </p>
            <ul className="events">
              {plan.blocked.slice(0, 6).map(({ machineId, name, reason }) => (
                <li key={machineId}>
                  {name ?? machineId}: {reason}
                </li>
              ))}
            </ul>
          </div>
        </div>
      )}
      <ul className="events">
        {plan.moves.slice(0, 12).map((move) => (
          <li key={move.machineId}>
            <span className="grow">
              {move.name ?? move.machineId}
              {move.reason !== null && <span className="dim block">{move.reason}</span>}
            </span>
            <span className="dim">
              {HOW[move.disruption]}, on {move.toNodeId}
            </span>
          </li>
        ))}
      </ul>
      {plan.moves.length > 12 && <p className="dim">and {plan.moves.length - 12} more</p>}
    </>
  );
}
