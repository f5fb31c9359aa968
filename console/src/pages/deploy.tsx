/**
 * The form that deploys an app, with a dry run that says what would happen.
 */
import type { DeployPlan, DeployRequest } from "@flotilla/sdk";
import { useNavigate } from "@tanstack/react-router";
import { type SyntheticEvent, useState } from "react";
import { api, queries } from "../api.ts";
import { shellWord } from "../format.ts";
import { Button, Cli, ErrorNote, Field, PageHead, Panel } from "../ui/parts.tsx";

const FIRST = { name: "", image: "", port: "80", replicas: "2", memoryMb: "256", domain: "" };
type Draft = typeof FIRST;

const requestOf = (draft: Draft): DeployRequest => ({
  ...{ name: draft.name.trim(), image: draft.image.trim() },
  ...{ port: Number(draft.port), replicas: Number(draft.replicas), memoryMb: Number(draft.memoryMb) },
  ...(draft.domain.trim() === "" ? {} : { domain: draft.domain.trim() }),
});

export function DeployPage() {
  const navigate = useNavigate();
  const [draft, setDraft] = useState(FIRST);
  const [plan, setPlan] = useState<DeployPlan | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState<"plan" | "deploy" | null>(null);
  const field = (name: keyof Draft, label: string, hint?: string) => (
    <Field
      label={label}
      value={draft[name]}
      hint={hint}
      autoComplete="off"
      onChange={(event) => {
        setDraft({ ...draft, [name]: event.target.value });
        setPlan(null);
      }}
    />
  );
  const run = async (what: "plan" | "deploy"): Promise<void> => {
    setBusy(what);
    setError(null);
    try {
      if (what === "plan") return setPlan(await api.planDeploy(requestOf(draft)));
      const { name } = await api.deployApp(requestOf(draft));
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
  const line = [
    "flotilla app deploy",
    shellWord(draft.name || "site"),
    shellWord(draft.image || "nginx"),
    "--port",
    draft.port,
    "--replicas",
    draft.replicas,
    "--memory",
    `${draft.memoryMb}m`,
  ];
  return (
    <>
      <title>Deploy app · Flotilla</title>
      <PageHead title="Deploy app" />
      <form className="form" onSubmit={onSubmit}>
        {field("name", "Name", "the first part of its address")}
        {field("image", "Image", "such as nginx:1.29")}
        <div className="row">
          {field("port", "Port")}
          {field("replicas", "Instances")}
          {field("memoryMb", "Memory (MB)")}
        </div>
        {field("domain", "Domain", "one of your own, if it has one")}
        <ErrorNote error={error} />
        {plan !== null && (
          <Panel title="What would happen">
            <p>{plan.why}</p>
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
        <Cli line={line.join(" ")} />
      </form>
    </>
  );
}
