/**
 * How many operations of each tenant a server works on at the same time.
 *
 * An operation may take an hour, such as the pull of a large image, and a tenant may have many. So a tenant
 * has at most half of what the others leave. With n tenants that want all they can get, each comes to the
 * n+1st part, and another such part is free for the next one. Operations of nodes count for the fleet, as if
 * it were a tenant, because a drain waits for the moves of machines: if drains had all places of a tenant,
 * its moves would never begin.
 *
 * Always: while a place is free, a tenant without operations here gets it.
 */
import type { OperationKind } from "@flotilla/contract/operations";

/** Requested by administrators. */
export const FLEET_KINDS: readonly OperationKind[] = ["node drain", "node upgrade", "registry collection"];
/** Owner of the operations of FLEET_KINDS. No tenant has this id. */
export const FLEET = "";

/** On one server. A tenant alone has half of it. */
export const WORKED_ON_MAX = 64;

/** How many more operations a server may claim. */
export interface ClaimRoom {
  readonly all: number;
  /** Places of each tenant, and of the fleet, that has operations here. */
  readonly ofOwners: ReadonlyMap<string, number>;
  /** Places of each other tenant. */
  readonly ofOthers: number;
}

export const NO_ROOM: ClaimRoom = { all: 0, ofOwners: new Map(), ofOthers: 0 };

/** The tenant, or FLEET. */
export const ownerOf = ({ tenantId, kind }: { readonly tenantId: string; readonly kind: OperationKind }): string =>
  FLEET_KINDS.includes(kind) ? FLEET : tenantId;

/** `workedOn`: the owner of each operation that is worked on. */
export function claimRoom(workedOn: Iterable<string>): ClaimRoom {
  const all = [...workedOn];
  const counts = Map.groupBy(all, (owner) => owner);
  const shareBeside = (others: number): number => Math.ceil((WORKED_ON_MAX - others) / 2);
  const more = ([owner, { length }]: [string, readonly string[]]): [string, number] => [
    owner,
    Math.max(0, shareBeside(all.length - length) - length),
  ];
  return {
    all: WORKED_ON_MAX - all.length,
    ofOwners: new Map([...counts].map(more)),
    ofOthers: shareBeside(all.length),
  };
}
