/**
 * Starts the console in its page: the routes, each page's code when it is first opened, and what is around
 * them.
 */
import { QueryClientProvider } from "@tanstack/react-query";
import {
  createRootRoute,
  createRoute,
  createRouter,
  type ErrorComponentProps,
  lazyRouteComponent,
  Link,
  type RouteComponent,
  RouterProvider,
} from "@tanstack/react-router";
import { createRoot } from "react-dom/client";
import { queries } from "./api.ts";
import { SignedIn } from "./session.tsx";
import { Shell } from "./shell.tsx";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/parts.css";
import "./styles/forms.css";
import "./styles/content.css";
import "./styles/above.css";
import { applyTheme } from "./theme.ts";
import { Empty, ErrorNote, PageHead } from "./ui/parts.tsx";

const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);

const root = createRootRoute({
  component: () => (
    <SignedIn>
      <Shell />
    </SignedIn>
  ),
  notFoundComponent: () => (
    <>
      <PageHead title="No such page" />
      <Empty
        title="Nothing is at this address"
        action={
          <Link to="/" className="button main">
            Overview
          </Link>
        }
      />
    </>
  ),
  errorComponent: Broken,
});

function Broken({ error }: ErrorComponentProps) {
  return (
    <>
      <PageHead title="This page failed" />
      <ErrorNote error={error} retry={() => location.reload()} />
    </>
  );
}

/** A page whose code is read when it is first opened. Its type is not looked at: pages know the routes. */
function page(load: () => Promise<object>, name: string): RouteComponent {
  return lazyRouteComponent(load as () => Promise<Record<string, RouteComponent>>, name);
}

interface LogSearch {
  at?: string;
  search?: string;
}

/** The place in a log, and the text that is searched for. */
function logSearch(search: Record<string, unknown>): LogSearch {
  // A number is a text here.
  const [at, wanted] = [search["at"], search["search"]].map((value) =>
    text(typeof value === "number" ? `${value}` : value),
  );
  return { ...(at === undefined ? {} : { at }), ...(wanted === undefined ? {} : { search: wanted }) };
}

const under = { getParentRoute: () => root } as const;
const routes = root.addChildren([
  createRoute({
    ...under,
    path: "/",
    component: page(() => import("./pages/overview.tsx"), "OverviewPage"),
  }),
  createRoute({
    ...under,
    path: "/machines",
    validateSearch: (search: Record<string, unknown>): { q?: string; state?: string } => {
      const [q, state] = [text(search["q"]), text(search["state"])];
      return { ...(q === undefined ? {} : { q }), ...(state === undefined ? {} : { state }) };
    },
    component: page(() => import("./pages/machines.tsx"), "MachinesPage"),
  }),
  createRoute({
    ...under,
    path: "/machines/create",
    validateSearch: (search: Record<string, unknown>): { like?: string; package?: string; image?: string } => {
      const [like, from, image] = [text(search["like"]), text(search["package"]), text(search["image"])];
      return {
        ...(like === undefined ? {} : { like }),
        ...(from === undefined ? {} : { package: from }),
        ...(image === undefined ? {} : { image }),
      };
    },
    component: page(() => import("./pages/create-machine.tsx"), "CreateMachinePage"),
  }),
  createRoute({
    ...under,
    path: "/machines/$id/{-$tab}",
    validateSearch: (search: Record<string, unknown>): { path?: string } & LogSearch => {
      const path = text(search["path"]);
      return { ...logSearch(search), ...(path === undefined ? {} : { path }) };
    },
    component: page(() => import("./pages/machine.tsx"), "MachinePage"),
  }),
  createRoute({ ...under, path: "/apps", component: page(() => import("./pages/apps.tsx"), "AppsPage") }),
  createRoute({
    ...under,
    path: "/apps/deploy",
    validateSearch: (search: Record<string, unknown>): { app?: string } => {
      const app = text(search["app"]);
      return app === undefined ? {} : { app };
    },
    component: page(() => import("./pages/deploy.tsx"), "DeployPage"),
  }),
  createRoute({
    ...under,
    path: "/apps/$name/{-$tab}",
    validateSearch: logSearch,
    component: page(() => import("./pages/app.tsx"), "AppPage"),
  }),
  createRoute({
    ...under,
    path: "/images",
    component: page(() => import("./pages/images.tsx"), "ImagesPage"),
  }),
  createRoute({
    ...under,
    path: "/packages",
    component: page(() => import("./pages/packages.tsx"), "PackagesPage"),
  }),
  createRoute({
    ...under,
    path: "/pools",
    component: page(() => import("./pages/pools.tsx"), "PoolsPage"),
  }),
  createRoute({
    ...under,
    path: "/nodes",
    component: page(() => import("./pages/nodes.tsx"), "NodesPage"),
  }),
  createRoute({
    ...under,
    path: "/nodes/$id",
    component: page(() => import("./pages/node.tsx"), "NodePage"),
  }),
  createRoute({
    ...under,
    path: "/operations",
    component: page(() => import("./pages/operations.tsx"), "OperationsPage"),
  }),
  createRoute({
    ...under,
    path: "/operations/$id",
    component: page(() => import("./pages/operations.tsx"), "OperationPage"),
  }),
  createRoute({
    ...under,
    path: "/events",
    component: page(() => import("./pages/events.tsx"), "EventsPage"),
  }),
  createRoute({
    ...under,
    path: "/webhooks",
    component: page(() => import("./pages/webhooks.tsx"), "WebhooksPage"),
  }),
  createRoute({
    ...under,
    path: "/webhooks/$id",
    component: page(() => import("./pages/webhooks.tsx"), "WebhookPage"),
  }),
  createRoute({
    ...under,
    path: "/usage",
    component: page(() => import("./pages/usage.tsx"), "UsagePage"),
  }),
  createRoute({
    ...under,
    path: "/usage/$id",
    component: page(() => import("./pages/invoice.tsx"), "InvoicePage"),
  }),
  createRoute({ ...under, path: "/keys", component: page(() => import("./pages/keys.tsx"), "KeysPage") }),
  createRoute({
    ...under,
    path: "/tenants",
    component: page(() => import("./pages/tenants.tsx"), "TenantsPage"),
  }),
  createRoute({
    ...under,
    path: "/tenants/$id",
    component: page(() => import("./pages/tenant.tsx"), "TenantPage"),
  }),
  createRoute({
    ...under,
    path: "/plans/$id",
    component: page(() => import("./pages/plan.tsx"), "PlanPage"),
  }),
  createRoute({
    ...under,
    path: "/audit",
    component: page(() => import("./pages/audit.tsx"), "AuditPage"),
  }),
  createRoute({
    ...under,
    path: "/settings",
    component: page(() => import("./pages/settings.tsx"), "SettingsPage"),
  }),
]);

const router = createRouter({
  routeTree: routes,
  basepath: "/console",
  defaultPreload: "intent",
  // In the page's place, so that the navigation stays.
  defaultErrorComponent: Broken,
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}

applyTheme();
createRoot(document.getElementById("console") as HTMLElement).render(
  <QueryClientProvider client={queries}>
    <RouterProvider router={router} />
  </QueryClientProvider>,
);
