/**
 * Shared pools: VMs without an owner wait on the nodes, and a claim creates and starts a machine of the caller's tenant, which
 * takes one of them. docs/decisions/0067-shared-pools.md says why.
 *
 * Always: a claimed machine is an ordinary one of its tenant. Nothing that waits is a tenant's, and no tenant pays for it.
 */
import { Refusal } from "@flotilla/contract/errors";
import { SHARED_POOLS_MAX } from "@flotilla/contract/limits";
import type { PoolConfig, PoolInfo } from "@flotilla/contract/pools";
import type { Static } from "@flotilla/contract/schema";
import type { Database, Queryable } from "../db/database.ts";
import { statusOf } from "./state.ts";
import {
  countClaimed,
  insertSharedPool,
  listKeepingNodes,
  listSharedPools,
  type SharedPool,
  sumHeld,
} from "./shared-store.ts";
import { type Idle, idleOf, localImagesOf, sharesOf } from "./shares.ts";

type Info = Static<typeof PoolInfo>;

/** Throws a Refusal if the request names what a shared pool has not. */
export function refuseUnshareable(
  { tenantId, maxIdleSecs, network, image }: Static<typeof PoolConfig>,
  { isAdmin }: { readonly isAdmin: boolean },
): void {
  if (!isAdmin)
    throw new Refusal("missing_scope", "missing scope: admin; leave shared out to make a pool of your own tenant");
  if (tenantId !== undefined)
    throw new Refusal("invalid_request", "a shared pool has no tenant; leave tenantId or shared out");
  if (maxIdleSecs !== undefined)
    throw new Refusal("invalid_request", "no machine waits in a shared pool; leave maxIdleSecs or shared out");
  if (network === false && !image.startsWith("local/"))
    throw new Refusal(
      "invalid_request",
      `machines without a network do not fetch ${image}, so a shared pool of them needs a local/ image`,
    );
}

export async function createSharedPool(db: Database, pool: SharedPool): Promise<Info> {
  if ((await insertSharedPool(db, pool)) === "too_many")
    throw new Refusal("quota_exceeded", `there are ${SHARED_POOLS_MAX} shared pools, which is the maximum; delete one`);
  return sharedPoolInfo(pool, { idleCount: 0, busyCount: 0, error: null });
}

/** All shared pools, as a tenant sees them. `isAdmin`: with what nodes say. */
export async function describeSharedPools(
  db: Queryable,
  { tenantId, isAdmin }: { readonly tenantId: string; readonly isAdmin: boolean },
): Promise<readonly Info[]> {
  const pools = await listSharedPools(db);
  if (pools.length === 0) return [];
  const ids = pools.map(({ id }) => id);
  const [held, claimed, nodes] = await Promise.all([
    sumHeld(db),
    countClaimed(db, tenantId, ids),
    listKeepingNodes(db, localImagesOf(pools)),
  ]);
  const idle = idleOf(pools, held);
  const busy = new Map(claimed.map(({ poolId, count }) => [poolId, count]));
  return pools.map((pool) => {
    const { idleCount, error } = idle.get(pool.id) ?? NOTHING;
    const canWait = sharesOf([{ ...pool, targetSize: 1 }], nodes).size > 0;
    const why = canWait ? error : NO_NODE;
    const shown = why === null || isAdmin ? why : "nodes cannot prepare its VMs now; a claim starts a machine without";
    return sharedPoolInfo(pool, { idleCount, busyCount: busy.get(pool.id) ?? 0, error: shown });
  });
}

const NO_NODE =
  "no node keeps its VMs: one must be ready, have the memory, a local image if it is one, and an agent that prepares VMs";
const NOTHING: Idle = { idleCount: 0, error: null };

function sharedPoolInfo(pool: SharedPool, counts: Idle & { readonly busyCount: number }): Info {
  const { id, image, targetSize, cpus, memoryMb, hasNetwork, createdAt } = pool;
  const { idleCount, busyCount, error } = counts;
  const status = statusOf({ idleCount, targetSize, error });
  return {
    ...{ id, image, shared: true, targetSize, idleCount, busyCount, status },
    error: status === "degraded" ? error : null,
    ...{ cpus, memoryMb, network: hasNetwork, maxIdleSecs: null, createdAt: new Date(createdAt).toISOString() },
  };
}
