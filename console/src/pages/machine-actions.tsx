/**
 * What can be done with a machine. What the key may not do, or the state does not allow, is not offered.
 */
import type { MachineInfo, ShareInfo } from "@flotilla/sdk";
import { useNavigate } from "@tanstack/react-router";
import { type SyntheticEvent, useState } from "react";
import { api, queries } from "../api.ts";
import { dropMachine, putMachine } from "../live.ts";
import { isUp } from "../machine-state.tsx";
import { useSession } from "../session.tsx";
import { ActionMenu, attempt, Confirm, type MenuEntry, messages, Sheet } from "../ui/dialog.tsx";
import { Button, Cli, CopyButton, ErrorNote, Field } from "../ui/parts.tsx";

type Asking = "delete" | "branch" | "checkpoint" | "share" | "move" | null;

export function MachineActions({ machine }: { readonly machine: MachineInfo }) {
  const session = useSession();
  const [busy, setBusy] = useState<string | null>(null);
  const [asking, setAsking] = useState<Asking>(null);
  const { id } = machine;
  const name = machine.name ?? id;
  const act = async (what: string, call: () => Promise<MachineInfo>): Promise<void> => {
    setBusy(what);
    await attempt(`${what} of ${name}`, async () => putMachine(await call()));
    setBusy(null);
  };
  const isRunning = isUp(machine);
  const mayChange = session.can("machine:create");
  const entries: MenuEntry[] = [
    ...(mayChange && isRunning
      ? [
          {
            name: "Suspend",
            run: () => void act("Suspend", () => api.stopMachine(id, { query: { keepMemory: true } })),
          },
        ]
      : []),
    ...(mayChange && isRunning ? [{ name: "Branch", run: () => setAsking("branch") }] : []),
    ...(mayChange ? [{ name: "Keep a checkpoint", run: () => setAsking("checkpoint") }] : []),
    ...(mayChange && session.can("machine:exec") && machine.ports.length > 0
      ? [{ name: "Share link", run: () => setAsking("share") }]
      : []),
    ...(session.can("admin") && machine.nodeId !== null
      ? [{ name: "Move to another node", run: () => setAsking("move") }]
      : []),
    ...(session.can("machine:delete") ? [{ name: "Delete", isDanger: true, run: () => setAsking("delete") }] : []),
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
      <ActionMenu label={`More for ${name}`} entries={entries} />
      <DeleteMachine machine={machine} isOpen={asking === "delete"} onClose={close} />
      <Branch machine={machine} isOpen={asking === "branch"} onClose={close} />
      <Checkpoint machine={machine} isOpen={asking === "checkpoint"} onClose={close} />
      <Share machine={machine} isOpen={asking === "share"} onClose={close} />
      <Confirm
        title={`Move ${name} to another node?`}
        verb="Move"
        isOpen={asking === "move"}
        onClose={close}
        act={() => move(id)}
      >
        <p>
          Placement chooses the node.{" "}
          {machine.disruption === "migrate"
            ? "Its memory moves with it, so its processes continue."
            : machine.disruption === "restart"
              ? "It is booted there."
              : "It is stopped there."}
        </p>
        <Cli line={`flotilla machine move ${name}`} />
      </Confirm>
    </>
  );
}

async function move(id: string): Promise<void> {
  await api.moveMachine(id);
  await queries.invalidateQueries({ queryKey: ["operations"] });
  messages.add({ title: "The move has begun", description: "The task panel shows how far it is." });
}

interface AskProps {
  readonly machine: MachineInfo;
  readonly isOpen: boolean;
  readonly onClose: () => void;
}

function DeleteMachine({ machine, ...dialog }: AskProps) {
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
        Its disk with all files, its log and its checkpoints are lost{isUp(machine) && ", and its processes end now"}.
        This cannot be undone.
      </p>
      <Cli line={`flotilla machine rm ${name}`} />
    </Confirm>
  );
}

function Branch({ machine, isOpen, onClose }: AskProps) {
  const navigate = useNavigate();
  return (
    <NameSheet
      title={`Branch ${machine.name ?? machine.id}`}
      text="The branch continues as the machine is now, with its files and its processes; both go their own way from there."
      cli={(name) => `flotilla machine branch ${machine.name ?? machine.id} ${name || "NAME"}`}
      verb="Branch"
      isRequired
      isOpen={isOpen}
      onClose={onClose}
      act={async (name) => {
        const made = await api.createBranch(machine.id, { name });
        putMachine(made);
        await navigate({ to: "/machines/$id/{-$tab}", params: { id: made.id, tab: undefined } });
      }}
    />
  );
}

function Checkpoint({ machine, isOpen, onClose }: AskProps) {
  return (
    <NameSheet
      title={`Keep a checkpoint of ${machine.name ?? machine.id}`}
      text="Its disk, and its memory if it runs, are kept as they are now. Machines can be made from it later."
      cli={(name) => `flotilla machine checkpoint ${machine.name ?? machine.id}${name && ` --name ${name}`}`}
      verb="Keep"
      isOpen={isOpen}
      onClose={onClose}
      act={async (name) => {
        await api.createCheckpoint(machine.id, name === "" ? {} : { name });
        await queries.invalidateQueries({ queryKey: ["machine-parts", machine.id] });
      }}
    />
  );
}

interface NameSheetProps {
  readonly title: string;
  readonly text: string;
  readonly cli: (name: string) => string;
  readonly verb: string;
  readonly isRequired?: boolean;
  readonly isOpen: boolean;
  readonly onClose: () => void;
  readonly act: (name: string) => Promise<void>;
}

/** Asks for a name, and does something with it. */
function NameSheet({ title, text, cli, verb, isRequired = false, isOpen, onClose, act }: NameSheetProps) {
  const [name, setName] = useState("");
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const submit = async (event: SyntheticEvent): Promise<void> => {
    event.preventDefault();
    setIsBusy(true);
    setError(null);
    try {
      await act(name.trim());
      onClose();
      setName("");
    } catch (failed) {
      setError(failed);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <Sheet title={title} isOpen={isOpen} onClose={onClose}>
      <form className="body" onSubmit={(event) => void submit(event)}>
        <p className="dim">{text}</p>
        <Field
          label="Its name"
          value={name}
          onChange={(event) => setName(event.target.value)}
          required={isRequired}
          autoComplete="off"
        />
        <ErrorNote error={error} />
        <Cli line={cli(name)} />
        <footer>
          <Button onClick={onClose}>Cancel</Button>
          <Button look="main" type="submit" isBusy={isBusy}>
            {verb}
          </Button>
        </footer>
      </form>
    </Sheet>
  );
}

function Share({ machine, isOpen, onClose }: AskProps) {
  const [share, setShare] = useState<ShareInfo | null>(null);
  const [error, setError] = useState<unknown>(null);
  const make = (): Promise<void> => api.createShare(machine.id).then(setShare, setError);
  const end = (): Promise<void> =>
    api.removeShare(machine.id).then(() => {
      setShare(null);
      onClose();
    }, setError);
  return (
    <Sheet title={`Share ${machine.name ?? machine.id}`} isOpen={isOpen} onClose={onClose}>
      <div className="body">
        <p className="dim">
          The link opens the first published port without a key, for everyone who has it. A new link ends an earlier
          one.
        </p>
        {typeof share?.url === "string" && (
          <div className="cli">
            <code>{share.url}</code>
            <CopyButton text={share.url} what="the link" />
          </div>
        )}
        <ErrorNote error={error} />
        <Cli line={`flotilla machine share ${machine.name ?? machine.id}`} />
        <footer>
          <Button look="danger" onClick={() => void end()}>
            End sharing
          </Button>
          <Button look="main" onClick={() => void make()}>
            {share === null ? "Make a link" : "Make a new link"}
          </Button>
        </footer>
      </div>
    </Sheet>
  );
}
