/**
 * The form that makes a machine: two fields are enough, the others are below.
 *
 * Always: what is refused is said at its field, and nothing that was typed is lost; the price is that of the
 * tenant's plan.
 */
import { FlotillaError, type AccountInfo, type CreateMachineRequest } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type SyntheticEvent, useId, useState } from "react";
import { api } from "../api.ts";
import { accountQuery, imagesQuery, machinesQuery } from "../data.ts";
import { renderMoney, shellWord } from "../format.ts";
import { putMachine } from "../live.ts";
import { useSession } from "../session.tsx";
import { Button, Cli, ErrorNote, Field, PageHead, Select } from "../ui/parts.tsx";

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
  readonly image: string;
  readonly cpus: string;
  readonly memoryMb: string;
  readonly diskGb: string;
  readonly ports: string;
  readonly env: string;
  readonly labels: string;
  readonly command: string;
  readonly network: "open" | "blocked";
  readonly autoStop: string;
  readonly isStarted: boolean;
  readonly isEphemeral: boolean;
}

const FIRST: Draft = {
  ...{ name: "", image: "", cpus: "", memoryMb: "", diskGb: "", ports: "", env: "", labels: "", command: "" },
  ...{ network: "open", autoStop: "", isStarted: true, isEphemeral: false },
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
    source: { type: "image", reference: draft.image.trim() },
    resources: {
      ...sizeOf(draft),
      ...(draft.diskGb === "" ? {} : { diskGb: Number(draft.diskGb) }),
    },
    ...(draft.name === "" ? {} : { name: draft.name }),
    ...(ports.length === 0 ? {} : { ports: ports.map((port) => ({ port })) }),
    ...(Object.keys(env).length === 0 ? {} : { env }),
    ...(Object.keys(labels).length === 0 ? {} : { labels }),
    ...(draft.command.trim() === "" ? {} : { command: ["sh", "-c", draft.command] }),
    ...(draft.network === "open" ? {} : { network: { mode: draft.network } }),
    ...(draft.autoStop === "" ? {} : { autoStopSeconds: Number(draft.autoStop) }),
    ...(draft.isEphemeral ? { ephemeral: true } : {}),
  };
}

function cliOf(draft: Draft): string {
  const line = ["flotilla machine create", shellWord(draft.image.trim() || "alpine")];
  if (draft.name !== "") line.push("--name", shellWord(draft.name));
  if (draft.cpus !== "") line.push("--cpus", draft.cpus);
  if (draft.memoryMb !== "") line.push("--memory", `${draft.memoryMb}m`);
  for (const port of portsOf(draft.ports)) line.push("-p", String(port));
  if (draft.isStarted) line.push("--start");
  if (draft.command.trim() !== "") line.push("-- sh -c", shellWord(draft.command));
  return line.join(" ");
}

export function CreateMachinePage() {
  const session = useSession();
  const navigate = useNavigate();
  const account = useQuery(accountQuery);
  const images = useQuery({ ...imagesQuery, enabled: session.can("machine:read") });
  const machines = useQuery({ ...machinesQuery, enabled: session.can("machine:read") });
  const [draft, setDraft] = useState(FIRST);
  const [isShown, setIsShown] = useState(false);
  const [isBusy, setIsBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const listId = useId();
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
  const suggestions = [
    ...new Set([
      ...(images.data ?? []).flatMap(({ reference }) => (reference.includes("@") ? [] : shortOf(reference))),
      ...SUGGESTED,
    ]),
  ];
  return (
    <>
      <title>Create machine · Flotilla</title>
      <PageHead title="Create machine" />
      <form className="form" onSubmit={(event) => void submit(event)} noValidate>
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
        <Field
          label="Image"
          value={draft.image}
          onChange={(event) => set({ image: event.target.value })}
          hint="an OCI image, such as alpine; local/busybox needs no registry"
          fault={faultOf("image")}
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
        <More draft={draft} set={set} faultOf={faultOf} />
        <label className="check">
          <input
            type="checkbox"
            checked={draft.isStarted}
            onChange={(event) => set({ isStarted: event.target.checked })}
          />
          Start it, and open a terminal
        </label>
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
        placeholder="as it was built"
        value={draft.command}
        onChange={(event) => set({ command: event.target.value })}
        hint="runs whenever the machine starts, by sh -c"
      />
      <TextArea
        label="Environment"
        value={draft.env}
        onChange={(env) => set({ env })}
        fault={faultOf("env")}
        hint="one NAME=value in each line"
      />
      <TextArea
        label="Labels"
        value={draft.labels}
        onChange={(labels) => set({ labels })}
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
      <label className="check">
        <input
          type="checkbox"
          checked={draft.isEphemeral}
          onChange={(event) => set({ isEphemeral: event.target.checked })}
        />
        Delete it once it has stopped
      </label>
    </details>
  );
}

interface TextAreaProps {
  readonly label: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly hint: string;
  readonly fault: string | null;
}

function TextArea({ label, value, onChange, hint, fault }: TextAreaProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <textarea
        id={id}
        rows={3}
        value={value}
        spellCheck={false}
        aria-invalid={fault !== null}
        aria-describedby={`${id}-text`}
        onChange={(event) => onChange(event.target.value)}
      />
      <p id={`${id}-text`} className={fault === null ? "dim small" : "fault small"}>
        {fault ?? hint}
      </p>
    </div>
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
