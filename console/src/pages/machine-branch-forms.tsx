/**
 * The forms that make branches and checkpoints of a machine, and that let a branch take its source's place.
 */
import type { CheckpointInfo, MachineInfo } from "@flotilla/sdk";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, queries } from "../api.ts";
import { shellWord } from "../format.ts";
import { dropMachine, putMachine } from "../live.ts";
import { isUp } from "../machine-state.tsx";
import { Check, FormSheet } from "../ui/form.tsx";
import { Field } from "../ui/parts.tsx";

const COUNT_MAX = 64;

interface FormProps {
  readonly machine: MachineInfo;
  readonly onClose: () => void;
}

const nameOf = ({ name, id }: { readonly name: string | null; readonly id: string }): string => name ?? id;
const changed = (id: string): Promise<void> => queries.invalidateQueries({ queryKey: ["machine-parts", id] });

/** What several branches are named: `web-1`, `web-2`. */
interface Naming {
  readonly name: string;
  readonly count: string;
}

function NamingFields({ naming, set, fault }: NamingProps) {
  return (
    <div className="row">
      <Field
        label="Name"
        value={naming.name}
        onChange={(event) => set({ ...naming, name: event.target.value })}
        hint={Number(naming.count) > 1 ? "a number is added to it" : undefined}
        fault={fault}
        autoComplete="off"
        required
      />
      <Field
        label="How many"
        type="number"
        min={1}
        max={COUNT_MAX}
        value={naming.count}
        onChange={(event) => set({ ...naming, count: event.target.value })}
      />
    </div>
  );
}

interface NamingProps {
  readonly naming: Naming;
  readonly set: (naming: Naming) => void;
  readonly fault: string | null;
}

const namesOf = ({ name, count }: Naming) =>
  Number(count) > 1 ? { count: Number(count), namePrefix: name.trim() } : { names: [name.trim()] };

const cliNames = ({ name, count }: Naming): string =>
  Number(count) > 1 ? `--count ${count}` : `--name ${shellWord(name.trim() || "NAME")}`;

/** Makes machines that continue as one that runs. */
export function BranchForm({ machine, onClose }: FormProps) {
  const navigate = useNavigate();
  const [naming, setNaming] = useState<Naming>({ name: `${machine.name ?? "machine"}-branch`, count: "1" });
  const [hasSecrets, setHasSecrets] = useState(false);
  const isSecret = machine.secretEnvNames.length > 0;
  const act = async (): Promise<void> => {
    const secrets = isSecret ? { secrets: hasSecrets ? ("inherit" as const) : ("refuse" as const) } : {};
    const { clones } = await api.createBranches(machine.id, { ...namesOf(naming), ...secrets });
    clones.forEach(putMachine);
    await changed(machine.id);
    const [only] = clones;
    if (only === undefined) return;
    if (clones.length > 1)
      return navigate({ to: "/machines/$id/{-$tab}", params: { id: machine.id, tab: "branches" } });
    await navigate({ to: "/machines/$id/{-$tab}", params: { id: only.id, tab: undefined } });
  };
  return (
    <FormSheet
      title={`Branch ${nameOf(machine)}`}
      verb="Branch"
      cli={`flotilla machine branch ${nameOf(machine)} ${cliNames(naming)}${hasSecrets ? " --with-secrets" : ""}`}
      isOpen
      onClose={onClose}
      act={act}
    >
      {(faultOf) => (
        <>
          <p className="dim">
            A branch continues as the machine is now, with its files, its memory and its processes. The machine is
            paused for milliseconds, and each goes its own way from there.
          </p>
          <NamingFields
            naming={naming}
            set={setNaming}
            fault={faultOf("name") ?? faultOf("names") ?? faultOf("namePrefix")}
          />
          {isSecret && (
            <Check
              label={`It has the secret variables as well: ${machine.secretEnvNames.join(", ")}`}
              isChecked={hasSecrets}
              onChange={setHasSecrets}
            />
          )}
        </>
      )}
    </FormSheet>
  );
}

/** Keeps a machine as it is now. */
export function CheckpointForm({ machine, onClose }: FormProps) {
  const [name, setName] = useState("");
  const [isDiskOnly, setIsDiskOnly] = useState(false);
  const [hasSecrets, setHasSecrets] = useState(false);
  const isSecret = machine.secretEnvNames.length > 0;
  const act = async (): Promise<void> => {
    await api.createCheckpoint(machine.id, {
      ...(name.trim() === "" ? {} : { name: name.trim() }),
      ...(isDiskOnly ? { memory: false } : {}),
      ...(isSecret ? { secrets: hasSecrets ? ("inherit" as const) : ("refuse" as const) } : {}),
    });
    await Promise.all([changed(machine.id), queries.invalidateQueries({ queryKey: ["checkpoints"] })]);
  };
  const options = [
    name.trim() && ` --name ${shellWord(name.trim())}`,
    isDiskOnly && " --disk-only",
    hasSecrets && " --with-secrets",
  ];
  return (
    <FormSheet
      title={`Keep a checkpoint of ${nameOf(machine)}`}
      verb="Keep"
      cli={`flotilla machine checkpoint ${nameOf(machine)}${options.filter(Boolean).join("")}`}
      isOpen
      onClose={onClose}
      act={act}
    >
      {(faultOf) => (
        <>
          <p className="dim">Machines can be made from it later, also after this one is gone.</p>
          <Field
            label="Its name"
            value={name}
            placeholder="none"
            onChange={(event) => setName(event.target.value)}
            fault={faultOf("name")}
            autoComplete="off"
          />
          {isUp(machine) && (
            <Check
              label="The disk alone: machines from it boot, instead of continuing"
              isChecked={isDiskOnly}
              onChange={setIsDiskOnly}
            />
          )}
          {isSecret && (
            <Check
              label={`Machines from it have the secret variables: ${machine.secretEnvNames.join(", ")}`}
              isChecked={hasSecrets}
              onChange={setHasSecrets}
            />
          )}
        </>
      )}
    </FormSheet>
  );
}

/** Lets a branch take the place of its source. */
export function AdoptForm({ machine, onClose }: FormProps) {
  const [isKept, setIsKept] = useState(true);
  const act = async (): Promise<void> => {
    const { machine: adopted, source } = await api.adoptMachine(machine.id, { source: isKept ? "keep" : "delete" });
    putMachine(adopted);
    if (source !== null) putMachine(source);
    else if (machine.parentMachineId !== null) dropMachine(machine.parentMachineId);
    await queries.invalidateQueries({ queryKey: ["machine-parts"] });
  };
  return (
    <FormSheet
      title={`${nameOf(machine)} takes the place of its source`}
      verb={isKept ? "Adopt" : "Adopt, and delete the source"}
      isDanger={!isKept}
      cli={`flotilla machine adopt ${nameOf(machine)}${isKept ? " --keep-source" : ""}`}
      isOpen
      onClose={onClose}
      act={act}
    >
      <p className="dim">
        It gets the name, the url, the ports and the share link of the machine that it was branched from. Requests reach
        it from then on.
      </p>
      <Check label="Keep the source, under another name" isChecked={isKept} onChange={setIsKept} />
      {!isKept && <p className="note bad">The disk of the source with all its files is lost.</p>}
    </FormSheet>
  );
}

interface RestoreProps {
  readonly checkpoint: CheckpointInfo;
  readonly onClose: () => void;
}

/** Makes machines from a checkpoint: one that is stopped, or ones that run. */
export function RestoreForm({ checkpoint, onClose }: RestoreProps) {
  const navigate = useNavigate();
  const [naming, setNaming] = useState<Naming>({ name: `${checkpoint.machineName ?? "machine"}-again`, count: "1" });
  const [isStopped, setIsStopped] = useState(false);
  const from = checkpoint.name ?? checkpoint.id;
  const act = async (): Promise<void> => {
    const made = isStopped
      ? [await api.restoreCheckpoint(checkpoint.id, { name: naming.name.trim() })]
      : (await api.branchCheckpoint(checkpoint.id, namesOf(naming))).clones;
    made.forEach(putMachine);
    const [first] = made;
    if (first !== undefined) await navigate({ to: "/machines/$id/{-$tab}", params: { id: first.id, tab: undefined } });
  };
  return (
    <FormSheet
      title={`Make a machine from ${from}`}
      verb={isStopped ? "Restore" : "Start from it"}
      cli={
        isStopped
          ? `flotilla checkpoint restore ${from} ${shellWord(naming.name.trim() || "NAME")}`
          : `flotilla machine branch --from ${from} ${cliNames(naming)}`
      }
      isOpen
      onClose={onClose}
      act={act}
    >
      {(faultOf) => (
        <>
          <p className="dim">
            {checkpoint.hasMemory
              ? "It continues with the processes that ran then."
              : "It has the disk of then, and boots."}
          </p>
          <NamingFields
            naming={isStopped ? { ...naming, count: "1" } : naming}
            set={setNaming}
            fault={faultOf("name") ?? faultOf("names") ?? faultOf("namePrefix")}
          />
          <Check
            label="Stopped, with the disk alone"
            isChecked={isStopped}
            onChange={(isChecked) => setIsStopped(isChecked)}
          />
        </>
      )}
    </FormSheet>
  );
}
