/**
 * The pages of the navigation, and which scope each needs: what a key may not read is not offered.
 */
import type { IconName } from "./ui/parts.tsx";

export interface Place {
  readonly to: string;
  readonly name: string;
  readonly icon: IconName;
  /** null: every key may read it. */
  readonly scope: string | null;
  readonly group: "Work" | "Fleet" | "Account";
}

export const PLACES: readonly Place[] = [
  { to: "/", name: "Overview", icon: "overview", scope: null, group: "Work" },
  { to: "/machines", name: "Machines", icon: "machines", scope: "machine:read", group: "Work" },
  { to: "/apps", name: "Apps", icon: "apps", scope: null, group: "Work" },
  { to: "/images", name: "Images", icon: "images", scope: "machine:read", group: "Work" },
  { to: "/packages", name: "Packages", icon: "packages", scope: "machine:read", group: "Work" },
  { to: "/pools", name: "Pools", icon: "pools", scope: "machine:read", group: "Work" },
  { to: "/nodes", name: "Nodes", icon: "nodes", scope: "admin", group: "Fleet" },
  { to: "/operations", name: "Operations", icon: "operations", scope: null, group: "Fleet" },
  { to: "/events", name: "Events", icon: "events", scope: "machine:read", group: "Fleet" },
  { to: "/webhooks", name: "Webhooks", icon: "webhooks", scope: "webhook:write", group: "Fleet" },
  { to: "/usage", name: "Usage and invoices", icon: "usage", scope: "usage:read", group: "Account" },
  { to: "/keys", name: "Keys", icon: "keys", scope: "keys:write", group: "Account" },
  { to: "/tenants", name: "Tenants and plans", icon: "tenants", scope: "admin", group: "Account" },
  { to: "/audit", name: "Audit", icon: "audit", scope: "audit:read", group: "Account" },
  { to: "/settings", name: "Settings", icon: "settings", scope: null, group: "Account" },
];
