/**
 * Forms of one machine: its share link, a move, an export as a package, and what may be changed of it.
 */
import type { MachineInfo, ShareInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, queries } from "../api.ts";
import { nodesQuery } from "../data.ts";
import { shellWord } from "../format.ts";
import { putMachine, putOperation } from "../live.ts";
import { isUp } from "../machine-state.tsx";
import { messages, Sheet } from "../ui/dialog.tsx";
import { Area, Check, FormSheet } from "../ui/form.tsx";
import { Button, Cli, CopyButton, ErrorNote, Field, Select } from "../ui/parts.tsx";

interface FormProps {
  readonly machine: MachineInfo;
  readonly onClose: () => void;
}

const nameOf = ({ name, id }: MachineInfo): string => name ?? id;

/** Makes and ends the share link. */
export function ShareForm({ machine, onClose }: FormProps) {
  const [share, setShare] = useState<ShareInfo | null>(null);
  const [busy, setBusy] = useState<"make" | "end" | null>(null);
  const [error, setError] = useState<unknown>(null);
  const run = async (what: "make" | "end", act: () => Promise<void>): Promise<void> => {
    setBusy(what);
    setError(null);
    await act().catch(setError);
    setBusy(null);
  };
  const make = (): Promise<void> => run("make", async () => setShare(await api.createShare(machine.id)));
  const end = (): Promise<void> =>
    run("end", async () => {
      await api.removeShare(machine.id);
      onClose();
    });
  return (
    <Sheet title={`Share ${nameOf(machine)}`} isOpen onClose={onClose}>
      <div className="body">
        <p className="dim">
          The link opens the first published port without a key, for everyone who has it. A new link ends an earlier
          one; ending it cuts the connections that it opened.
        </p>
        {typeof share?.url === "string" && (
          <div className="cli">
            <code>{share.url}</code>
            <CopyButton text={share.url} what="the link" />
          </div>
        )}
        <ErrorNote error={error} />
        <Cli line={`flotilla machine share ${nameOf(machine)}`} />
        <footer>
          <Button look="danger" isBusy={busy === "end"} onClick={() => void end()}>
            End sharing
          </Button>
          <Button look="main" isBusy={busy === "make"} onClick={() => void make()}>
            {share === null ? "Make a link" : "Make a new link"}
          </Button>
        </footer>
      </div>
    </Sheet>
  );
}

const HOW = {
  migrate: "Its memory moves with it, so its processes continue.",
  restart: "It is booted there: its processes end.",
  stop: "It is stopped: its processes end.",
} as const;

/** Moves the machine to the best node, or to a chosen one. */
export function MoveForm({ machine, onClose }: FormProps) {
  const nodes = useQuery(nodesQuery);
  const [nodeId, setNodeId] = useState("");
  const others = (nodes.data ?? []).filter(({ id, status }) => id !== machine.nodeId && status === "ready");
  const act = async (): Promise<void> => {
    putOperation(await api.moveMachine(machine.id, nodeId === "" ? {} : { nodeId }));
    messages.add({ title: "The move has begun", description: "The task panel shows how far it is." });
  };
  return (
    <FormSheet
      title={`Move ${nameOf(machine)} to another node`}
      verb="Move"
      cli={`flotilla machine move ${nameOf(machine)}${nodeId && ` --to ${nodeId}`}`}
      isOpen
      onClose={onClose}
      act={act}
    >
      <p>{isUp(machine) ? HOW[machine.disruption] : "Its disk is copied; it stays stopped."}</p>
      <Select
        label="To"
        value={nodeId}
        options={[["", "The best node"], ...others.map(({ id }) => [id, id] as const)]}
        onChange={setNodeId}
      />
      <p className="dim small">
        <Link to="/machines/$id/{-$tab}" params={{ id: machine.id, tab: "placement" }} onClick={onClose}>
          Which nodes it fits, and why
        </Link>
      </p>
    </FormSheet>
  );
}

/** Makes a package of the disk. */
export function ExportForm({ machine, onClose }: FormProps) {
  const [name, setName] = useState((machine.name ?? "").toLowerCase());
  const [tag, setTag] = useState("");
  const [hasEnv, setHasEnv] = useState(false);
  const act = async (): Promise<void> => {
    const body = {
      ...(name.trim() === "" ? {} : { name: name.trim() }),
      ...(tag.trim() === "" ? {} : { tag: tag.trim() }),
      ...(hasEnv ? { includeEnv: true } : {}),
    };
    const answer = await api.exportMachine(machine.id, body, { query: { detach: true } });
    if ("steps" in answer) putOperation(answer);
    await queries.invalidateQueries({ queryKey: ["packages"] });
    messages.add({ title: "The export has begun", description: "The task panel shows how far it is." });
  };
  const options = [
    name !== machine.name && name.trim() && ` --as ${shellWord(name.trim())}`,
    tag.trim() && ` --tag ${shellWord(tag.trim())}`,
    hasEnv && " --env",
  ];
  return (
    <FormSheet
      title={`Export ${nameOf(machine)}`}
      verb="Export"
      cli={`flotilla machine export ${nameOf(machine)}${options.filter(Boolean).join("")}`}
      isOpen
      onClose={onClose}
      act={act}
    >
      {(faultOf) => (
        <>
          <p className="dim">
            Its disk becomes a package in the registry, from which machines start on any node. Only what has changed
            since an earlier export is sent. A start of the machine ends it.
          </p>
          <div className="row">
            <Field
              label="Package"
              value={name}
              onChange={(event) => setName(event.target.value)}
              fault={faultOf("name")}
            />
            <Field
              label="Tag"
              value={tag}
              placeholder="latest"
              onChange={(event) => setTag(event.target.value)}
              fault={faultOf("tag")}
            />
          </div>
          <Check label="With its environment, never its secret variables" isChecked={hasEnv} onChange={setHasEnv} />
        </>
      )}
    </FormSheet>
  );
}

const DISRUPTIONS = [
  ["migrate", "Moves it with its memory"],
  ["restart", "Boots it on the other node"],
  ["stop", "Stops it"],
] as const;

const ENDS = [
  ["delete", "Deleted"],
  ["stop", "Stopped"],
  ["suspend", "Suspended, with its memory"],
] as const;

/** `key=value` lines as a record. */
const labelsOf = (text: string): Record<string, string> =>
  Object.fromEntries(
    text
      .split("\n")
      .filter((line) => line.includes("="))
      .map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1)]),
  );

/** Changes what may be changed of a machine. */
export function ChangeForm({ machine, onClose }: FormProps) {
  const [disruption, setDisruption] = useState<string>(machine.disruption);
  const [hours, setHours] = useState(machine.ttlSeconds === null ? "" : String(machine.ttlSeconds / 3600));
  const [atEnd, setAtEnd] = useState<string>(machine.atEnd);
  const [labels, setLabels] = useState(
    Object.entries(machine.labels)
      .map(([name, value]) => `${name}=${value}`)
      .join("\n"),
  );
  const ttlSeconds = hours.trim() === "" ? 0 : Math.round(Number(hours) * 3600);
  const act = async (): Promise<void> =>
    putMachine(
      await api.updateMachine(machine.id, {
        ...{ disruption: disruption as MachineInfo["disruption"], ttlSeconds, labels: labelsOf(labels) },
        ...{ atEnd: atEnd as MachineInfo["atEnd"] },
      }),
    );
  return (
    <FormSheet
      title={`Change ${nameOf(machine)}`}
      verb="Change"
      cli={`flotilla machine update ${nameOf(machine)} --disruption ${disruption} --ttl ${ttlSeconds}s`}
      isOpen
      onClose={onClose}
      act={act}
    >
      {(faultOf) => (
        <>
          <Select
            label="A move or a drain while it runs"
            value={disruption}
            options={DISRUPTIONS}
            onChange={setDisruption}
          />
          <div className="row">
            <Field
              label="It ends after (hours since it was made)"
              type="number"
              min={0}
              step="any"
              placeholder="never"
              value={hours}
              onChange={(event) => setHours(event.target.value)}
              fault={faultOf("ttlSeconds")}
            />
            <Select label="Then it is" value={atEnd} options={ENDS} onChange={setAtEnd} />
          </div>
          {ttlSeconds > 0 && atEnd === "delete" && <p className="note">Its disk with all its files is lost then.</p>}
          <Area
            label="Labels"
            value={labels}
            onChange={(event) => setLabels(event.target.value)}
            hint="one key=value in each line"
            fault={faultOf("labels")}
          />
          <p className="dim small">
            Image, size, environment and ports are fixed when a machine is made.{" "}
            <Link to="/machines/create" search={{ like: machine.id }}>
              Make another like it
            </Link>{" "}
            to change them.
          </p>
        </>
      )}
    </FormSheet>
  );
}
