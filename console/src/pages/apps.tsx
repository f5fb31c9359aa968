/**
 * The apps: what is deployed, where it is reached, and how it does.
 */
import type { AppInfo } from "@flotilla/sdk";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { appsQuery } from "../data.ts";
import { useSession } from "../session.tsx";
import { Badge, Button, Empty, ErrorNote, Loading, PageHead, Time, type Tone } from "../ui/parts.tsx";
import { type Column, DataTable } from "../ui/table.tsx";

export const APP_TONES: Readonly<Record<AppInfo["status"], Tone>> = {
  deploying: "busy",
  running: "good",
  awaitingPromotion: "warn",
  degraded: "warn",
  failed: "bad",
  stopped: "off",
};

export const APP_TEXTS: Readonly<Record<AppInfo["status"], string>> = {
  deploying: "deploying",
  running: "running",
  awaitingPromotion: "awaits promotion",
  degraded: "degraded",
  failed: "failed",
  stopped: "stopped",
};

const COLUMNS: readonly Column<AppInfo>[] = [
  {
    name: "Name",
    show: ({ name }) => (
      <Link to="/apps/$name/{-$tab}" params={{ name, tab: undefined }}>
        {name}
      </Link>
    ),
    by: ({ name }) => name,
  },
  {
    name: "State",
    show: ({ status }) => <Badge tone={APP_TONES[status]}>{APP_TEXTS[status]}</Badge>,
    by: ({ status }) => status,
  },
  { name: "Serving", show: (app) => `${servingOf(app)} of ${app.replicas}`, by: (app) => servingOf(app) },
  { name: "Image", show: ({ image }) => image, by: ({ image }) => image, isWide: true },
  { name: "Release", show: ({ release }) => release ?? "", by: ({ release }) => release ?? 0, isWide: true },
  {
    name: "Address",
    show: ({ url }) => (
      <a href={url} target="_blank" rel="noreferrer noopener">
        {url.replace(/^https?:\/\//, "")}
      </a>
    ),
    isWide: true,
  },
  { name: "Changed", show: ({ updatedAt }) => <Time at={updatedAt} />, by: ({ updatedAt }) => updatedAt },
];

export const servingOf = ({ instances }: AppInfo): number => instances.filter(({ isServing }) => isServing).length;

export function AppsPage() {
  const session = useSession();
  const navigate = useNavigate();
  const apps = useQuery(appsQuery);
  return (
    <>
      <title>Apps · Flotilla</title>
      <PageHead title="Apps">
        {session.can("app:write") && (
          <Button look="main" icon="plus" onClick={() => void navigate({ to: "/apps/deploy" })}>
            Deploy app
          </Button>
        )}
      </PageHead>
      <ErrorNote error={apps.error} retry={() => void apps.refetch()} />
      {apps.isPending && <Loading what="apps" />}
      {apps.data !== undefined && (
        <DataTable
          label="Apps"
          rows={apps.data}
          columns={COLUMNS}
          idOf={({ id }) => id}
          sortedBy="Name"
          empty={
            <Empty title="No apps yet" cli="flotilla app deploy site nginx --port 80 --replicas 2 --memory 256m">
              An app is an image that serves by itself, as several instances behind one host name; a deploy replaces
              them one by one.
            </Empty>
          }
        />
      )}
    </>
  );
}
