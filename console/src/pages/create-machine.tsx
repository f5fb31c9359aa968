/**
 * The form that makes a machine: two fields are enough, the others are below.
 *
 * Always: what is refused is said at its field, and nothing that was typed is lost; the price is that of the
 * tenant's plan.
 */
import { FlotillaError, type AccountInfo, type CreateMachineRequest, type MachineInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type SyntheticEvent, useId, useState } from "react";
import { api } from "../api.ts";
import { imagesQuery, machineQuery, machinesQuery, packagesQuery } from "../data.ts";
import { renderMoney, shellWord } from "../format.ts";
import { putMachine } from "../live.ts";
import { useParameter } from "../route.ts";
import { useAccount, useSession } from "../session.tsx";
import { Area, Check } from "../ui/form.tsx";
import { Button, Cli, ErrorNote, Field, Loading, PageHead, Select } from "../ui/parts.tsx";

const SUGGESTED = ["local/busybox", "alpine", "debian", "ubuntu", "nginx", "node", "python", "postgres", "redis"];
const NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,62}$/;
const HOURS_OF_MONTH = 730;
/** A reference as people write it. */
const shortOf = (reference: string): string =>
  reference.replace(/^docker\.io\/(?:library\/)?/, "").replace(/:latest$/, "");
/** What the server gives a machine whose size is not named. */
const [CPUS_DEFAULT, MEMORY_MB_DEFAULT] = [4, 8192];

interface Draft {
  readonly name: string;
  readonly from: "image" | "smolmachine";
  readonly image: string;
  readonly cpus: string;
  readonly memoryMb: string;
  readonly diskGb: string;
  readonly ports: string;
  readonly env: string;
  readonly labels: string;
  readonly command: string;
  /** A copied command, argument by argument; null: `command` is for a shell. */
  readonly argv: readonly string[] | null;
  readonly network: "open" | "blocked";
  readonly autoStop: string;
  readonly isStarted: boolean;
  readonly isEphemeral: boolean;
  readonly isBranchable: boolean;
}

const FIRST: Draft = {
  ...{ name: "", image: "", cpus: "", memoryMb: "", diskGb: "", ports: "", env: "", labels: "", command: "" },
  ...{ network: "open", autoStop: "", isStarted: true, isEphemeral: false, isBranchable: false },
  ...{ from: "image", argv: null },
};

/** `NAME=value` lines as a record; null: a line has another form. */
function pairsOf(text: string): Record<string, string> | null {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const pairs = lines.map((line) => /^\s*([^=\s]+)=(.*)$/.exec(line));
  if (pairs.some((pair) => pair === null)) return null;
  return Object.fromEntries(pairs.map((pair) => [pair?.[1] ?? "", pair?.[2] ?? ""]));
}

const portsOf = (text: string): readonly number[] =>
  text
    .split(/[\s,]+/)
    .filter(Boolean)
    .map(Number);

type Faults = Readonly<Partial<Record<keyof Draft, string>>>;

/** What is wrong with the draft, by field. */
function faultsOf(draft: Draft, names: ReadonlySet<string>, account: AccountInfo | undefined): Faults {
  const faults: Partial<Record<keyof Draft, string>> = {};
  const check = (field: keyof Draft, isWrong: boolean, text: string): void => {
    if (isWrong) faults[field] ??= text;
  };
  check("image", draft.image.trim() === "", "name an image, such as alpine");
  check(
    "name",
    draft.name !== "" && !NAME.test(draft.name),
    "letters, digits, - _ and . only, at most 63, not - or . first",
  );
  check("name", names.has(draft.name), "another machine has this name");
  const { cpus, memoryMb: memory } = sizeOf(draft);
  check("cpus", !Number.isInteger(cpus) || cpus < 1, "a whole number from 1 on");
  check("memoryMb", !Number.isInteger(memory) || memory < 128, "a whole number of MB, at least 128");
  if (account !== undefined) {
    check("cpus", cpus > account.effectiveMaxCpus, `the plan allows ${account.effectiveMaxCpus}`);
    check("memoryMb", memory > account.effectiveMaxMemoryMb, `the plan allows ${account.effectiveMaxMemoryMb} MB`);
  }
  check("diskGb", draft.diskGb !== "" && !(Number(draft.diskGb) >= 1), "a number of GB, at least 1");
  check(
    "ports",
    portsOf(draft.ports).some((port) => !Number.isInteger(port) || port < 1 || port > 65_535),
    "numbers from 1 to 65535",
  );
  check("env", pairsOf(draft.env) === null, "one NAME=value in each line");
  check("labels", pairsOf(draft.labels) === null, "one name=value in each line");
  check("autoStop", draft.autoStop !== "" && !(Number(draft.autoStop) >= 1), "a number of seconds");
  return faults;
}

const sizeOf = ({ cpus, memoryMb }: Draft) => ({
  cpus: cpus === "" ? CPUS_DEFAULT : Number(cpus),
  memoryMb: memoryMb === "" ? MEMORY_MB_DEFAULT : Number(memoryMb),
});

function requestOf(draft: Draft): CreateMachineRequest {
  const ports = portsOf(draft.ports);
  const [env, labels] = [pairsOf(draft.env) ?? {}, pairsOf(draft.labels) ?? {}];
  return {
    source: { type: draft.from, reference: draft.image.trim() },
    resources: {
      // What is left empty is the package's.
      ...(draft.from === "image" || draft.cpus + draft.memoryMb !== "" ? sizeOf(draft) : {}),
      ...(draft.diskGb === "" ? {} : { diskGb: Number(draft.diskGb) }),
    },
    ...(draft.name === "" ? {} : { name: draft.name }),
    ...(ports.length === 0 ? {} : { ports: ports.map((port) => ({ port })) }),
    ...(Object.keys(env).length === 0 ? {} : { env }),
    ...(Object.keys(labels).length === 0 ? {} : { labels }),
    ...(draft.argv !== null ? { command: [...draft.argv] } : {}),
    ...(draft.command.trim() === "" ? {} : { command: ["sh", "-c", draft.command] }),
    ...(draft.isBranchable ? { branchable: true } : {}),
    ...(draft.network === "open" ? {} : { network: { mode: draft.network } }),
    ...(draft.autoStop === "" ? {} : { autoStopSeconds: Number(draft.autoStop) }),
    ...(draft.isEphemeral ? { ephemeral: true } : {}),
  };
}

function cliOf(draft: Draft): string {
  const line = ["flotilla machine create", shellWord(draft.image.trim() || "alpine")];
  if (draft.from === "smolmachine") line.push("--package");
  if (draft.name !== "") line.push("--name", shellWord(draft.name));
  if (draft.isBranchable) line.push("--branchable");
  if (draft.cpus !== "") line.push("--cpus", draft.cpus);
  if (draft.memoryMb !== "") line.push("--memory", `${draft.memoryMb}m`);
  for (const port of portsOf(draft.ports)) line.push("-p", String(port));
  for (const [name, value] of Object.entries(pairsOf(draft.env) ?? {})) line.push("-e", shellWord(`${name}=${value}`));
  if (draft.isStarted) line.push("--start");
  if (draft.command.trim() !== "") line.push("-- sh -c", shellWord(draft.command));
  return line.join(" ");
}

/** The draft of a machine like another one: everything but its name and what is secret. */
function draftLike(machine: MachineInfo): Draft {
  const lines = (pairs: Readonly<Record<string, string>>): string =>
    Object.entries(pairs)
      .map(([name, value]) => `${name}=${value}`)
      .join("\n");
  const { source, resources, ports, command, autoStopSeconds } = machine;
  return {
    ...FIRST,
    name: `${machine.name ?? "machine"}-copy`,
    from: source.type,
    image: source.reference,
    cpus: String(resources.cpus),
    memoryMb: String(resources.memoryMb),
    diskGb: resources.diskGb === null ? "" : String(resources.diskGb),
    ports: ports.map(({ port }) => port).join(", "),
    env: lines(machine.env),
    labels: lines(machine.labels),
    argv: command,
    network: machine.network.mode === "blocked" ? "blocked" : "open",
    autoStop: autoStopSeconds === null ? "" : String(autoStopSeconds),
    isEphemeral: machine.ephemeral,
    isBranchable: machine.branchable,
  };
}

/** The form, filled with what its address names: a machine to be like, a package or an image. */
export function CreateMachinePage() {
  const [like, from, image] = [useParameter("like"), useParameter("package"), useParameter("image")];
  const read = useQuery({ ...machineQuery(like), enabled: like !== "" });
  if (like !== "" && read.isPending) return <Loading what="the machine" />;
  if (like !== "" && read.data) {
    const { secretEnvNames, network } = read.data;
    const lost = [
      ...(secretEnvNames.length === 0 ? [] : [`the values of its secret variables (${secretEnvNames.join(", ")})`]),
      ...(network.mode === "allowCidrs" ? ["its list of permitted addresses"] : []),
    ];
    const note = `A machine like ${read.data.name ?? like}, with the disk of its image.${lost.length === 0 ? "" : ` Not copied: ${lost.join(", ")}.`}`;
    return <CreateMachine key={like} first={draftLike(read.data)} note={note} />;
  }
  if (from !== "")
    return <CreateMachine key={from} first={{ ...FIRST, from: "smolmachine", image: from }} note={null} />;
  return <CreateMachine key={image} first={{ ...FIRST, image }} note={null} />;
}

function CreateMachine({ first, note }: { readonly first: Draft; readonly note: string | null }) {
  const session = useSession();
  const navigate = useNavigate();
  const account = useAccount();
  const machines = useQuery({ ...machinesQuery, enabled: session.can("machine:read") });
  const [draft, setDraft] = useState(first);
  const [isShown, setIsShown] = useState(false);
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const names = new Set((machines.data ?? []).flatMap(({ name }) => name ?? []));
  const faults = faultsOf(draft, names, account.data);
  const refused = error instanceof FlotillaError ? fieldOf(error) : null;
  const set = (part: Partial<Draft>): void => {
    setDraft({ ...draft, ...part });
    setError(null);
  };
  const faultOf = (field: keyof Draft): string | null =>
    refused === field
      ? (error as FlotillaError).text
      : ((isShown || draft[field] !== FIRST[field]) && faults[field]) || null;
  const submit = async (event: SyntheticEvent): Promise<void> => {
    event.preventDefault();
    setIsShown(true);
    if (Object.keys(faults).length > 0) return;
    setIsBusy(true);
    setError(null);
    try {
      const made = await api.createMachine(requestOf(draft));
      putMachine(made);
      if (draft.isStarted) putMachine(await api.startMachine(made.id, { query: { detach: true } }));
      await navigate({
        to: "/machines/$id/{-$tab}",
        params: { id: made.id, tab: draft.isStarted ? "terminal" : undefined },
      });
    } catch (failed) {
      setError(failed);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <>
      <title>Create machine · Flotilla</title>
      <PageHead title="Create machine" />
      <form className="form" onSubmit={(event) => void submit(event)} noValidate>
        {note !== null && <p className="note">{note}</p>}
        <ErrorNote error={refused === null ? error : null} />
        <Field
          label="Name"
          value={draft.name}
          onChange={(event) => set({ name: event.target.value })}
          hint="left empty, one is chosen"
          fault={faultOf("name")}
          autoComplete="off"
          spellCheck={false}
          autoFocus
        />
        <Source draft={draft} set={set} fault={faultOf("image")} />
        <Size draft={draft} set={set} faultOf={faultOf} />
        <More draft={draft} set={set} faultOf={faultOf} />
        <Check
          label="Start it, and open a terminal"
          isChecked={draft.isStarted}
          onChange={(isStarted) => set({ isStarted })}
        />
        <Price draft={draft} account={account.data} />
        <footer>
          <Button look="main" type="submit" isBusy={isBusy}>
            Create
          </Button>
          <Button onClick={() => void navigate({ to: "/machines" })}>Cancel</Button>
        </footer>
        <Cli line={cliOf(draft)} />
      </form>
    </>
  );
}

/** The field of the form that a refusal is about; null: none of them. */
function fieldOf({ code, details }: FlotillaError): keyof Draft | null {
  if (code === "name_taken") return "name";
  if (code.startsWith("image_")) return "image";
  const field = details.field ?? "";
  const fields: Readonly<Record<string, keyof Draft>> = {
    name: "name",
    source: "image",
    env: "env",
    labels: "labels",
    ports: "ports",
  };
  return fields[field.split(/[./]/)[0] ?? ""] ?? null;
}

interface MoreProps {
  readonly draft: Draft;
  readonly set: (part: Partial<Draft>) => void;
  readonly faultOf: (field: keyof Draft) => string | null;
}

/** What it is made from, with suggestions. */
function Source({ draft, set, fault }: SourceProps) {
  const session = useSession();
  const images = useQuery({ ...imagesQuery, enabled: session.can("machine:read") });
  const packages = useQuery({ ...packagesQuery, enabled: session.can("machine:read"), retry: false });
  const listId = useId();
  const isPackage = draft.from === "smolmachine";
  const suggestions = isPackage
    ? (packages.data ?? []).flatMap(({ reference, diskGb }) => (diskGb === null ? [] : reference))
    : [
        ...new Set([
          ...(images.data ?? []).flatMap(({ reference }) => (reference.includes("@") ? [] : shortOf(reference))),
          ...SUGGESTED,
        ]),
      ];
  return (
    <>
      <Field
        label={isPackage ? "Package" : "Image"}
        value={draft.image}
        onChange={(event) => set({ image: event.target.value })}
        hint={
          isPackage
            ? "the disk of another machine, such as web:1"
            : "an OCI image, such as alpine; local/busybox needs no registry"
        }
        fault={fault}
        list={listId}
        autoComplete="off"
        spellCheck={false}
        required
      />
      <datalist id={listId}>
        {suggestions.map((reference) => (
          <option key={reference} value={reference} />
        ))}
      </datalist>
      <div className="suggestions">
        {suggestions.slice(0, 5).map((reference) => (
          <button key={reference} type="button" className="label" onClick={() => set({ image: reference })}>
            {reference}
          </button>
        ))}
      </div>
      {(packages.data ?? []).length > 0 || isPackage ? (
        <Check
          label="From a package, the disk of another machine"
          isChecked={isPackage}
          onChange={(isChecked) => set({ from: isChecked ? "smolmachine" : "image", image: "" })}
        />
      ) : null}
    </>
  );
}

interface SourceProps {
  readonly draft: Draft;
  readonly set: (part: Partial<Draft>) => void;
  readonly fault: string | null;
}

function Size({ draft, set, faultOf }: MoreProps) {
  return (
    <div className="row">
      <Field
        label="CPUs"
        type="number"
        min={1}
        placeholder={String(CPUS_DEFAULT)}
        value={draft.cpus}
        onChange={(event) => set({ cpus: event.target.value })}
        fault={faultOf("cpus")}
      />
      <Field
        label="Memory (MB)"
        type="number"
        min={128}
        step={64}
        placeholder={String(MEMORY_MB_DEFAULT)}
        value={draft.memoryMb}
        onChange={(event) => set({ memoryMb: event.target.value })}
        fault={faultOf("memoryMb")}
      />
      <Field
        label="Disk (GB)"
        type="number"
        min={1}
        placeholder="default"
        value={draft.diskGb}
        onChange={(event) => set({ diskGb: event.target.value })}
        fault={faultOf("diskGb")}
      />
    </div>
  );
}

function More({ draft, set, faultOf }: MoreProps) {
  return (
    <details>
      <summary>Ports, environment, network and more</summary>
      <Field
        label="Published ports"
        placeholder="8080, 9090"
        value={draft.ports}
        onChange={(event) => set({ ports: event.target.value })}
        fault={faultOf("ports")}
        hint="reached by the url of the machine"
      />
      <Field
        label="Command"
        placeholder={draft.argv === null ? "as it was built" : draft.argv.join(" ")}
        value={draft.command}
        onChange={(event) => set({ command: event.target.value, argv: null })}
        hint="runs whenever the machine starts, by sh -c"
      />
      <Area
        label="Environment"
        value={draft.env}
        onChange={(event) => set({ env: event.target.value })}
        fault={faultOf("env")}
        hint="one NAME=value in each line"
      />
      <Area
        label="Labels"
        value={draft.labels}
        onChange={(event) => set({ labels: event.target.value })}
        fault={faultOf("labels")}
        hint="one key=value in each line"
      />
      <div className="row">
        <Select
          label="Outbound network"
          value={draft.network}
          options={[
            ["open", "Open"],
            ["blocked", "Blocked"],
          ]}
          onChange={(network) => set({ network: network as Draft["network"] })}
        />
        <Field
          label="Stop when idle (seconds)"
          type="number"
          min={1}
          placeholder="never"
          value={draft.autoStop}
          onChange={(event) => set({ autoStop: event.target.value })}
          fault={faultOf("autoStop")}
        />
      </div>
      <Check
        label="It may be branched while it runs"
        isChecked={draft.isBranchable}
        onChange={(isBranchable) => set({ isBranchable })}
      />
      <Check
        label="Delete it once it has stopped"
        isChecked={draft.isEphemeral}
        onChange={(isEphemeral) => set({ isEphemeral })}
      />
    </details>
  );
}

/** What it costs by the tenant's plan. */
function Price({ draft, account }: { readonly draft: Draft; readonly account: AccountInfo | undefined }) {
  const plan = account?.plan;
  if (plan === undefined || plan === null) return null;
  const { cpus, memoryMb } = sizeOf(draft);
  const disk = (Number(draft.diskGb) || 0) * plan.rateDiskGbHourMicros;
  const running =
    cpus * plan.rateCpuHourMicros + (memoryMb / 1024) * plan.rateMemoryGbHourMicros + plan.rateBaseHourMicros;
  if (!Number.isFinite(running + disk)) return null;
  return (
    <p className="price" role="status">
      <strong>{renderMoney(running + disk)}</strong> an hour while it runs
      <span className="dim">
        {" "}
        · about {renderMoney((running + disk) * HOURS_OF_MONTH)} a month · plan {plan.name}
      </span>
    </p>
  );
}
