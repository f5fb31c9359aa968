/**
 * The table of targets: which instances of each app may get requests, at one version. Pure, and never
 * changed: a newer version is another table.
 *
 * Always:
 * - The table of a version has every change up to that version: versions become visible in their order.
 * - A domain leads to the app that took it last, also if the app that had it changes later.
 */
import type { TargetPort } from "../target.ts";

/** An app as ingresses serve it. */
export interface AppRoute {
  readonly id: string;
  /** A host name that is served as given; null: none. */
  readonly domain: string | null;
  /** Its instances that may get requests. */
  readonly targets: readonly TargetPort[];
}

/** A route, or the end of one. */
export interface RouteChange extends AppRoute {
  /** app_routes_version when it last changed. */
  readonly version: number;
  /** The app was destroyed. */
  readonly isGone: boolean;
}

/** What changed after a version, up to another. */
export interface RouteChanges {
  readonly version: number;
  readonly changes: readonly RouteChange[];
}

export interface RouteTable {
  readonly version: number;
  /** By the id of the app. */
  readonly routes: ReadonlyMap<string, AppRoute>;
  /** The id of the app that has a domain. */
  readonly domains: ReadonlyMap<string, string>;
}

/** The version of a table that was never read: everything is newer. */
export const VERSION_OF_NOTHING = -1;

export const NO_ROUTES: RouteTable = { version: VERSION_OF_NOTHING, routes: new Map(), domains: new Map() };

/**
 * The table after the changes. null: the database knows fewer versions than this table, because a backup was
 * restored; everything is to be read again.
 */
export function changedTable(table: RouteTable, { version, changes }: RouteChanges): RouteTable | null {
  if (version < table.version) return null;
  if (version === table.version && changes.length === 0) return table;
  const routes = new Map(table.routes);
  const domains = new Map(table.domains);
  for (const change of changes.toSorted((one, other) => one.version - other.version)) {
    const before = routes.get(change.id)?.domain ?? null;
    if (before !== null && before !== change.domain && domains.get(before) === change.id) domains.delete(before);
    if (change.isGone) {
      if (change.domain !== null && domains.get(change.domain) === change.id) domains.delete(change.domain);
      routes.delete(change.id);
      continue;
    }
    const { id, domain, targets } = change;
    routes.set(id, { id, domain, targets });
    if (domain !== null) domains.set(domain, id);
  }
  return { version, routes, domains };
}

/** Whether the app's instance is in the table. */
export const isRouted = ({ routes }: RouteTable, appId: string, machineId: string): boolean =>
  routes.get(appId)?.targets.some(({ machine }) => machine.id === machineId) ?? false;
