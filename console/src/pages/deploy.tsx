/**
 * The form that deploys an app, new or again, with a dry run that says what would happen.
 *
 * Always: a deploy of an app that exists begins with the inputs of its present release. Values of secret
 * variables are not among them: they are named, and typed again.
 */
import type { AppInfo, DeployPlan, DeployRequest, ReleaseInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type SyntheticEvent, useState } from "react";
import { api, queries } from "../api.ts";
import { appQuery, releasesQuery } from "../data.ts";
import { shellWord } from "../format.ts";
import { useParameter } from "../route.ts";
import { Area, Check, type FaultOf, refusalAt } from "../ui/form.tsx";
import { Button, Cli, ErrorNote, Field, Loading, PageHead, Panel, Select } from "../ui/parts.tsx";

interface Draft {
  readonly name: string;
  readonly image: string;
  readonly port: string;
  readonly replicas: string;
  readonly cpus: string;
  readonly memoryMb: string;
  readonly domain: string;
  readonly health: string;
  readonly env: string;
  readonly secretEnv: string;
  readonly strategy: "rolling" | "canary" | "blueGreen";
  readonly batch: string;
  readonly isPromotedByHand: boolean;
  readonly isPrivate: boolean;
  /** What the form does not show of the present release. */
  readonly kept: Pick<DeployRequest, "health" | "network" | "stopGraceSecs">;
}

const FIRST: Draft = {
  ...{ name: "", image: "", port: "80", replicas: "2", cpus: "", memoryMb: "256", domain: "", health: "" },
  ...{ env: "", secretEnv: "", strategy: "rolling", batch: "1", isPromotedByHand: false, isPrivate: false },
  kept: {},
};

const variablesOf = (text: string): { readonly key: string; readonly value: string }[] =>
  text
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line) => {
      const at = line.indexOf("=");
      return at === -1 ? { key: line.trim(), value: "" } : { key: line.slice(0, at).trim(), value: line.slice(at + 1) };
    });

function strategyOf({ strategy, batch, isPromotedByHand }: Draft): NonNullable<DeployRequest["strategy"]> {
  if (strategy === "blueGreen") return { type: "blueGreen" };
  if (strategy === "canary") return { type: "canary", canaryCount: Number(batch), autoPromote: !isPromotedByHand };
  return { type: "rolling", batchSize: Number(batch) };
}

/** The check of the path; without one a check of another kind stays. */
function healthOf({ health, kept }: Draft): Pick<DeployRequest, "health"> {
  const before = kept.health ?? null;
  if (health.trim() === "") return before?.type === "http" ? { health: null } : {};
  const rest = before?.type === "http" ? before : {};
  return { health: { ...rest, type: "http", path: health.trim() } };
}

const requestOf = (draft: Draft, isNew: boolean): DeployRequest => ({
  ...{ name: draft.name.trim(), image: draft.image.trim(), port: Number(draft.port) },
  ...{ replicas: Number(draft.replicas), memoryMb: Number(draft.memoryMb), strategy: strategyOf(draft) },
  ...(draft.cpus === "" ? {} : { cpus: Number(draft.cpus) }),
  ...(draft.domain.trim() === "" ? {} : { domain: draft.domain.trim() }),
  ...draft.kept,
  ...healthOf(draft),
  env: variablesOf(draft.env),
  ...(draft.secretEnv.trim() === "" ? {} : { secretEnv: variablesOf(draft.secretEnv) }),
  ...(isNew ? { publicIngress: !draft.isPrivate } : {}),
});

function cliOf(draft: Draft): string {
  const options = [
    ["--port", draft.port],
    ["--replicas", draft.replicas],
    ["--memory", `${draft.memoryMb}m`],
    ["--cpus", draft.cpus],
    ["--domain", draft.domain.trim()],
    ["--health", draft.health.trim()],
    ["--strategy", draft.strategy === "rolling" ? "" : draft.strategy],
    [draft.strategy === "canary" ? "--canaries" : "--batch", draft.batch === "1" ? "" : draft.batch],
  ] as const;
  return [
    `flotilla app deploy ${shellWord(draft.name || "site")} ${shellWord(draft.image || "nginx")}`,
    ...options.filter(([, value]) => value !== "").map(([name, value]) => `${name} ${shellWord(value)}`),
    ...variablesOf(draft.env).map(({ key, value }) => `--env ${shellWord(`${key}=${value}`)}`),
    ...variablesOf(draft.secretEnv).map(({ key }) => `--secret ${shellWord(key)}`),
    ...(draft.strategy === "canary" && draft.isPromotedByHand ? ["--wait-for-promote"] : []),
    ...(draft.isPrivate ? ["--private"] : []),
  ].join(" ");
}

function draftOf(app: AppInfo, release: ReleaseInfo | undefined): Draft {
  const { name, image, port, replicas, domain } = app;
  return {
    ...FIRST,
    ...{ name, image, port: String(port), replicas: String(replicas), domain: domain ?? "" },
    ...(release === undefined ? {} : { cpus: String(release.cpus), memoryMb: String(release.memoryMb) }),
    env: (release?.env ?? []).map(({ key, value }) => `${key}=${value}`).join("\n"),
    secretEnv: (release?.secretEnvNames ?? []).map((each) => `${each}=`).join("\n"),
    strategy: app.rollout?.strategy ?? "rolling",
    ...(release === undefined
      ? {}
      : {
          health: release.health?.path ?? "",
          kept: { health: release.health, network: release.network, stopGraceSecs: release.stopGraceSecs },
        }),
  };
}

export function DeployPage() {
  const name = useParameter("app");
  const app = useQuery({ ...appQuery(name), enabled: name !== "" });
  const releases = useQuery({ ...releasesQuery(name), enabled: name !== "" });
  if (name === "") return <Deploy key="new" first={FIRST} isNew />;
  if (app.data === undefined || releases.data === undefined)
    return app.isPending || releases.isPending ? (
      <Loading what="the app" />
    ) : (
      <ErrorNote error={app.error ?? releases.error} />
    );
  const present = releases.data.find(({ isCurrent }) => isCurrent) ?? releases.data[0];
  return <Deploy key={name} first={draftOf(app.data, present)} isNew={false} />;
}

function Deploy({ first, isNew }: { readonly first: Draft; readonly isNew: boolean }) {
  const navigate = useNavigate();
  const [draft, setDraft] = useState(first);
  const [plan, setPlan] = useState<DeployPlan | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState<"plan" | "deploy" | null>(null);
  const set = (part: Partial<Draft>): void => {
    setDraft({ ...draft, ...part });
    setPlan(null);
    setError(null);
  };
  const run = async (what: "plan" | "deploy"): Promise<void> => {
    setBusy(what);
    setError(null);
    try {
      if (what === "plan") return setPlan(await api.planDeploy(requestOf(draft, isNew)));
      const { name } = await api.deployApp(requestOf(draft, isNew));
      await queries.invalidateQueries({ queryKey: ["apps"] });
      await navigate({ to: "/apps/$name/{-$tab}", params: { name, tab: undefined } });
    } catch (failed) {
      setError(failed);
    } finally {
      setBusy(null);
    }
  };
  const onSubmit = (event: SyntheticEvent): void => {
    event.preventDefault();
    void run("deploy");
  };
  const { faultOf, rest } = refusalAt(error, Object.keys(FIRST));
  const title = isNew ? "Deploy app" : `Deploy ${first.name}`;
  return (
    <>
      <title>{`${title} · Flotilla`}</title>
      <PageHead title={title} />
      <form className="form" onSubmit={onSubmit}>
        <Fields draft={draft} set={set} faultOf={faultOf} isNew={isNew} />
        <More draft={draft} set={set} faultOf={faultOf} isNew={isNew} />
        <ErrorNote error={rest} />
        {plan !== null && (
          <Panel title={plan.effect === "none" ? "Nothing would change" : "What would happen"}>
            <p role="status">{plan.why}</p>
            <ul>
              {[...plan.differences, ...plan.steps].map((line) => (
                <li key={line}>{line}</li>
              ))}
            </ul>
          </Panel>
        )}
        <footer>
          <Button look="main" type="submit" isBusy={busy === "deploy"}>
            Deploy
          </Button>
          <Button isBusy={busy === "plan"} onClick={() => void run("plan")}>
            Dry run
          </Button>
          <Button onClick={() => void navigate({ to: "/apps" })}>Cancel</Button>
        </footer>
        <Cli line={cliOf(draft)} />
      </form>
    </>
  );
}

interface PartProps {
  readonly draft: Draft;
  readonly set: (part: Partial<Draft>) => void;
  readonly faultOf: FaultOf;
  readonly isNew: boolean;
}

/** A field of one line. */
function Line({ name, label, hint, draft, set, faultOf }: LineProps) {
  const isNumber = name === "port" || name === "replicas" || name === "cpus" || name === "memoryMb" || name === "batch";
  return (
    <Field
      label={label}
      value={draft[name]}
      hint={hint}
      type={isNumber ? "number" : "text"}
      fault={faultOf(name)}
      autoComplete="off"
      spellCheck={false}
      onChange={(event) => set({ [name]: event.target.value })}
    />
  );
}

interface LineProps extends Omit<PartProps, "isNew"> {
  readonly name: "name" | "image" | "port" | "replicas" | "cpus" | "memoryMb" | "domain" | "health" | "batch";
  readonly label: string;
  readonly hint?: string;
}

function Fields(props: PartProps) {
  return (
    <>
      {props.isNew && <Line {...props} name="name" label="Name" hint="the first part of its address" />}
      <Line {...props} name="image" label="Image" hint="such as nginx:1.29" />
      <div className="row">
        <Line {...props} name="port" label="Port" />
        <Line {...props} name="replicas" label="Instances" />
        <Line {...props} name="memoryMb" label="Memory (MB)" />
      </div>
      <Line
        {...props}
        name="health"
        label="Health check"
        hint="a path that answers 2xx or 3xx while an instance does its work; empty: its port accepts connections"
      />
    </>
  );
}

const STRATEGIES = [
  ["rolling", "Rolling: one batch after the other"],
  ["canary", "Canary: some serve beside the others first"],
  ["blueGreen", "Blue and green: all at once, when all are healthy"],
] as const;

function More(props: PartProps) {
  const { draft, set, faultOf, isNew } = props;
  return (
    <details>
      <summary>Strategy, environment, domain and more</summary>
      <Select
        label="How instances are replaced"
        value={draft.strategy}
        options={STRATEGIES}
        onChange={(strategy) => set({ strategy: strategy as Draft["strategy"] })}
      />
      {draft.strategy !== "blueGreen" && (
        <Line {...props} name="batch" label={draft.strategy === "canary" ? "Canaries" : "Replaced at a time"} />
      )}
      {draft.strategy === "canary" && (
        <>
          <p className="dim small">
            Each instance gets the same share of the requests: with {draft.batch || 1} of {draft.replicas || 1} beside
            them, canaries get{" "}
            {Math.round((100 * Number(draft.batch || 1)) / (Number(draft.batch || 1) + Number(draft.replicas || 1)))} %.
          </p>
          <Check
            label="Replace the others only when someone promotes it"
            isChecked={draft.isPromotedByHand}
            onChange={(isPromotedByHand) => set({ isPromotedByHand })}
          />
        </>
      )}
      <Area
        label="Environment"
        value={draft.env}
        onChange={(event) => set({ env: event.target.value })}
        hint="one NAME=value in each line"
        fault={faultOf("env")}
      />
      <Area
        label="Secret environment"
        value={draft.secretEnv}
        onChange={(event) => set({ secretEnv: event.target.value })}
        hint={isNew ? "encrypted, and shown nowhere again" : "type the values of all again: they are shown nowhere"}
        fault={faultOf("secretEnv")}
      />
      <div className="row">
        <Line {...props} name="cpus" label="CPUs" />
        <Line {...props} name="domain" label="Domain" hint="besides its own address" />
      </div>
      {isNew && (
        <Check
          label="Private: its address needs a key or its share link"
          isChecked={draft.isPrivate}
          onChange={(isPrivate) => set({ isPrivate })}
        />
      )}
    </details>
  );
}
