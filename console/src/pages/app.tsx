/**
 * One app: a rollout that can be watched, its instances by node, its releases and its logs.
 */
import { usePathPart } from "../route.ts";
import { Tabs } from "@base-ui/react/tabs";
import { type AppInfo, FlotillaError } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { type SyntheticEvent, lazy, Suspense, useState } from "react";
import { api, queries } from "../api.ts";
import { appExplanationQuery, appQuery, releasesQuery } from "../data.ts";
import { useSession } from "../session.tsx";
import { ActionMenu, attempt, Confirm, type MenuEntry, Sheet } from "../ui/dialog.tsx";
import {
  Badge,
  Button,
  Cli,
  Empty,
  ErrorNote,
  Facts,
  Field,
  Loading,
  MachineLink,
  PageHead,
  Panel,
  Time,
  type Tone,
} from "../ui/parts.tsx";
import { APP_TEXTS, APP_TONES, servingOf } from "./apps.tsx";

const LogPane = lazy(async () => ({ default: (await import("../logs.tsx")).LogPane }));

const INSTANCE_TONES: Readonly<Record<AppInfo["instances"][number]["status"], Tone>> = {
  starting: "busy",
  healthy: "good",
  unhealthy: "bad",
  draining: "busy",
  stopped: "off",
  failed: "bad",
  lost: "bad",
};

const again = (): Promise<void> => queries.invalidateQueries({ queryKey: ["apps"] });

export function AppPage() {
  const name = usePathPart("name");
  const tab = usePathPart("tab") || "rollout";
  const navigate = useNavigate();
  const read = useQuery(appQuery(name));
  if (read.error instanceof FlotillaError && read.error.status === 404)
    return <Empty title="No such app">{name}</Empty>;
  if (read.data === undefined)
    return read.isPending ? (
      <Loading what="the app" />
    ) : (
      <ErrorNote error={read.error} retry={() => void read.refetch()} />
    );
  const app = read.data;
  const open = (to: string): void =>
    void navigate({ to: "/apps/$name/{-$tab}", params: { name, tab: to === "rollout" ? undefined : to } });
  return (
    <>
      <title>{`${name} · Flotilla`}</title>
      <nav className="crumbs" aria-label="Where this is">
        <Link to="/apps">All</Link> / {name}
      </nav>
      <PageHead title={name} badge={<Badge tone={APP_TONES[app.status]}>{APP_TEXTS[app.status]}</Badge>}>
        <AppActions app={app} />
      </PageHead>
      {app.message !== null && <p className={app.status === "failed" ? "note bad" : "note"}>{app.message}</p>}
      <Tabs.Root value={tab} onValueChange={(value) => open(String(value))}>
        <Tabs.List className="tabs" aria-label={`Parts of ${name}`}>
          <Tabs.Tab value="rollout">Rollout</Tabs.Tab>
          <Tabs.Tab value="releases">Releases</Tabs.Tab>
          <Tabs.Tab value="logs">Logs</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="rollout" className="tab-panel">
          <Rollout app={app} />
        </Tabs.Panel>
        <Tabs.Panel value="releases" className="tab-panel">
          <Releases app={app} />
        </Tabs.Panel>
        <Tabs.Panel value="logs" className="tab-panel">
          <Suspense fallback={<Loading what="logs" />}>
            <LogPane
              key={name}
              name={name}
              read={(query, signal) => api.listAppLogs(name, { query, signal })}
              empty="The instances have written nothing."
            />
          </Suspense>
        </Tabs.Panel>
      </Tabs.Root>
    </>
  );
}

function Rollout({ app }: { readonly app: AppInfo }) {
  const why = useQuery(appExplanationQuery(app.name));
  return (
    <div className="panels">
      <Panel title="Now">
        <Facts
          rows={[
            ["Serving", `${servingOf(app)} of ${app.replicas} instances`],
            ["Release", app.release],
            ["Image", app.image],
            ["Waits for", why.data?.waitingFor],
            ["Next", why.data?.next.join("; ")],
            ["Last failure", why.data?.lastFailure],
            ["Tried again", why.data?.retryAt && <Time key="r" at={why.data.retryAt} />],
            [
              "Address",
              <a key="u" href={app.url} target="_blank" rel="noreferrer noopener">
                {app.url}
              </a>,
            ],
          ]}
        />
        <Cli line={`flotilla app explain ${app.name}`} />
      </Panel>
      <Topology app={app} />
    </div>
  );
}

/** Instances by node, and which of them get requests. */
function Topology({ app }: { readonly app: AppInfo }) {
  const byNode = Map.groupBy(app.instances, ({ nodeId }) => nodeId);
  const newest = Math.max(0, ...app.instances.map(({ generation }) => generation));
  return (
    <Panel title="Instances">
      {app.instances.length === 0 && <p className="dim fine">There is none.</p>}
      <div className="topology">
        {[...byNode].map(([nodeId, instances]) => (
          <section key={nodeId} aria-label={`On ${nodeId || "no node"}`}>
            <h3>{nodeId || "no node yet"}</h3>
            {instances.map((instance) => (
              <div key={instance.id} className={instance.isServing ? "instance serving" : "instance"}>
                <Badge tone={INSTANCE_TONES[instance.status]}>{instance.status}</Badge>
                <MachineLink id={instance.machineId} name={instance.id.slice(-8)} />
                <span className="dim small">
                  {instance.generation === newest ? "new" : "old"} ·{" "}
                  {instance.isServing ? `${instance.openRequests} open requests` : "no requests"}
                </span>
                {instance.reason !== null && <span className="dim small block">{instance.reason}</span>}
              </div>
            ))}
          </section>
        ))}
      </div>
    </Panel>
  );
}

function Releases({ app }: { readonly app: AppInfo }) {
  const session = useSession();
  const releases = useQuery(releasesQuery(app.name));
  return (
    <>
      <ErrorNote error={releases.error} />
      <ol className="timeline">
        {(releases.data ?? []).map((release) => (
          <li key={release.number} className={release.outcome === "failed" ? "error" : ""}>
            <div>
              <strong>
                {release.number}: {release.image} {release.isCurrent && <Badge tone="good">current</Badge>}
              </strong>
              <span className="dim">
                {release.why}
                {release.outcomeReason !== null && ` · ${release.outcomeReason}`}
              </span>
            </div>
            <span className="dim">
              <Time at={release.createdAt} />
            </span>
            {session.can("app:write") && !release.isCurrent && (
              <Button
                onClick={() =>
                  void attempt("The roll back", async () => {
                    await api.rollbackApp(app.name, { release: release.number });
                    await again();
                  })
                }
              >
                Roll back to it
              </Button>
            )}
          </li>
        ))}
      </ol>
      <Cli line={`flotilla app releases ${app.name}`} />
    </>
  );
}

function AppActions({ app }: { readonly app: AppInfo }) {
  const session = useSession();
  const navigate = useNavigate();
  const [asking, setAsking] = useState<"scale" | "destroy" | null>(null);
  if (!session.can("app:write")) return null;
  const { name } = app;
  const act = (what: string, call: () => Promise<unknown>): Promise<boolean> =>
    attempt(`${what} of ${name}`, async () => {
      await call();
      await again();
    });
  const entries: MenuEntry[] = [
    { name: "Redeploy", run: () => void act("Redeploy", () => api.redeployApp(name)) },
    { name: "Roll back", run: () => void act("Roll back", () => api.rollbackApp(name)) },
    { name: "Destroy", isDanger: true, run: () => setAsking("destroy") },
  ];
  return (
    <>
      {app.status === "awaitingPromotion" && (
        <Button look="main" onClick={() => void act("Promotion", () => api.promoteApp(name))}>
          Promote
        </Button>
      )}
      <Button onClick={() => setAsking("scale")}>Scale</Button>
      <ActionMenu label={`More for ${name}`} entries={entries} />
      <Scale app={app} isOpen={asking === "scale"} onClose={() => setAsking(null)} />
      <Confirm
        title={`Destroy ${name}?`}
        verb="Destroy"
        isOpen={asking === "destroy"}
        onClose={() => setAsking(null)}
        act={async () => {
          await api.destroyApp(name);
          await navigate({ to: "/apps" });
          await again();
        }}
      >
        <p>
          All {app.instances.length} instances end, with what they have written to their disks, and {app.url} answers no
          more.
        </p>
        <Cli line={`flotilla app rm ${name}`} />
      </Confirm>
    </>
  );
}

function Scale({
  app,
  isOpen,
  onClose,
}: {
  readonly app: AppInfo;
  readonly isOpen: boolean;
  readonly onClose: () => void;
}) {
  const [count, setCount] = useState(String(app.replicas));
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setIsBusy] = useState(false);
  const submit = async (event: SyntheticEvent): Promise<void> => {
    event.preventDefault();
    setIsBusy(true);
    setError(null);
    try {
      await api.scaleApp(app.name, { count: Number(count) });
      await again();
      onClose();
    } catch (failed) {
      setError(failed);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <Sheet title={`Scale ${app.name}`} isOpen={isOpen} onClose={onClose}>
      <form className="body" onSubmit={(event) => void submit(event)}>
        <Field
          label="Instances"
          type="number"
          min={0}
          value={count}
          onChange={(event) => setCount(event.target.value)}
        />
        <ErrorNote error={error} />
        <Cli line={`flotilla app scale ${app.name} ${count}`} />
        <footer>
          <Button onClick={onClose}>Close</Button>
          <Button look="main" type="submit" isBusy={isBusy}>
            Scale
          </Button>
        </footer>
      </form>
    </Sheet>
  );
}
