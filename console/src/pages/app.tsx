/**
 * One app: a rollout that can be watched, its instances by node, its releases and its logs.
 */
import { usePathPart } from "../route.ts";
import { Tabs } from "@base-ui/react/tabs";
import { type AppInfo, FlotillaError } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { lazy, Suspense, useState } from "react";
import { api } from "../api.ts";
import { appQuery, releasesQuery } from "../data.ts";
import { renderMb } from "../format.ts";
import { useSession } from "../session.tsx";
import { Badge, Button, Cli, Empty, ErrorNote, Loading, PageHead, Time } from "../ui/parts.tsx";
import { AppActions, RollBack } from "./app-actions.tsx";
import { RolloutTab } from "./app-rollout.tsx";
import { APP_TEXTS, APP_TONES } from "./apps.tsx";

const LogPane = lazy(async () => ({ default: (await import("../logs.tsx")).LogPane }));

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
          <RolloutTab app={app} />
        </Tabs.Panel>
        <Tabs.Panel value="releases" className="tab-panel">
          <Releases app={app} />
        </Tabs.Panel>
        <Tabs.Panel value="logs" className="tab-panel">
          <Suspense fallback={<Loading what="logs" />}>
            <AppLog key={name} name={name} />
          </Suspense>
        </Tabs.Panel>
      </Tabs.Root>
    </>
  );
}

function AppLog({ name }: { readonly name: string }) {
  const releases = useQuery(releasesQuery(name));
  const jumps = (releases.data ?? []).map(({ number, createdAt }) => ({
    text: `Release ${number}, ${new Date(createdAt).toLocaleString()}`,
    at: createdAt,
  }));
  return (
    <LogPane
      path={`/v1/apps/${encodeURIComponent(name)}/logs`}
      read={(query, signal) => api.listAppLogs(name, { query, signal })}
      empty="The instances have written nothing."
      jumps={jumps}
    />
  );
}

function Releases({ app }: { readonly app: AppInfo }) {
  const session = useSession();
  const releases = useQuery(releasesQuery(app.name));
  const [backTo, setBackTo] = useState<number | null>(null);
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
              <span className="dim small">
                {release.cpus} CPUs, {renderMb(release.memoryMb)}, port {release.port}
                {release.env.length > 0 && `, ${release.env.map(({ key }) => key).join(", ")}`}
                {release.secretEnvNames.length > 0 && `, secret ${release.secretEnvNames.join(", ")}`} ·{" "}
                <code>{release.digest.slice(0, 19)}</code>
              </span>
            </div>
            <span className="dim">
              <Time at={release.createdAt} />
            </span>
            {session.can("app:write") && !release.isCurrent && release.outcome !== null && (
              <Button onClick={() => setBackTo(release.number)}>Roll back to it</Button>
            )}
          </li>
        ))}
      </ol>
      <Cli line={`flotilla app releases ${app.name}`} />
      <RollBack app={app} release={backTo} isOpen={backTo !== null} onClose={() => setBackTo(null)} />
    </>
  );
}
