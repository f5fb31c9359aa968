/**
 * Where servers and ingresses listen for nodes, and the database: what guests of every host must not reach.
 * Pure.
 *
 * Addresses for everyone are not among them: the API's, and those of the ingress for visitors. Programs in
 * machines are their clients as well. Nor are those that nodes say of themselves: one that names another's
 * address would close that to the machines of all.
 */
import type { FleetListener } from "@flotilla/contract/link/fleet";
import { CLOSED_MAX } from "@flotilla/contract/link/reports";
import { hostsOf } from "../db/hosts.ts";

export interface FleetPlaces {
  readonly listeners: readonly FleetListener[];
  readonly ingresses: readonly FleetListener[];
  /** null: the embedded one, which has no address. */
  readonly databaseUrl: string | null;
}

/** `host:port` of each; the database first. */
export function closedToGuests({ listeners, ingresses, databaseUrl }: FleetPlaces): readonly string[] {
  const databases = databaseUrl === null ? [] : hostsOf({ connectionString: databaseUrl });
  const places = [
    // Others are sockets.
    ...databases.filter(({ name }) => /^[^/%]/.test(name)).map(({ name }) => withPort(name, 5432)),
    ...[...listeners, ...ingresses].flatMap(({ addresses }) => addresses),
  ];
  return [...new Set(places)].slice(0, CLOSED_MAX);
}

const withPort = (host: string, port: number): string => (/:\d+$/.test(host) ? host : `${host}:${port}`);
