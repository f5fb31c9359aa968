/**
 * The tree of a machine: what it was branched from, its branches, and the checkpoints that are kept of it.
 */
import type { CheckpointInfo, MachineInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, queries } from "../api.ts";
import { checkpointsQuery, lineageQuery } from "../data.ts";
import { renderBytes } from "../format.ts";
import { putMachine } from "../live.ts";
import { isUp, StateBadge } from "../machine-state.tsx";
import { useSession } from "../session.tsx";
import { attempt, Confirm } from "../ui/dialog.tsx";
import { Badge, Button, Cli, Empty, ErrorNote, Loading, MachineLink, Panel, Time } from "../ui/parts.tsx";
import { type MachineDialog, MachineDialogs } from "./machine-actions.tsx";
import { RestoreForm } from "./machine-branch-forms.tsx";

export function BranchesTab({ machine }: { readonly machine: MachineInfo }) {
  const [asking, setAsking] = useState<MachineDialog | null>(null);
  return (
    <>
      <div className="panels">
        <Tree machine={machine} ask={setAsking} />
        <Checkpoints machine={machine} ask={setAsking} />
      </div>
      <Cli line={`flotilla machine tree ${machine.name ?? machine.id}`} />
      <MachineDialogs machine={machine} asking={asking} onClose={() => setAsking(null)} />
    </>
  );
}

interface PartProps {
  readonly machine: MachineInfo;
  readonly ask: (dialog: MachineDialog) => void;
}

interface Branch {
  readonly machine: MachineInfo;
  readonly depth: number;
}

/** The machines of a tree, each before its branches. */
export function inTree(machines: readonly MachineInfo[]): readonly Branch[] {
  const known = new Set(machines.map(({ id }) => id));
  const byParent = Map.groupBy(machines, ({ parentMachineId }) =>
    parentMachineId !== null && known.has(parentMachineId) ? parentMachineId : "",
  );
  const below = (parent: string, depth: number): readonly Branch[] =>
    (byParent.get(parent) ?? []).flatMap((machine) => [{ machine, depth }, ...below(machine.id, depth + 1)]);
  return below("", 0);
}

function Tree({ machine, ask }: PartProps) {
  const session = useSession();
  const lineage = useQuery(lineageQuery(machine.id));
  const memory = new Map(lineage.data?.memory.map((each) => [each.machineId, each]));
  const mayChange = session.can("machine:create");
  return (
    <Panel
      title="Tree"
      actions={
        <div className="actions">
          {mayChange && session.can("machine:delete") && machine.parentMachineId !== null && (
            <Button onClick={() => ask("adopt")}>Take its source's place</Button>
          )}
          {mayChange && machine.capabilities.branch && <Button onClick={() => ask("branch")}>Branch</Button>}
        </div>
      }
    >
      <ErrorNote error={lineage.error} retry={() => void lineage.refetch()} />
      {lineage.isPending && <Loading what="the tree" />}
      <ul className="events">
        {inTree(lineage.data?.machines ?? []).map(({ machine: each, depth }) => (
          <li key={each.id} style={{ paddingLeft: depth * 20 }}>
            <span className="grow">
              {depth > 0 && <span className="dim">└ </span>}
              {each.id === machine.id ? <strong>{each.name ?? each.id}</strong> : <MachineLink {...each} />}
              <span className="dim block">
                {memory.has(each.id) &&
                  `${renderBytes(memory.get(each.id)?.ownBytes ?? 0)} only its, ${renderBytes(memory.get(each.id)?.sharedBytes ?? 0)} shared`}
              </span>
            </span>
            <StateBadge machine={each} />
          </li>
        ))}
      </ul>
      {mayChange && !machine.capabilities.branch && <WhyNot machine={machine} />}
    </Panel>
  );
}

/** Why it cannot be branched now, and what helps. */
function WhyNot({ machine }: { readonly machine: MachineInfo }) {
  const [isBusy, setIsBusy] = useState(false);
  const start = async (): Promise<void> => {
    setIsBusy(true);
    await attempt("The start", async () =>
      putMachine(await api.startMachine(machine.id, { query: { detach: true, forkable: true } })),
    );
    setIsBusy(false);
  };
  if (isUp(machine))
    return (
      <p className="dim small">
        {machine.branchable
          ? "It can be branched as soon as it runs."
          : "It was not started so that it can be branched: stop it, and start it again here."}
      </p>
    );
  return (
    <div>
      <p className="dim small">A machine is branched while it runs.</p>
      <Button isBusy={isBusy} onClick={() => void start()}>
        Start it to be branched
      </Button>
    </div>
  );
}

function Checkpoints({ machine, ask }: PartProps) {
  const session = useSession();
  const checkpoints = useQuery(checkpointsQuery(machine.id));
  const [restored, setRestored] = useState<CheckpointInfo | null>(null);
  const [removed, setRemoved] = useState<CheckpointInfo | null>(null);
  const mayChange = session.can("machine:create");
  const all = checkpoints.data ?? [];
  return (
    <Panel title="Checkpoints" actions={mayChange && <Button onClick={() => ask("checkpoint")}>Keep one</Button>}>
      <ErrorNote error={checkpoints.error} retry={() => void checkpoints.refetch()} />
      {checkpoints.isPending && <Loading what="checkpoints" />}
      {checkpoints.data?.length === 0 && (
        <Empty title="No checkpoint is kept" cli={`flotilla machine checkpoint ${machine.name ?? machine.id}`}>
          A checkpoint is the machine as it is at one instant, with its memory if it runs.
        </Empty>
      )}
      <ul className="events">
        {all.map((each) => (
          <li key={each.id}>
            <span className="grow">
              {each.name ?? each.id}{" "}
              <span className="dim block">
                {each.hasMemory ? "with its memory" : "its disk"}, {renderBytes(each.sizeBytes)} ·{" "}
                <Time at={each.createdAt} />
                {each.error !== null && ` · ${each.error}`}
              </span>
            </span>
            {each.status !== "available" && (
              <Badge tone={each.status === "failed" ? "bad" : "busy"}>{each.status}</Badge>
            )}
            {mayChange && each.status === "available" && (
              <Button onClick={() => setRestored(each)} aria-label={`Restore ${each.name ?? each.id}`}>
                Restore
              </Button>
            )}
            {session.can("machine:delete") && (
              <Button
                look="quiet"
                icon="close"
                aria-label={`Delete checkpoint ${each.name ?? each.id}`}
                onClick={() => setRemoved(each)}
              />
            )}
          </li>
        ))}
      </ul>
      {restored !== null && <RestoreForm checkpoint={restored} onClose={() => setRestored(null)} />}
      <Confirm
        title={`Delete checkpoint ${removed?.name ?? removed?.id ?? ""}?`}
        verb="Delete"
        isOpen={removed !== null}
        onClose={() => setRemoved(null)}
        act={async () => {
          await api.deleteCheckpoint(removed?.id ?? "");
          await queries.invalidateQueries({ queryKey: ["machine-parts", machine.id] });
        }}
      >
        <p>The files and the memory of that instant are lost. Machines that were made from it stay.</p>
      </Confirm>
    </Panel>
  );
}
