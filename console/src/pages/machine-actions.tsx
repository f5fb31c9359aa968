/**
 * What can be done with a machine. What the key may not do, or the state does not allow, is not offered.
 */
import type { MachineInfo } from "@flotilla/sdk";
import { useNavigate } from "@tanstack/react-router";
import { lazy, Suspense, useState } from "react";
import { api } from "../api.ts";
import { dropMachine, putMachine } from "../live.ts";
import { isUp } from "../machine-state.tsx";
import { useSession } from "../session.tsx";
import { ActionMenu, attempt, Confirm, type MenuEntry } from "../ui/dialog.tsx";
import { Button, Cli } from "../ui/parts.tsx";

const DIALOGS = {
  branch: lazy(async () => ({ default: (await import("./machine-branch-forms.tsx")).BranchForm })),
  checkpoint: lazy(async () => ({ default: (await import("./machine-branch-forms.tsx")).CheckpointForm })),
  adopt: lazy(async () => ({ default: (await import("./machine-branch-forms.tsx")).AdoptForm })),
  share: lazy(async () => ({ default: (await import("./machine-forms.tsx")).ShareForm })),
  move: lazy(async () => ({ default: (await import("./machine-forms.tsx")).MoveForm })),
  export: lazy(async () => ({ default: (await import("./machine-forms.tsx")).ExportForm })),
  change: lazy(async () => ({ default: (await import("./machine-forms.tsx")).ChangeForm })),
} as const;

export type MachineDialog = keyof typeof DIALOGS;

/** The dialog that is asked for, if one is. */
export function MachineDialogs({ machine, asking, onClose }: DialogsProps) {
  if (asking === null) return null;
  const Form = DIALOGS[asking];
  return (
    <Suspense>
      <Form machine={machine} onClose={onClose} />
    </Suspense>
  );
}

interface DialogsProps {
  readonly machine: MachineInfo;
  readonly asking: MachineDialog | null;
  readonly onClose: () => void;
}

export function MachineActions({ machine }: { readonly machine: MachineInfo }) {
  const session = useSession();
  const navigate = useNavigate();
  const [busy, setBusy] = useState<string | null>(null);
  const [asking, setAsking] = useState<MachineDialog | "delete" | null>(null);
  const { id } = machine;
  const name = machine.name ?? id;
  const act = async (what: string, call: () => Promise<MachineInfo>): Promise<void> => {
    setBusy(what);
    await attempt(`${what} of ${name}`, async () => putMachine(await call()));
    setBusy(null);
  };
  const isRunning = isUp(machine);
  const mayChange = session.can("machine:create");
  const suspend = (): void => void act("Suspend", () => api.stopMachine(id, { query: { keepMemory: true } }));
  const copy = (): void => void navigate({ to: "/machines/create", search: { like: id } });
  const offered: readonly (MenuEntry & { readonly isOffered: boolean })[] = [
    { name: "Suspend", isOffered: mayChange && isRunning, run: suspend },
    { name: "Branch", isOffered: mayChange && machine.capabilities.branch, run: () => setAsking("branch") },
    { name: "Keep a checkpoint", isOffered: mayChange, run: () => setAsking("checkpoint") },
    {
      name: "Take the place of its source",
      isOffered: mayChange && session.can("machine:delete") && machine.parentMachineId !== null,
      run: () => setAsking("adopt"),
    },
    { name: "Export as a package", isOffered: mayChange && !isRunning, run: () => setAsking("export") },
    {
      name: "Share link",
      isOffered: mayChange && session.can("machine:exec") && machine.ports.length > 0,
      run: () => setAsking("share"),
    },
    { name: "Make another like it", isOffered: mayChange, run: copy },
    { name: "Change", isOffered: mayChange, run: () => setAsking("change") },
    {
      name: "Move to another node",
      isOffered: session.can("admin") && machine.nodeId !== null,
      run: () => setAsking("move"),
    },
    { name: "Delete", isDanger: true, isOffered: session.can("machine:delete"), run: () => setAsking("delete") },
  ];
  const close = (): void => setAsking(null);
  return (
    <>
      {mayChange && !isRunning && (
        <Button
          look="main"
          isBusy={busy === "Start"}
          onClick={() => void act("Start", () => api.startMachine(id, { query: { detach: true } }))}
        >
          Start
        </Button>
      )}
      {mayChange && isRunning && (
        <Button isBusy={busy === "Stop"} onClick={() => void act("Stop", () => api.stopMachine(id))}>
          Stop
        </Button>
      )}
      <ActionMenu label={`More for ${name}`} entries={offered.filter(({ isOffered }) => isOffered)} />
      <DeleteMachine machine={machine} isOpen={asking === "delete"} onClose={close} />
      <MachineDialogs machine={machine} asking={asking === "delete" ? null : asking} onClose={close} />
    </>
  );
}

interface DeleteProps {
  readonly machine: MachineInfo;
  readonly isOpen: boolean;
  readonly onClose: () => void;
}

function DeleteMachine({ machine, ...dialog }: DeleteProps) {
  const navigate = useNavigate();
  const name = machine.name ?? machine.id;
  const act = async (): Promise<void> => {
    await api.deleteMachine(machine.id);
    await navigate({ to: "/machines" });
    dropMachine(machine.id);
  };
  return (
    <Confirm title={`Delete ${name}?`} verb="Delete" act={act} {...dialog}>
      <p>
        Its disk with all files and its log are lost{isUp(machine) && ", and its processes end now"}. Its checkpoints
        and packages stay. This cannot be undone.
      </p>
      <Cli line={`flotilla machine rm ${name}`} />
    </Confirm>
  );
}
